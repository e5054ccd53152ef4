// SPDX-License-Identifier: MIT
#include "machine/boot/grub_config.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::minutes kGenerateDeadline{10};  // os-prober mounts every partition
constexpr int kAttempts = 5;                           // another writer of grub.cfg can spoil each

/// Generates grub.cfg as update-grub does: in the language of the system, not of the user who started p2pd.
Result<std::string> generated_config(const Host& host) {
  Command command;
  command.argv = {"grub-mkconfig"};
  command.deadline = kGenerateDeadline;
  const std::string locale = "\n" + TRY(read_if_any(host, "/etc/default/locale"));
  const std::size_t at = locale.find("\nLANG=");
  if (at != std::string::npos) {
    std::string value = locale.substr(at + 6, locale.find('\n', at + 1) - at - 6);
    std::erase(value, '"');
    command.environment = {{"LANG", value}, {"LC_ALL", ""}};
  }
  auto output = host.output_of(command);
  if (!output)
    output.error().next = host.live() ? "Run grub-mkconfig, correct what it complains of, then try again."
                                      : "Bind /dev, /proc and /sys into the image, then try again.";
  return output;
}

/// Checks for an installation of packages: a kernel among them generates grub.cfg, too.
bool installing(const Host& host) {
  const auto locks = package_locks(host);
  return host.live() && locks && *locks && !(*locks)->empty();
}

}  // namespace

Result<std::string> read_if_any(const Host& host, std::string_view path) {
  return host.files().exists(path) ? host.files().read(path) : Result<std::string>(std::string());
}

Result<GrubBoot> read_grub_boot(const Host& host, std::string_view config) {
  GrubBoot boot;
  boot.custom = TRY(split_grub_custom(TRY(read_if_any(host, kGrubCustom))));
  boot.menu = TRY_IN("grub.cfg", parse_grub(config));
  if (boot.menu.reads_custom) boot.menu = TRY_IN(kGrubCustom, parse_grub(boot.custom.user, std::move(boot.menu)));
  const auto environment = parse_grub_environment(TRY(read_if_any(host, kGrubEnvironment)));
  boot.entry = *TRY_IN("grub.cfg", default_grub_entry(boot.menu, environment));
  return boot;
}

Result<void> check_grub_script(const Host& host, std::string_view name, const std::string& content) {
  Command command;
  command.argv = {"grub-script-check"};
  command.input = content;
  auto answer = host.output_of(command);
  if (answer) return {};
  answer.error().next = "Correct that line where it comes from, /boot/grub/custom.cfg or /etc/grub.d, then try again.";
  return Failure(std::move(answer).error().in(std::string(name) + ", which was not put in place"));
}

Result<void> check_grub_generation(const Host& host) {
  if (host.live()) TRY(wait_for_package_locks(host, std::chrono::seconds(0)));
  const std::string text = TRY(generated_config(host));
  return check_grub_script(host, "a new grub.cfg", text);
}

Result<void> renew_grub_config(Host& host, const std::function<Result<bool>(const GrubBoot&)>& wanted) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (host.live()) TRY(wait_for_package_locks(host));
    const FileState before = TRY(host.files().capture(kGrubConfig));
    std::string text = TRY(generated_config(host));
    const GrubBoot boot = TRY_IN("generated", read_grub_boot(host, text));
    if (!TRY(wanted(boot))) return {};
    TRY(check_grub_script(host, "a new grub.cfg", text));
    TRY_IN("a new grub.cfg", check_grub_entry(host, boot.entry));
    TRY(host.will_change(kGrubConfig, Restore::generated));  // slow, so done before the last look
    if (!installing(host) && TRY(host.files().capture(kGrubConfig)) == before)
      return host.write(kGrubConfig, std::move(text), 0444, Restore::generated);
    log::info("{} was written by another program meanwhile: it is generated again", kGrubConfig);
  }
  return fail(ErrorCode::busy,
              std::string(kGrubConfig) + " is written by another program each time that it is generated",
              "Wait until kernels are installed, then try again.");
}

}  // namespace p2pd
