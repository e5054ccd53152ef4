// SPDX-License-Identifier: MIT
#include "base/probe.hpp"
#include "catch.hpp"
#include "machines.hpp"
#include "made_module.hpp"

namespace p2pd {
extern const Probe kOtherModules;
}

using namespace p2pd;

namespace {

Finding look(const test::ChangedRecord& record, const char* entry = "test/main") {
  RecordedRunner runner(record.root());
  return kOtherModules.check(Host(record.root(), runner), {{"entry", entry}}).value();
}

}  // namespace

TEST_CASE("other-modules: machines and what is loaded there") {
  struct Case {
    const char* record;
    Verdict verdict;
    const char* says;
  };
  for (const Case& one :
       {Case{"rtx4090-x2-healthy", Verdict::pass, "the loaded module is the installed one"},
        Case{"rtx4090-x2-stock-loaded", Verdict::fail, "the loaded nvidia module is not the file that is installed"},
        Case{"rtx3090-x2-nouveau", Verdict::fail, "nouveau drives 0000:01:00.0 and 1 more"},
        Case{"ubuntu26-rtx4090-x2-nova-refuses", Verdict::fail, "NovaCore drives 0000:01:00.0 and 1 more"},
        Case{"no-gpu", Verdict::pass, "no driver of the GPUs is loaded"}}) {
    CAPTURE(one.record);
    const Finding finding = look(test::ChangedRecord(one.record));
    CHECK(finding.verdict == one.verdict);
    CHECK(test::holds(finding.summary, one.says));
  }
}

TEST_CASE(
    "other-modules: Nova counts by binding, built in and without a build of the catalogue too, and stays until a "
    "reboot") {
  const test::ChangedRecord record("ubuntu26-rtx4090-x2-nova-refuses");
  CHECK(look(record).facts["other"] == std::vector<std::string>{"nova", "nova_core"});
  CHECK(look(record).facts["reboot"] == true);
  CHECK(look(record, "none").verdict == Verdict::fail);
  record.remove("sys/module/nova");
  record.remove("sys/module/nova_core");
  CHECK(look(record).summary == "NovaCore drives 0000:01:00.0 and 1 more");
}

TEST_CASE("other-modules: nouveau on a card that is left out is in nobody's way") {
  const test::ChangedRecord record("rtx4090-x2-gt1030");
  RecordedRunner runner(record.root());
  Host host(record.root(), runner);
  CHECK(kOtherModules.check(host, {{"entry", "test/main"}}).value().verdict == Verdict::pass);  // it is alone
  host.require_all_gpus(true);
  CHECK(
      test::holds(kOtherModules.check(host, {{"entry", "test/main"}}).value().summary, "nouveau drives 0000:03:00.0"));
  host.leave_out_gpus({"10de:1d01"});
  CHECK(kOtherModules.check(host, {{"entry", "test/main"}}).value().verdict == Verdict::pass);
}

TEST_CASE("other-modules: a file that is gone or another makes the loaded one another driver's") {
  const test::ChangedRecord record("rtx4090-x2-healthy");
  REQUIRE(look(record).verdict == Verdict::pass);
  record.file("sys/module/nvidia/srcversion", "0123456789ABCDEF0123456\n");
  CHECK(test::holds(
      look(record).summary,
      "the loaded nvidia module is not the file that is installed: srcversion 0123456789ABCDEF0123456 is loaded"));
  CHECK(look(record, "none").verdict == Verdict::not_applicable);

  record.file("lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidia.ko",
              test::MadeModule{"0123456789ABCDEF0123456", test::build_id_note("\x91")}.bytes());
  CHECK(look(record).verdict == Verdict::pass);  // nothing is known of the build id of the loaded one
  record.file("sys/module/nvidia/notes/.note.gnu.build-id", test::build_id_note("\x3f"));
  CHECK(look(record).summary ==
        "the loaded nvidia module is not the file that is installed: build id 3f is loaded, build id 91 is installed");
}
