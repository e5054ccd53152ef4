// SPDX-License-Identifier: MIT
#include "record/record_kernels.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "machine/boot/kernel_log.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/toolchain.hpp"
#include "record/record_excerpt.hpp"
#include "record/record_files.hpp"
#include "record/redact.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kLogLimit = 16U << 20;  // bytes; a kernel keeps up to 16 MiB
constexpr std::string_view kModuleKeys[] = {"depends", "license", "name", "srcversion", "vermagic", "version"};

template <class T>
std::string bytes_of(const T& object) {
  const char* const at = reinterpret_cast<const char*>(&object);
  return {at, at + sizeof object};
}

/// ELF note of a hexadecimal build id; empty if that is empty.
std::string build_id_note(const std::string& id) {
  if (id.empty()) return "";
  std::string note =
      bytes_of(Elf64_Nhdr{4, static_cast<Elf64_Word>(id.size() / 2), NT_GNU_BUILD_ID}) + std::string("GNU\0", 4);
  for (std::size_t at = 0; at < id.size(); at += 2) note += static_cast<char>(std::stoi(id.substr(at, 2), nullptr, 16));
  return note;
}

/// Makes a 64-bit ELF file with the sections .modinfo, .shstrtab and .note.gnu.build-id.
std::string module_stand_in(const std::map<std::string, std::string>& info, const std::string& note) {
  std::string modinfo;
  for (const std::string_view key : kModuleKeys)
    if (const auto found = info.find(std::string(key)); found != info.end())
      modinfo += fmt::format("{}={}", key, found->second) + '\0';
  constexpr std::string_view kSectionNames{"\0.modinfo\0.shstrtab\0.note.gnu.build-id\0", 39};
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shstrndx = 2;
  std::array<Elf64_Shdr, 4> sections{};
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = modinfo.size();
  sections[2].sh_name = 10;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = sizeof header + modinfo.size();
  sections[2].sh_size = kSectionNames.size();
  sections[3].sh_name = 20;
  sections[3].sh_type = SHT_NOTE;
  sections[3].sh_offset = sections[2].sh_offset + kSectionNames.size();
  sections[3].sh_size = note.size();
  header.e_shoff = (sections[3].sh_offset + note.size() + 7) / 8 * 8;
  std::string file = bytes_of(header) + modinfo + std::string(kSectionNames) + note;
  file.resize(header.e_shoff, '\0');
  for (const Elf64_Shdr& section : sections) file += bytes_of(section);
  return file;
}

/// Parses the output of `modinfo`, "version:        570.86.16".
std::map<std::string, std::string> parse_modinfo(const std::string& text) {
  std::map<std::string, std::string> info;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t value = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    info.emplace(line.substr(0, colon), line.substr(value));
  }
  return info;
}

Result<std::map<std::string, std::string>> info_of(const Host& host, const std::string& file) {
  auto info = module_info(host, file);
  if (info || file.ends_with(".ko")) return info;
  return parse_modinfo(TRY(host.output_of({{"modinfo", file}})));
}

/// Keeps lines of a header with the pattern of a compat rule.
std::string header_excerpt(const std::string& text, const std::string& header, const Catalogue& all) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool wanted = std::ranges::any_of(all.compat_rules, [&](const auto& rule) {
      return rule.second.header == header && line.find(rule.second.pattern) != std::string::npos;
    });
    if (wanted) out += line + "\n";
  }
  return out;
}

void record_headers_of(const Host& host, RecordTarget& target, const BuildTarget& kernel, const Catalogue& all) {
  // headers built by hand may be in a home directory: the record has them where distributions put them
  const std::string place = "/usr/src/linux-headers-" + kernel.release;
  if (host.files().exists(kernel.build())) {
    target.directory(place);
    target.link(kernel.build(), place);
  }
  if (host.files().exists(kernel.build() + "/Makefile")) target.stand_in(place + "/Makefile");
  const auto config = host.files().read(kernel.build() + "/.config");
  if (config) target.file(place + "/.config", config_excerpt(*config));
  for (const auto& [name, rule] : all.compat_rules) {
    const auto text = kernel_header(host, kernel, rule.header);
    const std::string copy = host.files().exists(kernel.build()) ? place : "/lib/modules/" + kernel.release + "/source";
    if (text)
      target.file(copy + "/" + rule.header, header_excerpt(*text, rule.header, all));
    else if (!rule.replaces() || text.error().code != ErrorCode::not_found)
      target.leave_out(kernel.build() + "/" + rule.header, text.error());
  }
}

/// Header of a record, without the host's name in a text log: "Nov 21 19:58:21 box kernel: [    0.1] ".
std::string public_head(std::string head) {
  const std::size_t kernel = head.find(" kernel: ");
  if (kernel == std::string::npos) return head;
  const std::size_t host = head.rfind(' ', kernel - 1) + 1;  // npos + 1 is 0
  return head.replace(host, kernel - host, "host");
}

}  // namespace

void record_module_files(const Host& host, RecordTarget& target) {
  for (const std::string_view pattern : record_modules()) {
    for (const std::string& file : record_paths(host.files(), pattern)) {
      const auto info = info_of(host, file);
      if (!info) target.leave_out(file, info.error());
      target.file(file, info ? module_stand_in(*info, build_id_note(module_build_id(host, file))) : "");
    }
  }
}

void record_headers(const Host& host, RecordTarget& target) {
  const auto kernels = build_targets(host);
  const auto all = catalogue(host);
  if (!kernels || !all) return;  // no kernel is known, or a drop-in is broken: the record shows it as the host does
  for (const BuildTarget& kernel : *kernels) record_headers_of(host, target, kernel, *all);
}

void record_kernel_log(const Host& host, RecordTarget& target) {
  const auto log = kernel_log(host);
  if (!log) {
    target.leave_out("/dev/kmsg", log.error());
    return;
  }
  std::string text;
  for (const KernelRecord& record : log->records)
    text += public_head(record.head) + public_kernel_message(record.text) + "\n";
  if (text.size() <= kLogLimit)
    target.file(log->source, text);
  else
    target.leave_out(log->source, Error{ErrorCode::invalid, "larger than the limit of a record", {}});
}

}  // namespace p2pd
