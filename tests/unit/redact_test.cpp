// SPDX-License-Identifier: MIT
// Redaction by kind of data, and reports without redacted data.
#include "record/redact.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/url.hpp"
#include "catch.hpp"
#include "record/private_words.hpp"
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

TEST_CASE("redact: lines of the kernel's log") {
  const char* const rows[][2] = {
      {"python3[4711]: segfault at 0 ip 7f00 in libcuda.so", "process[4711]: segfault at 0 ip 7f00 in libcuda.so"},
      {"traps: train[12] general protection", "traps: process[12] general protection"},
      {"INFO: task train:123 blocked for more than 120 seconds.",
       "INFO: task process:123 blocked for more than 120 seconds."},
      {"Out of memory: Killed process 4711 (train) total-vm:1kB",
       "Out of memory: Killed process 4711 (process) total-vm:1kB"},
      {"CPU: 3 PID: 4711 Comm: train Tainted: P", "CPU: 3 PID: 4711 Comm: process Tainted: P"},
      {"NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU",
       "NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU"},
      {"[UFW BLOCK] IN=eth0 SRC=203.0.113.9 DST=192.0.2.1 LEN=40",
       "[UFW BLOCK] IN=eth0 SRC=removed DST=removed LEN=40"},
      {"usb 1-1: SerialNumber: AB12", "usb 1-1: SerialNumber: 0000"},
      {"systemd[1]: Hostname set to <box7>.", "systemd[1]: Hostname set to <host>."},
      {"Kernel command line: ro ip=10.0.0.7 quiet", "Kernel command line: ro ip=removed quiet"},
      {"AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x7f]",
       "AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x7f]"},
      {"nvidia 0000:02:00.0: AER: [12] Timeout", "nvidia 0000:02:00.0: AER: [12] Timeout"},
      {"serial", "serial"},
      {"", ""},
  };
  for (const auto& row : rows) CHECK(log_line_without_identity(row[0], "box7") == row[1]);
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
       "https://host/x https://github.com/y http://developer.download.nvidia.com:80/z"},
      {"alice@corp.example, root@box7 (jo@box7)", "user@host, root@host (user@host)"},
      {"/home/alice/x of Jo Doe (jo), joe and nvidia", "/home/user/x of user (user), joe and nvidia"},
      {"box7 box7.acme.example nfs1.acme.example acme", "host host host acme"},
      {"root=/dev/disk/by-id/nvme-Samsung_990_S7KGNJ0W ro", "root=/dev/disk/by-id/removed ro"},
  };
  for (const auto& row : rows) CHECK(without_private_words(row[0], identity) == row[1]);
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
                {"units", "acme-train"},
                {"private kernel arguments", "/exports/pxe"}};

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
  const std::string page = page_of("redacted", sources);
  for (const char* secret : {"5b694366", "box7", "0123456789abcdef", "AB12", "/home/jo", "ab:cd:ef", "10.0.0.7"})
    CHECK(!holds(page, secret));
  CHECK(holds(page, "quiet"));
  CHECK(!holds(page, "Not redacted"));
  const std::string whole = report_page(report_document(sources));
  for (const char* known : {"box7", "0123456789abcdef", "GPU-5b694366", "Not redacted"}) CHECK(holds(whole, known));
}

TEST_CASE("report: of a list of sentinels none is in any form of a redacted report") {
  const Identity identity{"box7.acme.example", "0123456789abcdef0123456789abcdef", {"jodoe", "Jo Doe"}};
  const std::string all =
      "at 203.0.113.9 and 2001:db8::7334 (52:54:00:ab:cd:ef), guid e41d:2d03:0065:1234, "
      "https://me:s3cret@mirror.corp/x of jodoe, Jo Doe, /home/homer/x, nfsroot=10.0.0.1:/exports/pxe "
      "alice@corp, acme-train.service on box7 and nfs1.acme.example; SerialNumber: XK1234567, "
      "GPU-5b694366-fbc1-9c4e-3eaf-2f5dc4468404, "
      "0123456789abcdef0123456789abcdef, /dev/disk/by-id/nvme-x_S7KGNJ0W, container lxc pod-a7, torchrun (process "
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
  json document = report_document(ready_run(2));
  redact(document, {});
  CHECK(holds(report_page(document), "p2pctl(1) lists them"));
}

TEST_CASE("download: no password in what is printed", "[download]") {
  CHECK(without_user_info("https://me:pw@host/a@b") == "https://host/a@b");
  CHECK(without_user_info("https://me:p@w@host?x@y") == "https://host?x@y");
  CHECK(without_user_info("https://host/a@b") == "https://host/a@b");
  CHECK(without_user_info("host@x") == "host@x");
  CHECK(without_user_info("https://") == "https://");
}
