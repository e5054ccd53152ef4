// SPDX-License-Identifier: MIT
#include "machine/boot/kernels.hpp"

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

TEST_CASE("kernels: those of /boot, in order, with what is there for each") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  const auto put = [&](const std::string& path) { directory.put(path, "x"); };
  CHECK_FALSE(bootable_kernels(host));
  put("boot/config-6.1.0-9-amd64");
  CHECK(bootable_kernels(host).error().code == ErrorCode::not_found);
  for (const char* name : {"vmlinuz-6.1.0-37-amd64", "vmlinuz-6.1.0-9-amd64", "vmlinuz-6.8.0-60-generic",
                           "vmlinuz-6.1.0-9-amd64.old", "vmlinuz-6.1.0-9-amd64.dpkg-new", "vmlinuz", "vmlinuz-"})
    put(std::string("boot/") + name);
  fs::create_directories(directory / "usr/lib");
  fs::create_symlink("usr/lib", directory / "lib");  // merged /usr
  put("lib/modules/6.1.0-37-amd64/updates/dkms/nvidia-current.ko");
  put("lib/modules/6.1.0-37-amd64/updates/dkms/nvidia-current-uvm.ko");
  put("lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidia.ko.xz");
  put("lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidiafb.ko");
  fs::create_symlink("/usr/src/linux-headers-6.1.0-37-amd64", directory / "lib/modules/6.1.0-37-amd64/build");
  put("lib/modules/6.8.0-60-generic/kernel/nvidia-550/nvidia.ko.zst");
  put("lib/modules/6.8.0-60-generic/kernel/nvidia-550/nvidia-drm.ko.zst");
  auto kernels = bootable_kernels(host).value();
  REQUIRE(kernels.size() == 3);
  CHECK(kernels[0].version == "6.1.0-9-amd64");
  CHECK_FALSE(kernels[0].modules);
  CHECK(kernels[1].version == "6.1.0-37-amd64");
  CHECK(kernels[1].modules);
  CHECK_FALSE(kernels[1].headers);  // the link dangles
  CHECK(kernels[1].nvidia == std::vector<std::string>{"/lib/modules/6.1.0-37-amd64/updates/dkms/nvidia-current.ko",
                                                      "/lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidia.ko.xz"});
  CHECK(kernels[2].nvidia == std::vector<std::string>{"/lib/modules/6.8.0-60-generic/kernel/nvidia-550/nvidia.ko.zst"});
  put("usr/src/linux-headers-6.1.0-37-amd64/Makefile");
  CHECK(kernel_of(host, "6.1.0-37-amd64").headers);
  for (int i = 0; i < 300; ++i) put("boot/vmlinuz-1." + std::to_string(i));
  CHECK(bootable_kernels(host).error().code == ErrorCode::invalid);
}
