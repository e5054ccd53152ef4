// SPDX-License-Identifier: MIT
#pragma once

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "machine/catalogue/patched_source.hpp"
#include "machine/fetch/git_store.hpp"
#include "machine/modules/mirror_make.hpp"
#include "machine/modules/module_build.hpp"
#include "staged.hpp"

namespace p2pd {
extern const Probe kDriverBuild;
extern const Action kDriverBuildAction;
}  // namespace p2pd

namespace p2pd::test {

inline constexpr char kRelease[] = "6.1.0-1-amd64";

/// "12" if /usr/bin/gcc-12 is installed.
inline std::string installed_gcc_major() {
  for (int major = 30; major > 7; --major)
    if (std::filesystem::exists(fmt::format("/usr/bin/gcc-{}", major))) return std::to_string(major);
  return {};
}

/// A host with a staged source for `make modules`: five files with a .modinfo section, which compile quickly.
struct Buildable : Staged {
  Buildable() : gcc(installed_gcc_major()) {
    program_named("gcc-" + gcc);
    kernel(kRelease);
    source("Makefile",
           "M = nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem\n"
           "modules: $(M:%=kernel-open/%.ko)\n"
           "kernel-open/%.ko: kernel-open/%.c\n"
           "\t$(CC) $(KCFLAGS) -r -nostdlib -Wl,--build-id -DRELEASE='\"$(KERNEL_UNAME)\"' -o $@ $<\n");
    for (const std::string_view module : kModuleNames) source(fmt::format("kernel-open/{}.c", module), code("RELEASE"));
    pin();
  }
  static std::string code(const std::string& release) {
    return "static const char a[] __attribute__((section(\".modinfo\"), used)) = \"vermagic=\" " + release +
           " \" SMP mod_unload\";\n"
           "static const char b[] __attribute__((section(\".modinfo\"), used)) = \"srcversion=0123456789ABCDEF\";\n"
           "static const char c[] __attribute__((section(\".modinfo\"), used)) = \"version=9.9.9\";\n";
  }
  void kernel(const std::string& release) const {
    file("boot/vmlinuz-" + release, "");
    file("boot/config-" + release,
         fmt::format("CONFIG_CC_VERSION_TEXT=\"gcc-{} (Debian {}.2.0-14) {}.2.0\"\n", gcc, gcc, gcc));
    file("lib/modules/" + release + "/build/Makefile", "");
    file("lib/modules/" + release + "/build/include/linux/pci.h",
         "int pci_resize_resource(struct pci_dev *, int, int);\n");
  }
  void source(const std::string& path, const std::string& content) const { file("srv/source/" + path, content); }
  /// Stages what source() wrote, as driver-source would.
  void pin() {
    const std::string tree = git_tree_id(Root::open(directory.path()).value(), "/srv/source").value();
    patch()["commit"] = git_object_id("commit", tree);
    const std::string staged = source_of(entry());
    std::filesystem::create_directories((directory / staged).parent_path());
    std::filesystem::copy(directory / "srv/source", directory / staged, std::filesystem::copy_options::recursive);
    const nlohmann::json record = {
        {"release", "9.9.9"}, {"base_commit", release()["commit"]}, {"commit", patch()["commit"]}, {"tree", tree}};
    file(source_record_of(entry()), record.dump());
  }
  std::vector<ModuleBuild> builds() {
    const Host machine = host();
    return wanted_builds(machine, catalogue(machine).value(), entry()).value();
  }
  Error failed_apply() {
    const auto applied = apply(kDriverBuildAction);
    REQUIRE_FALSE(applied);
    UNSCOPED_INFO(applied.error().message << " next: " << applied.error().next);
    return applied.error();
  }
  /// Checks that there is neither a complete nor an incomplete build.
  bool nothing_built() const {
    const std::filesystem::path at = directory / "var/cache/p2pd/builds";
    return !std::filesystem::exists(at) || std::filesystem::is_empty(at);
  }

  std::string gcc;
};

/// An Ed25519 key as PEM: private, public, and certificates of it.
class MadeKey {
 public:
  MadeKey() : key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free) {}

  std::string pem() const {
    return text([&](BIO* out) { PEM_write_bio_PrivateKey(out, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }
  std::string public_pem() const {
    return text([&](BIO* out) { PEM_write_bio_PUBKEY(out, key_.get()); });
  }
  /// Valid from `begin` to `end`, in seconds from now.
  std::string certificate(long begin, long end) const {
    const std::shared_ptr<X509> made(X509_new(), X509_free);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), begin);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), end);
    X509_set_pubkey(made.get(), key_.get());
    X509_sign(made.get(), key_.get(), nullptr);
    return text([&](BIO* out) { PEM_write_bio_X509(out, made.get()); });
  }

 private:
  static std::string text(const std::function<void(BIO*)>& write) {
    const std::shared_ptr<BIO> out(BIO_new(BIO_s_mem()), BIO_free_all);
    write(out.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out.get(), &bytes);
    return {bytes, static_cast<std::size_t>(size)};
  }
  std::shared_ptr<EVP_PKEY> key_;
};

/// A machine that built once and made a mirror of it at /srv/mirror, and then lost the build.
struct Mirrored : Buildable {
  Mirrored() {
    file("etc/p2pd/mirror.pub", key.public_pem());
    with["mirror"] = "file:///srv/mirror/";
    with["trusted_keys"] = {"/etc/p2pd/mirror.pub"};
    const Parameters both = std::exchange(with, {{"entry", "test/main"}});
    REQUIRE(apply(kDriverBuildAction));
    file(source_patch_of(entry()), "a patch\n");
    REQUIRE(make());
    undo();
    with = both;
  }
  Result<MirrorMade> make(std::chrono::days valid = std::chrono::days(1)) {
    const Host machine = host();
    Host here(Root::open("/").value(), plain);
    return make_mirror(machine, catalogue(machine).value(), here,
                       {directory / "srv/mirror", {"mirror.key", key.pem()}, valid});
  }
  void forget_build() const { std::filesystem::remove_all(directory / "var/cache/p2pd/builds"); }
  std::string folder() { return "builds/" + std::filesystem::path(builds()[0].directory).filename().string(); }
  std::filesystem::path served(const std::string& path) const { return directory / ("srv/mirror/" + path); }
  MirrorManifest manifest() const {
    std::ifstream in(served("manifest"), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    return read_manifest(text, {{"mirror.pub", key.public_pem()}}).value();
  }
  void sign(const MirrorManifest& changed) const { sign(changed, key); }
  void sign(const MirrorManifest& changed, const MadeKey& by) const {
    file("srv/mirror/manifest", signed_manifest(changed, {"mirror.key", by.pem()}).value());
  }
  /// Applies; returns the reason why the build is not the mirror's; empty: it is. It is valid either way, and was built
  /// if refused.
  std::string refused() {
    const long before = runner.count("make");
    const auto applied = apply(kDriverBuildAction);
    INFO((applied ? "" : applied.error().message));
    REQUIRE(applied);
    const Finding finding = check(kDriverBuild).value();
    CHECK(finding.verdict == Verdict::pass);
    const std::string told = finding.evidence.back().value, refusal = "mirror refused: ", built = "; built here";
    if (told == "taken from " + mirror_of(with).url) {
      CHECK(runner.count("make") == before);
      return "";
    }
    REQUIRE((told.starts_with(refusal) && told.ends_with(built)));
    CHECK(runner.count("make") == before + 1);
    return told.substr(refusal.size(), told.size() - refusal.size() - built.size());
  }

  MadeKey key;
  ProcessRunner plain;
};

/// Answers every request on loopback with one status line, or not at all.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::listen(socket_.get(), 8);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~OneAnswer() {
    ends_ = true;
    thread_.join();
  }
  std::string url;

 private:
  void serve() {
    std::vector<Descriptor> held;
    while (!ends_) {
      pollfd ready{socket_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 20) < 1) continue;
      Descriptor client(::accept(socket_.get(), nullptr, nullptr));
      std::array<char, 4096> request{};
      (void)::recv(client.get(), request.data(), request.size(), 0);
      (void)::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      if (answer_.empty()) held.push_back(std::move(client));
    }
  }
  std::string answer_;
  Descriptor socket_{::socket(AF_INET, SOCK_STREAM, 0)};
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

inline bool says(const std::string& text, std::string_view part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace p2pd::test
