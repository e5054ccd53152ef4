// SPDX-License-Identifier: MIT
#include "machine/catalogue/kernel_table.hpp"

#include <fmt/format.h>

#include "catch.hpp"

using namespace p2pd;
using Kind = KernelOutlook::Kind;

namespace {

std::string table_of(const std::string& releases) {
  return fmt::format(R"({{"schema": "p2pd.kernel-table/1", "kernels": {{}}, "releases": {{{}}}}})", releases);
}

std::string release_of(const std::string& release, const std::string& kernels) {
  return fmt::format(R"("{}": {{"source": "x", "tree": "x", "kernels": {{{}}}}})", release, kernels);
}

const KernelTable& table() {
  static const std::string kOlder =
      release_of("570.86.16", R"("5.4.302": "builds", "6.12.117": "builds with a-rule, b-rule",
      "6.18.5": "fails: x.c:1: error: no", "6.19.1": "fails: y.c:2: error: no")");
  static const std::string kNewer =
      release_of("570.211.01", R"("6.1.170": "builds", "6.1.192": "fails: z.c:3: error: no",
      "6.6.1": "fails: z.c:3: error: no", "6.12.117": "builds")");
  static const KernelTable kTable = parse_kernel_table(table_of(kOlder + "," + kNewer)).value();
  return kTable;
}

KernelOutlook outlook(const Version& release, std::string_view kernel) {
  return kernel_outlook(table(), release, kernel);
}

}  // namespace

TEST_CASE("kernel table: what ships is compiled in") { CHECK(kernel_table()); }

TEST_CASE("kernel table: a kernel that was tried, lies between two, or past what fails") {
  struct Row {
    const char* kernel;
    Kind kind;
    const char* reason;
  };
  const Version release{570, 86, 16};
  for (const Row& row :
       {Row{"5.4.0-216-generic", Kind::builds, ""},
        {"6.12.117+deb13-amd64", Kind::builds, ""},
        {"6.8.0-60-generic", Kind::builds, ""},
        {"4.19.0", Kind::builds, ""},  // older than all that were tried: kernel_min is the limit
        {"6.14.0-27-generic", Kind::untried, "it builds for Linux 6.12.117; no test build for 6.14.0-27-generic"},
        {"6.18.0-rc1", Kind::fails, "it does not build for Linux 6.18.5: x.c:1: error: no"},
        {"7.0.0-31-generic", Kind::fails, "it does not build for Linux 6.19.1: y.c:2: error: no"},
        {"custom", Kind::untried, "no test build for custom"}}) {
    INFO(row.kernel);
    const KernelOutlook found = outlook(release, row.kernel);
    CHECK(found.kind == row.kind);
    CHECK(found.reason == row.reason);
  }
}

TEST_CASE("kernel table: of a line of kernels, the nearest that is not newer counts") {
  const Version release{570, 211, 1};
  CHECK(outlook(release, "6.1.0-37-amd64").kind == Kind::builds);
  CHECK(outlook(release, "6.1.180").kind == Kind::builds);
  CHECK(outlook(release, "6.1.192-1").kind == Kind::fails);
  CHECK(outlook(release, "6.1.200").kind == Kind::fails);
  CHECK(outlook(release, "6.2.0").kind == Kind::fails);   // the last of 6.1 did not build
  CHECK(outlook(release, "6.11.0").kind == Kind::fails);  // nor did 6.6
  CHECK(outlook(release, "6.12.5").kind == Kind::builds);
  CHECK(outlook(release, "6.13.0").reason == "it builds for Linux 6.12.117; no test build for 6.13.0");
}

TEST_CASE("kernel table: a release that nobody built is judged by the nearest older of its branch, else by a newer") {
  CHECK(outlook({570, 153, 2}, "6.18.1").kind == Kind::untried);  // it may support more kernels
  CHECK(outlook({570, 153, 2}, "6.18.1").reason == "no test build for 6.18.1; 570.86.16, which is older, fails");
  CHECK(outlook({570, 10}, "6.18.1").kind == Kind::fails);
  CHECK(outlook({570, 100}, "6.12.118").reason ==
        "570.86.16 builds for Linux 6.12.117 with compat headers; no test build for 6.12.118");
  CHECK(kernel_outlook(table(), {570, 100}, "6.12.118", {"a-rule"}).kind == Kind::untried);
  CHECK(kernel_outlook(table(), {570, 100}, "6.12.118", {"b-rule", "a-rule"}).kind == Kind::builds);
  CHECK(outlook({570, 300}, "6.12.1").kind == Kind::builds);
  CHECK(outlook({570, 300}, "6.14.0").reason ==
        "it builds for Linux 6.12.117 (570.211.01 does); no test build for 6.14.0");
  CHECK(outlook({570, 10}, "5.4.0").kind == Kind::builds);
  CHECK(outlook({565, 77}, "6.18.1").reason ==
        "570.86.16 is newer, and it does not build for Linux 6.18.5: x.c:1: error: no");
  CHECK(outlook({580, 1}, "6.18.1").kind == Kind::untried);
  for (const Version& other : {Version{565, 77}, Version{580, 1}}) {
    CHECK(outlook(other, "6.12.1").kind == Kind::untried);
    CHECK(outlook(other, "6.12.1").reason == "no test build for 6.12.1");
  }
}

TEST_CASE("kernel table: the failure of a newer branch is no word on a later release of an older one") {
  const KernelTable both =
      parse_kernel_table(table_of(release_of("580.142", R"("6.12.117": "builds")") + "," +
                                  release_of("590.48.01", R"("7.2.13": "fails: x.c:1: error: no")")))
          .value();
  CHECK(kernel_outlook(both, {580, 178, 4}, "7.2.13").kind == Kind::untried);
  CHECK(kernel_outlook(both, {575, 64}, "7.2.13").kind == Kind::fails);
}

TEST_CASE("kernel table: the first kernel that a release does not build for") {
  CHECK(fails_from(table(), {570, 86, 16}) == Version{6, 18});
  CHECK(fails_from(table(), {570, 211, 1}).empty());  // the newest that was tried builds
  CHECK(fails_from(table(), {565, 77}).empty());
}

TEST_CASE("kernel table: rules without which it does not build") {
  const KernelTrial& trial = table().at({570, 86, 16})[1];
  CHECK(trial.kernel == "6.12.117");
  CHECK(trial.rules == std::vector<std::string>{"a-rule", "b-rule"});
}

TEST_CASE("kernel table: the line of a kernel") {
  CHECK(mainline_of("6.14.0-27-generic") == Version{6, 14});
  CHECK(mainline_of("7.0-rc1") == Version{7, 0});
  for (const char* other : {"", "custom", "6", "x.1"}) CHECK(mainline_of(other).empty());
}

TEST_CASE("kernel table: a bad one names what is wrong") {
  const std::string good = release_of("570.1", R"("6.1.1": "builds")");
  REQUIRE(parse_kernel_table(table_of(good)));
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"),
        std::string(R"({"schema": "p2pd.kernel-table/2", "kernels": {}, "releases": {}})"), table_of("\"x\": 1"),
        table_of(release_of("570", "")), table_of(release_of("570.1", R"("six": "builds")")),
        table_of(release_of("570.1", R"("6.1.1": 1)")), table_of(release_of("570.1", R"("6.1.1": "works")")),
        table_of(release_of("570.1", R"("6.1.1": "fails: ")")), table_of(R"("570.1": {"source": "x", "kernels": {}})"),
        table_of(R"("570.1": {"source": "x", "tree": "x", "kernels": {}, "more": 1})")}) {
    INFO(text);
    const auto parsed = parse_kernel_table(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message.starts_with("kernel-table.yaml: "));
  }
}
