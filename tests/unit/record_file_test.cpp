// SPDX-License-Identifier: MIT
#include "record/record_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using test::TemporaryDirectory;

namespace {

using Kind = RecordFile::Kind;
constexpr fs::perms kExecutable = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// One file of each form.
MachineRecord example() {
  MachineRecord record;
  record.machine = {{"schema", "p2pd.machine/1"}, {"name", "box"}, {"captured", nullptr}, {"notes", {"a \"note\""}}};
  record.expected = {{"root_cause", "iommu"}, {"why", "It translates."}};
  record.commands["nvidia-smi-q"] = {{"nvidia-smi", "-q"}, {3, "one\ntwo\n", "no end"}};
  record.files = {{"boot/vmlinuz", {Kind::file, ""}},
                  {"etc/link", {Kind::link, "../../.././etc/passwd"}},
                  {"lib/nvidia.ko",
                   {Kind::file, std::string("\x7f"
                                            "ELF\0\xff\n",
                                            7)}},
                  {"proc/cmdline", {Kind::file, "iommu=pt é\n\nquiet\t\x1b\n"}},
                  {"proc/nul", {Kind::file, std::string("a\0\n", 3)}},
                  {"proc/short", {Kind::file, "\n\nno end"}},
                  {"usr/bin/dkms", {Kind::program, ""}},
                  {"usr/bin/tool", {Kind::program, "\xfe"}}};
  return record;
}

std::string with(const std::string& files, const std::string& commands = "") {
  return R"({"schema": "p2pd.machine/2", "commands": {)" + commands + R"(}, "files": {)" + files + "}}";
}

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

/// Invalid records, and the message about each.
std::vector<std::pair<std::string, std::string>> unsound() {
  const std::string command = R"("argv": ["x"], "status": 0, "output": [], "errors": [])";
  const std::string bad_command = R"(commands: "x" is not argv, status, output and errors)";
  const std::string bad_content = R"(files: "a" is neither text nor base64, program or link)";
  return {
      {"", "not JSON"},
      {"\xff", "not JSON"},
      {"[]", "schema: \"p2pd.machine/2\" wanted"},
      {R"({"schema": "p2pd.machine/1", "files": {}})", "schema: \"p2pd.machine/2\" wanted"},
      {R"({"schema": 2})", "schema: \"p2pd.machine/2\" wanted"},
      {R"({"schema": "p2pd.machine/2", "commands": []})", "commands: an object wanted"},
      {R"({"schema": "p2pd.machine/2", "files": null})", "files: an object wanted"},
      {R"({"schema": "p2pd.machine/2", "expected": "none"})", "expected: an object wanted"},
      {R"({"schema": "p2pd.machine/2", "schema": "p2pd.machine/2"})", "\"schema\" is given twice"},
      {R"({"schema": "p2pd.machine/2", "machine": {}})", "\"machine\" is not a key of a record"},
      {with(R"("a": [], "a": [])"), "\"a\" is given twice"},
      {with(R"("\u001b[2J": [], "\u001b[2J": [])"), R"("\u001b[2J" is given twice)"},
      {with("\"a\": " + repeated("[", 1000) + repeated("]", 1000)), "nested deeper than 16 levels"},
      {with("\"a\": " + repeated("{\"a\":", 1000) + "1" + repeated("}", 1000)), "nested deeper than 16 levels"},
      {with(R"("a": 1)"), bad_content},
      {with(R"("a": null)"), bad_content},
      {with(R"("a": ["x", 1])"), bad_content},
      {with(R"("a": {})"), bad_content},
      {with(R"("a": {"link": ["x"]})"), bad_content},
      {with(R"("a": {"link": "x\u0000y"})"), bad_content},
      {with(R"("a": {"link": "x", "program": []})"), bad_content},
      {with(R"("a": {"program": {"program": []}})"), bad_content},
      {with(R"("a": {"base64": "/g="})"), bad_content},
      {with(R"("a": {"base64": "===="})"), bad_content},
      {with(R"("a": {"base64": " /g=="})"), bad_content},
      {with(R"("": [])"), R"(files: "" is no path below a directory)"},
      {with(R"("/etc/passwd": [])"), R"(files: "/etc/passwd" is no path below a directory)"},
      {with(R"("a/": [])"), R"(files: "a/" is no path below a directory)"},
      {with(R"("a//b": [])"), R"(files: "a//b" is no path below a directory)"},
      {with(R"("a/./b": [])"), R"(files: "a/./b" is no path below a directory)"},
      {with(R"("..": [])"), R"(files: ".." is no path below a directory)"},
      {with(R"("a/../../b": [])"), R"(files: "a/../../b" is no path below a directory)"},
      {with(R"("a\u0000b": [])"), R"(files: "a\u0000b" is no path below a directory)"},
      {with(R"("a": [], "a-b": [], "a/b": [])"), R"(files: "a" is a file and a directory)"},
      {with(R"("a": {"link": "/etc"}, "a/b/c": [])"), R"(files: "a" is a file and a directory)"},
      {with(R"("machine.json": [])"), R"(files: "machine.json" belongs to another key)"},
      {with(R"("machine.json/a": [])"), R"(files: "machine.json" is a file and a directory)"},
      {with(R"("commands/x.json": [])", "\"x\": {" + command + "}"),
       R"(files: "commands/x.json" belongs to another key)"},
      {with(R"("commands": [])", "\"x\": {" + command + "}"), R"(files: "commands" is a file and a directory)"},
      {with("", "\"../x\": {" + command + "}"), R"(files: "commands/../x.json" is no path below a directory)"},
      {with("", R"("x": {"argv": ["x"], "status": 0, "output": []})"), bad_command},
      {with("", R"("x": {"argv": ["x"], "status": 99999999999, "output": [], "errors": []})"), bad_command},
      {with("", R"("x": {"argv": [1], "status": 0, "output": [], "errors": []})"), bad_command},
      {with("", R"("x": {"argv": ["x"], "status": 0, "output": {"base64": "/g=="}, "errors": []})"), bad_command},
  };
}

}  // namespace

TEST_CASE("record file: what is written is read again") {
  const std::string text = to_text(example());
  const MachineRecord record = parse_record(text).value();
  CHECK(record.files == example().files);
  CHECK(record.machine == example().machine);
  CHECK(*record.expected == *example().expected);
  CHECK(record.commands.at("nvidia-smi-q").result.errors == "no end");
  CHECK(to_text(record) == text);
}

TEST_CASE("record file: each line of a text is a line of the file") {
  MachineRecord record = example();
  record.expected.reset();
  std::erase_if(record.files,
                [](const auto& file) { return !file.first.starts_with("usr") && file.first != "proc/cmdline"; });
  CHECK(to_text(record) == R"({
 "schema": "p2pd.machine/2",
 "name": "box",
 "captured": null,
 "notes": [
  "a \"note\""
 ],
 "commands": {
  "nvidia-smi-q": {
   "argv": [
    "nvidia-smi",
    "-q"
   ],
   "errors": "no end",
   "output": [
    "one",
    "two"
   ],
   "status": 3
  }
 },
 "files": {
  "proc/cmdline": [
   "iommu=pt é",
   "",
   "quiet\t\u001b"
  ],
  "usr/bin/dkms": {
   "program": []
  },
  "usr/bin/tool": {
   "program": {
    "base64": "/g=="
   }
  }
 }
}
)");
}

TEST_CASE("record file: unpacked into a directory") {
  const TemporaryDirectory place;
  REQUIRE(unpack(example(), place / "box"));
  for (const auto& [path, file] : example().files) {
    INFO(path);
    const fs::path name = place / ("box/" + path);
    CHECK(fs::is_symlink(name) == (file.kind == Kind::link));
    CHECK((fs::is_symlink(name) ? fs::read_symlink(name).string() : text_of(name)) == file.content);
    if (file.kind != Kind::link)
      CHECK(((fs::status(name).permissions() & kExecutable) == kExecutable) == (file.kind == Kind::program));
  }
  CHECK(text_of(place / "box/expected.json") == "{\n  \"root_cause\": \"iommu\",\n  \"why\": \"It translates.\"\n}\n");
  CHECK(nlohmann::json::parse(text_of(place / "box/machine.json"))["schema"] == "p2pd.machine/1");
  CHECK(nlohmann::json::parse(text_of(place / "box/commands/nvidia-smi-q.json"))["output"] == "one\ntwo\n");
  const auto again = unpack(example(), place / "box");
  REQUIRE_FALSE(again);
  CHECK(again.error().code == ErrorCode::state);
  CHECK(again.error().message.ends_with("box is not empty"));
}

TEST_CASE("record file: what is not sound is refused, with the key", "[attack]") {
  for (const auto& [text, message] : unsound()) {
    INFO(text.substr(0, 200));
    const auto record = parse_record(text);
    REQUIRE_FALSE(record);
    CHECK(record.error().code == ErrorCode::invalid);
    CHECK(record.error().message == message);
    CHECK_FALSE(record.error().next.empty());
  }
  std::string many, deep;
  for (int i = 0; i < 50'000; ++i) many += fmt::format("\"{}\": [], ", i);
  CHECK(parse_record(with(many + "\"a\": []")).error().message == "more than 50000 keys");
  for (int i = 0; i < 30'000; ++i) deep += fmt::format("\"{}/a/b\": [], ", i);
  CHECK(parse_record(with(deep + "\"a\": []")).error().message == "files: more than 50000 directories");
  const std::string path = repeated("a/", 2048);
  CHECK(parse_record(with("\"" + path + "\": []")).error().message ==
        fmt::format("files: {:.100} is no path below a directory", "\"" + path));
}

TEST_CASE("record file: captured records are as they would be written") {
  std::size_t count = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(P2PD_SOURCE_DIR "/tests/machines/captured")) {
    INFO(file.path().string());
    const auto record = read_record(file.path());
    REQUIRE(record);
    CHECK(to_text(*record) == text_of(file.path()));
    CHECK(record->machine["name"] == file.path().stem().string());
    ++count;
  }
  CHECK(count > 0);
}

TEST_CASE("record file: a root is a directory, or a file that is unpacked as long as it is used") {
  const TemporaryDirectory place;
  CHECK(NamedRoot::open(place.path())->directory() == place.path());
  place.put("box.json", to_text(example()));
  fs::path directory;
  {
    const auto root = NamedRoot::open(place / "box.json");
    REQUIRE(root);
    directory = root->directory();
    CHECK(text_of(directory / "proc/cmdline") == "iommu=pt é\n\nquiet\t\x1b\n");
    CHECK((fs::status(directory).permissions() & fs::perms::all) == fs::perms::owner_all);
  }
  CHECK_FALSE(fs::exists(directory));
  place.put("plan.yaml", "name: test\n");
  const auto refused = NamedRoot::open(place / "plan.yaml");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == (place / "plan.yaml").string() + ": not JSON");
  CHECK_FALSE(NamedRoot::open(place / "absent.json")->directory().empty());
}
