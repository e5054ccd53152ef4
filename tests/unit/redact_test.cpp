// SPDX-License-Identifier: MIT
// Redaction by kind of data, and reports without redacted data.
#include "record/redact.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

#include "base/url.hpp"
#include "catch.hpp"
#include "made_tree.hpp"
#include "record/private_words.hpp"
#include "redaction.hpp"
#include "report_sources.hpp"

using namespace p2pd;
using namespace p2pd::ctl;
using namespace p2pd::test;
using nlohmann::json;

TEST_CASE("redact: UUIDs and MAC addresses, and nothing that only looks like one") {
  const char* const same[] = {"0000:01:00.0",
                              "Xid (PCI:0000:01:00): 31",
                              "12:34:56",
                              "6.1.0-37-amd64",
                              "",
                              "a-5b694366-fbc1-9c4e-3eaf-2f5dc4468404",
                              "5b694366-fbc1-9c4e-3eaf-2f5dc44684040",
                              "52:54:00:ab:cd:ef:01",
                              "5b694366-fbc1-9c4e-3eaf",
                              "UUID="};
  for (const char* text : same) CHECK(without_ids(text) == text);
  CHECK(without_ids("on 5B694366-fbc1-9c4e-3eaf-2f5dc4468404.") == "on 00000000-0000-0000-0000-000000000000.");
  CHECK(without_ids("eth0: 52:54:00:ab:cd:ef") == "eth0: 00:00:00:00:00:00");
  CHECK(without_ids("root=PARTUUID=1a2b3c4d-02 ro") == "root=PARTUUID=00000000-00 ro");
}

TEST_CASE("redact: the host's name as a word") {
  CHECK(without_host_name("box7 box7.example.org, (box7) box70 abox7 box7_x", "box7") ==
        "host host, (host) box70 abox7 box7_x");
  CHECK(without_host_name("/dev/mapper/my--box--vg-root my-box", "my-box.lan") == "/dev/mapper/host--vg-root host");
  for (const char* common : {"debian", "nvidia", "ab", ""})
    CHECK(without_host_name("debian nvidia ab", common) == "debian nvidia ab");
}

TEST_CASE("redact: who built it") {
  CHECK(without_builder("x (jo@box) (root@box7) y") == "x (user@host) (root@host) y");
  for (const char* text : {"faulted @ 0x7f14_4c000000", "a@b", "(a@b", "(a b@c d)", "@", "(@)x"})
    CHECK(without_builder(text).size() >= std::string_view(text).size());
  CHECK(without_builder("HUBCLIENT_CE0 faulted @ 0x7f14") == "HUBCLIENT_CE0 faulted @ 0x7f14");
}

TEST_CASE("redact: of the kernel's log stays what a check reads, without names of processes") {
  const char* const rows[][2] = {
      {"NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
       "NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."},
      {"NVRM: Xid (PCI:0000:02:00): 31, pid=7, name=my job, a, Ch 00000008, intr 00000000.",
       "NVRM: Xid (PCI:0000:02:00): 31, pid=7, name=process, Ch 00000008, intr 00000000."},
      {"NVRM: Xid (PCI:0000:02:00): 13, pid=7, name=my job", "NVRM: Xid (PCI:0000:02:00): 13, pid=7, name=process"},
      {"NVRM: API mismatch: the client 'it's mine' (pid 7)\\x0aNVRM: has the version 1\\x0amine",
       "NVRM: API mismatch: the client 'process' (pid 7)\\x0aNVRM: has the version 1\\x0aremoved"},
      {"Lockdown: a job: unsigned module loading is restricted; see man",
       "Lockdown: process: unsigned module loading is restricted; see man"},
      {"nvidia 0000:02:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x7f]",
       "nvidia 0000:02:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x7f]"},
      {"Linux version 6.1.0-37-amd64 (jo doe@box) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP",
       "Linux version 6.1.0-37-amd64 (user@host) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP"},
      {"python3[4711]: segfault at 0 ip 7f00 in libcuda.so", "removed"},
      {"usb 1-1: SerialNumber: AB12", "removed"},
      {"Kernel command line: ro ip=10.0.0.7 quiet", "removed"},
      {"x[77]: segfault\\x0aNVRM: Xid (PCI:0000:01:00): 79, GPU", "removed"},
      {"", "removed"},
  };
  for (const auto& row : rows) {
    CHECK(public_kernel_message(row[0]) == row[1]);
    CHECK(public_kernel_message(row[1]) == row[1]);
  }
}

TEST_CASE("redact: of a kernel argument without a reader its name stays") {
  const char* const rows[][2] = {
      {"ro quiet iommu=pt pci=realloc=off nvidia-drm.modeset=1",
       "ro quiet iommu=pt pci=realloc=off nvidia-drm.modeset=1"},
      {"ip=10.0.0.7 luks.key=/x:LABEL=y BOOTIF=01-52-54", "ip=removed luks.key=removed BOOTIF=removed"},
      {"a=\"b c\" \"d=e f\" g", "a=removed \"d=removed\" g"},
      {"a=\\\"b c\\\" quiet", "a=removed quiet"},
      {"root=UUID=12ab-34 root=/dev/nvme0n1p2 root=/dev/vg/box root=LABEL=box",
       "root=UUID=0000-00 root=/dev/nvme0n1p2 root=removed root=removed"},
      {"quiet -- me s3cret", "quiet -- removed removed"},
      {"$X ${X:+$X } ${X:-s3cret} /s3cret", "$X ${X:+$X } removed removed"},
      {"a=removed", "a=removed"},
      {"", ""},
  };
  for (const auto& row : rows) CHECK(public_arguments(row[0]) == row[1]);
  CHECK(public_arguments(" a=b NVreg_X=1 c", true, "nvidia") == " a=removed NVreg_X=1 c");
  CHECK(public_arguments(" a=b c", true, "cifs") == " a=removed c");
  CHECK(public_arguments("s3cret iommu=pt", false) == "removed iommu=pt");
}

TEST_CASE("redact: every argument of p2pd's own plans is public") {
  for (const auto& file : std::filesystem::directory_iterator(P2PD_SOURCE_DIR "/config/plans")) {
    std::ifstream text(file.path());
    for (std::string line; std::getline(text, line);)
      if (const std::size_t at = line.find("arguments: ["); at != std::string::npos) {
        const std::string listed = line.substr(at + 12, line.find(']', at) - at - 12);
        INFO(file.path() << ": " << listed);
        CHECK(public_arguments(listed) == listed);
      }
  }
}

namespace {

/// A word of letters and digits, with marks in it that quote or end words.
std::string random_text(std::mt19937& random, std::string_view letters, std::size_t most) {
  std::string text;
  for (std::size_t size = random() % most + 1; text.size() < size;) text += letters[random() % letters.size()];
  return text;
}

}  // namespace

TEST_CASE("redact: no value of a name that is not public survives, whatever is around it") {
  constexpr std::string_view kNoise = "ab =\"'\\;#$`{}()->:,.\n\t_1", kPieces[] = {"quiet ",
                                                                                   "iommu=pt ",
                                                                                   "\"x y\" ",
                                                                                   "NVreg_A=1 ",
                                                                                   "-- ",
                                                                                   "$X ",
                                                                                   "root=",
                                                                                   "# ",
                                                                                   "options nvidia ",
                                                                                   "install x ",
                                                                                   "GRUB_CMDLINE_LINUX=\"",
                                                                                   "menuentry x {\n",
                                                                                   "linux /x ",
                                                                                   "}\n",
                                                                                   "ExecStart=/x ",
                                                                                   "Package: ",
                                                                                   "NCCL_P2P_LEVEL=",
                                                                                   "\\\n",
                                                                                   "Linux version 6 (x) (gcc) ",
                                                                                   "override ",
                                                                                   "set default=",
                                                                                   "export A="};
  std::mt19937 random(7);
  const auto around = [&] {
    std::string text = random_text(random, kNoise, 12);
    for (std::size_t piece = random() % 5; piece > 0; --piece)
      text += random() % 4 == 0 ? random_text(random, kNoise, 6) : std::string(kPieces[random() % std::size(kPieces)]);
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    const std::string before = around(), behind = around();
    INFO(before << "|" << behind);
    CHECK(broken_redaction(before, behind) == "");
  }
}

TEST_CASE("redact: user info of URLs, wherever they stand") {
  CHECK(without_user_info("fetch https://me:pw@host/a@b, then http://you@[::1]:80 and x@y") ==
        "fetch https://host/a@b, then http://[::1]:80 and x@y");
  CHECK(without_user_info(R"({"url":"https://me:p@w@host"})") == R"({"url":"https://host"})");
  for (const char* text : {"", "://", "://@", "a://b://c@d", "https://host", "://\"@"})
    CHECK(without_user_info(text).size() <= std::string_view(text).size());
}

TEST_CASE("redact: addresses, logins, homes and people are removed, what only looks like one stays") {
  const Identity identity{"box7.acme.example", "", {"jo", "Jo Doe", "nvidia"}};
  const char* const rows[][2] = {
      {"from 10.0.0.7:80, 192.168.1.20. And", "from address:80, address. And"},
      {"fe80::1ff:fe23:4567:890a 2001:0db8:0000:0000:0000:ff00:0042:8329 ::ffff:10.1.2.3",
       "address address ::ffff:address"},
      {"127.0.0.1 0.0.0.0 ::1 ::", "127.0.0.1 0.0.0.0 ::1 ::"},
      {"driver 570.86.16, package 1.2.3.4-1, v1.2.3.4, 1.2.3.4.5, 300.1.2.3",
       "driver 570.86.16, package 1.2.3.4-1, v1.2.3.4, 1.2.3.4.5, 300.1.2.3"},
      {"0000:01:00.0 10000:e1:00.0 11:06:05 a::b_c std::bad", "0000:01:00.0 10000:e1:00.0 11:06:05 a::b_c std::bad"},
      {"https://me:pw@mirror.corp/x https://github.com/y http://developer.download.nvidia.com:80/z",
       "https://host/removed https://github.com/y http://developer.download.nvidia.com:80/z"},
      {"alice@corp.example, root@box7 (jo@box7)", "user@host, root@host (user@host)"},
      {"/home/alice/x of Jo Doe (jo), joe and nvidia", "/home/user/x of user (user), joe and nvidia"},
      {"box7 box7.acme.example nfs1.acme.example acme", "host host host acme"},
      {"root=/dev/disk/by-id/nvme-Samsung_990_S7KGNJ0W ro", "root=/dev/disk/by-id/removed ro"},
  };
  for (const auto& row : rows) CHECK(without_private_words(row[0], identity) == row[1]);
  CHECK(without_private_words("Ubuntu 24.04 of ubuntu", {"box", "", {"ubuntu", "Ubuntu"}}) == "Ubuntu 24.04 of ubuntu");
}

TEST_CASE("redact: guests of Proxmox VE have names that identify the machine") {
  const test::MadeTree tree;
  tree.put("etc/pve/lxc/105.conf", "hostname: llm-of-jo\n");
  tree.put("etc/pve/qemu-server/100.conf", "name: acme-desk\n");
  CHECK(without_private_words("container 105 (llm-of-jo), VM 100 (acme-desk)", identity_of(tree.host)) ==
        "container 105 (user), VM 100 (user)");
}

TEST_CASE("redact: units of the owner lose their names, others keep them") {
  CHECK(without_unit_names("GPUs are in use by acme-train.service, vllm@70b.service; systemctl stop "
                           "nvidia-persistenced.service. p2pd-worker.service, "
                           "docker-0123.scope, user@1000.service") ==
        "GPUs are in use by unit.service, unit.service; systemctl stop nvidia-persistenced.service. "
        "p2pd-worker.service, docker-0123.scope, unit.service");
  CHECK(without_unit_names("x.cfg .service a.b service") == "x.cfg .service a.b service");
}

namespace {

/// Data that p2pctl(1) says is left out of a report, with a sample of each kind.
constexpr struct {
  const char* promise;
  const char* sentinel;
} kLeftOut[] = {{"serial numbers", "XK1234567"},
                {"UUIDs", "5b694366"},
                {"GUIDs", "e41d:2d03:0065:1234"},
                {"MAC", "52:54:00:ab:cd:ef"},
                {"IP addresses", "203.0.113.9"},
                {"IP addresses", "2001:db8::7334"},
                {"names of disks by id", "S7KGNJ0W"},
                {"host name", "box7"},
                {"domain", "nfs1"},
                {"machine id", "0123456789abcdef"},
                {"accounts with a user id from 1000 on", "jodoe"},
                {"full names", "Jo Doe"},
                {"home directories", "homer"},
                {"USER@HOST", "alice"},
                {"user and password of URLs", "s3cret"},
                {"hosts of URLs", "mirror.corp"},
                {"names of processes", "torchrun"},
                {"containers", "pod-a7"},
                {"virtual machines", "acme-desk"},
                {"units", "acme-train"},
                {"values of settings that no check reads", "/exports/pxe"}};

}  // namespace

TEST_CASE("report: serials, UUIDs, host name and machine id are left out") {
  Sources sources = run_of(
      "failed", "failed",
      finding("fail", "box7: GPU-5b694366-fbc1-9c4e-3eaf-2f5dc4468404 hangs, machine 0123456789abcdef0123456789abcdef"),
      finding("unknown", "usb 1-1: SerialNumber: AB12 of /home/jo/x at 52:54:00:ab:cd:ef"));
  sources.machine = machine_of(2);
  sources.machine["environment"] = {
      {{"name", "Host name"}, {"value", "box7"}},
      {{"name", "Machine id"}, {"value", "0123456789abcdef0123456789abcdef"}},
      {{"name", "Kernel arguments"}, {"value", "root=UUID=5b694366-fbc1-9c4e-3eaf-2f5dc4468404 ip=10.0.0.7 quiet"}}};
  const std::string page = page_of(sources);
  for (const char* secret : {"5b694366", "box7", "0123456789abcdef", "AB12", "/home/jo", "ab:cd:ef", "10.0.0.7"})
    CHECK(!holds(page, secret));
  CHECK(holds(page, "quiet"));
  const std::string whole = report_page(report_document(sources));
  for (const char* known : {"box7", "0123456789abcdef", "GPU-5b694366"}) CHECK(holds(whole, known));
}

TEST_CASE("report: of a list of sentinels none is in any form of a redacted report") {
  const Identity identity{"box7.acme.example", "0123456789abcdef0123456789abcdef", {"jodoe", "Jo Doe", "acme-desk"}};
  const std::string all =
      "at 203.0.113.9 and 2001:db8::7334 (52:54:00:ab:cd:ef), guid e41d:2d03:0065:1234, "
      "https://me:s3cret@mirror.corp/x of jodoe, Jo Doe, /home/homer/x, nfsroot=10.0.0.1:/exports/pxe "
      "alice@corp, acme-train.service on box7 and nfs1.acme.example; SerialNumber: XK1234567, "
      "GPU-5b694366-fbc1-9c4e-3eaf-2f5dc4468404, "
      "0123456789abcdef0123456789abcdef, /dev/disk/by-id/nvme-x_S7KGNJ0W, container lxc pod-a7, VM 100 (acme-desk), "
      "torchrun (process "
      "4711)";
  json proof = finding("fail", all);
  proof["evidence"] = {{{"source", "/proc/4711/fd"}, {"value", "torchrun: /dev/nvidia0"}},
                       {{"source", all}, {"value", all}}};
  proof["next"] = all;
  Sources sources = run_of("failed", "failed", proof, proof);
  sources.machine = machine_of(2);
  sources.machine["environment"] = {{{"name", "Kernel arguments"}, {"value", all}}};
  sources.notes = {all};
  sources.status["reason"] = sources.status["next"] = all;
  for (json& one : sources.history["events"]) one["text"] = all;
  json document = report_document(sources);
  const std::string whole = document.dump();
  redact(document, identity);
  const std::string text = document.dump(), page = report_page(document);
  for (const auto& [promise, sentinel] : kLeftOut) {
    INFO(promise << ": " << sentinel);
    CHECK(holds(whole, sentinel));
    CHECK(!holds(text, sentinel));
    CHECK(!holds(page, sentinel));
  }
}

TEST_CASE("report: the manual page says what a redacted report leaves out, and no more") {
  std::ifstream file(P2PD_SOURCE_DIR "/units/man/p2pctl.1");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::ranges::replace(text, '\n', ' ');
  const std::string begin = "Left out, as far as their form or the accounts of this machine tell them: ";
  const std::size_t at = text.find(begin), end = text.find(". What stays:", at);
  REQUIRE(end != std::string::npos);
  std::string list = text.substr(at + begin.size(), end - at - begin.size());
  for (const auto& row : kLeftOut) {
    INFO(row.promise);
    CHECK(holds(text.substr(at, end - at), row.promise));
    if (const std::size_t found = list.find(row.promise); found != std::string::npos)
      list.erase(found, std::string_view(row.promise).size());
  }
  for (const char c : {',', '(', ')'}) std::ranges::replace(list, c, ' ');
  std::istringstream rest(list);
  for (std::string word; rest >> word;) {
    INFO("without a sentinel: " << word);
    CHECK(std::set<std::string>{"and", "but", "people", "the", "their", "NVIDIA's", "GitHub's", "distributions'",
                                "system's"}
              .contains(word));
  }
}

TEST_CASE("download: no password in what is printed", "[download]") {
  CHECK(without_user_info("https://me:pw@host/a@b") == "https://host/a@b");
  CHECK(without_user_info("https://me:p@w@host?x@y") == "https://host?x@y");
  CHECK(without_user_info("https://host/a@b") == "https://host/a@b");
  CHECK(without_user_info("host@x") == "host@x");
  CHECK(without_user_info("https://") == "https://");
}
