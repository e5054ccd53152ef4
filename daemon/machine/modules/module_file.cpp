// SPDX-License-Identifier: MIT
// Compares builds of modules. Format: elf(5), "Notes"; ld(1), --build-id. `ld -r` keeps the notes of the objects that
// it links, and its own may follow them: all of them together are the build id.
#include "machine/modules/module_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/descriptor.hpp"
#include "base/sha256.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kNotesLimit = 4096;  // bytes; a note of SHA-1 has 36
constexpr std::size_t kShownDigits = 12;
constexpr std::string_view kOwner{"GNU\0", 4};

}  // namespace

bool ModuleIdentity::is(const ModuleIdentity& other) const {
  if (by_build_id(other)) return build_id == other.build_id;
  return !srcversion.empty() && srcversion == other.srcversion;
}

std::string ModuleIdentity::text(const ModuleIdentity& other) const {
  if (!by_build_id(other)) return "srcversion " + srcversion;
  return fmt::format("build id {}{}", build_id.substr(0, kShownDigits), build_id.size() > kShownDigits ? "..." : "");
}

std::string not_installed_text(std::string_view name, const ModuleIdentity& loaded, const ModuleIdentity& installed) {
  return fmt::format("the loaded {} module is not the file that is installed: {} is loaded, {} is installed", name,
                     loaded.text(installed), installed.text(loaded));
}

nlohmann::json to_json(const ModuleIdentity& identity) {
  nlohmann::json json = {{"srcversion", identity.srcversion}};
  if (!identity.build_id.empty()) json["build_id"] = identity.build_id;
  return json;
}

std::string parse_build_id(std::string_view bytes) {
  bytes = bytes.substr(0, kNotesLimit);
  std::string id;
  Elf64_Nhdr note;
  while (bytes.size() >= sizeof note) {
    std::memcpy(&note, bytes.data(), sizeof note);
    bytes.remove_prefix(sizeof note);
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != kOwner.size() || !bytes.starts_with(kOwner)) break;
    bytes.remove_prefix(kOwner.size());
    if (note.n_descsz > bytes.size()) break;
    id += hex_of(bytes.substr(0, note.n_descsz));
    constexpr std::size_t kAlignment = 4;
    bytes.remove_prefix(std::min((note.n_descsz + kAlignment - 1) / kAlignment * kAlignment, bytes.size()));
  }
  return id;
}

namespace {

constexpr std::uint64_t kSectionLimit = 1U << 20;  // bytes; .modinfo of nvidia.ko has 10 KB
constexpr std::string_view kModulePlaces[] = {"/updates/p2pd", "/updates/dkms",         "/updates",
                                              "/extra",        "/kernel/drivers/video", "/kernel/drivers/char/drm"};
constexpr std::pair<std::string_view, const char*> kPackers[] = {{".zst", "zstd"}, {".xz", "xz"}, {".gz", "gzip"}};

/// Module name, "nvidia_current" of ".../nvidia-current.ko.zst"; empty if it is no module.
std::string name_of(std::string_view file) {
  file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
  const std::size_t end = file.find(".ko");
  if (end == std::string_view::npos || (file.size() > end + 3 && file[end + 3] != '.')) return {};
  return kernel_name(file.substr(0, end));
}

/// Reads `count` bytes from offset `at`.
Result<void> read_at(const Descriptor& file, std::uint64_t at, void* to, std::size_t count) {
  if (at > std::uint64_t{1} << 40) return fail(ErrorCode::invalid, "not a kernel module");
  for (std::size_t have = 0; have < count;) {
    const ssize_t got = ::pread(file.get(), static_cast<char*>(to) + have, count - have, static_cast<off_t>(at + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read");
    if (got == 0) return fail(ErrorCode::invalid, "the file is truncated");
    have += static_cast<std::size_t>(got);
  }
  return {};
}

Result<Descriptor> open_module(const Host& host, std::string_view file) {
  const std::string name = TRY(host.files().real_path(file)).string();
  if (!S_ISREG(TRY(host.files().stat(file)).st_mode))
    return fail(ErrorCode::invalid, std::string(file) + " is not a regular file");
  Descriptor handle(::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!handle) return fail_errno(file);
  return handle;
}

Result<std::string> content_of(const Descriptor& file, const Elf64_Shdr& section) {
  if (section.sh_size > kSectionLimit) return fail(ErrorCode::invalid, "not a kernel module");
  std::string bytes(section.sh_size, '\0');
  TRY(read_at(file, section.sh_offset, bytes.data(), bytes.size()));
  return bytes;
}

/// The bytes of a section of a 64-bit ELF file.
Result<std::string> section_of(const Descriptor& file, std::string_view wanted, Elf64_Word type) {
  Elf64_Ehdr header{};
  TRY(read_at(file, 0, &header, sizeof header));
  if (!std::equal(header.e_ident, header.e_ident + SELFMAG, ELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64)
    return fail(ErrorCode::invalid, "not a 64-bit ELF file");
  Elf64_Shdr first{};  // contains values that are too large for the header
  TRY(read_at(file, header.e_shoff, &first, sizeof first));
  const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
  const std::uint64_t names_at = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
  if (count > kSectionLimit / sizeof first || names_at >= count)
    return fail(ErrorCode::invalid, "sections out of range");
  std::vector<Elf64_Shdr> table(count);
  TRY(read_at(file, header.e_shoff, table.data(), count * sizeof first));
  const std::string names = TRY(content_of(file, table[names_at]));
  for (const Elf64_Shdr& section : table)
    if (section.sh_name < names.size() && section.sh_type == type && names.c_str() + section.sh_name == wanted)
      return content_of(file, section);
  return fail(ErrorCode::invalid, fmt::format("no section {}", wanted));
}

Result<std::string> notes_of(const Host& host, const std::string& file) {
  const Descriptor handle = TRY(open_module(host, file));
  return section_of(handle, ".note.gnu.build-id", SHT_NOTE);
}

/// Reads the start of a compressed module's content, since only that is kept. The notes are there: ld puts them after
/// the header.
Result<std::string> packed_build_id(const Host& host, const char* packer, const std::string& file) {
  const std::string bytes = TRY(host.output_of({{packer, "-dcq", file}}));
  if (!bytes.starts_with(ELFMAG) || bytes.size() < sizeof(Elf64_Ehdr)) return std::string();
  return parse_build_id(std::string_view(bytes).substr(sizeof(Elf64_Ehdr)));
}

void add_copies(const Host& host, const std::string& directory, std::string_view name, std::vector<std::string>& out) {
  for (const std::string& file : host.names(directory)) {
    const std::string path = directory + "/" + file;
    if (name_of(file) == name && std::ranges::find(out, path) == out.end()) out.push_back(path);
  }
}

}  // namespace

std::string module_directory(std::string_view release) { return "/lib/modules/" + std::string(release); }

std::string place_of(std::string_view release, std::string_view place) {
  return fmt::format("{}/{}", module_directory(release), place);
}

Result<std::map<std::string, std::string>> modules_by_name(const Host& host, std::string_view release) {
  const std::string directory = module_directory(release);
  std::istringstream text(TRY(host.files().read(directory + "/modules.dep")));
  std::map<std::string, std::string> out;
  for (std::string line; std::getline(text, line);) {
    const std::string file = line.substr(0, line.find(':'));
    const std::string name = name_of(file);
    if (!name.empty()) out.emplace(name, file.starts_with('/') ? file : directory + "/" + file);
  }
  return out;
}

Result<std::string> installed_name(const Host& host, std::string_view name) {
  const auto line = TRY(install_line(host, name));
  if (!line) return kernel_name(name);
  std::istringstream words(line->rest);
  std::string program, option, target;
  words >> program >> option >> target;
  if ((program != "modprobe" && !program.ends_with("/modprobe")) || (option != "-i" && option != "--ignore-install") ||
      target.empty())
    return fail(ErrorCode::invalid,
                fmt::format("{}: for {}, modprobe runs a command instead: {}", line->source(), name, line->rest));
  return kernel_name(target);
}

std::string renamed(std::string_view module, std::string_view nvidia) {
  return std::string(nvidia) + kernel_name(module.substr(std::string_view("nvidia").size()));
}

std::vector<std::string> module_copies(const Host& host, std::string_view release, std::string_view name) {
  const std::string directory = module_directory(release);
  std::vector<std::string> out;
  const auto listed = modules_by_name(host, release);
  if (listed && listed->contains(std::string(name))) out.push_back(listed->at(std::string(name)));
  for (const std::string_view place : kModulePlaces) add_copies(host, directory + std::string(place), name, out);
  // Ubuntu's signed modules are in kernel/nvidia-570-open
  for (const std::string& below : host.names(directory + "/kernel"))
    if (below.starts_with("nvidia")) add_copies(host, directory + "/kernel/" + below, name, out);
  return out;
}

std::vector<std::string> depmod_files(std::string_view release) {
  std::vector<std::string> out;
  for (const char* name : {"dep", "dep.bin", "alias", "alias.bin", "symbols", "symbols.bin", "softdep", "weakdep",
                           "devname", "builtin.bin", "builtin.alias.bin"})
    out.push_back(fmt::format("{}/modules.{}", module_directory(release), name));
  return out;
}

namespace {

/// Checks that modules.dep is missing, lists a missing driver module or one of updates/, or lists no driver module
/// although one exists. Headers can be configured before their kernel: then undo restores a state without modules.dep.
bool depmod_due(const Host& host, std::string_view release) {
  const auto listed = modules_by_name(host, release);
  if (!listed)
    return listed.error().code == ErrorCode::not_found && host.files().exists(place_of(release, "modules.order"));
  const std::string updates =
      place_of(release, "updates/");  // includes modules of p2pd and of packages, under any names
  for (const auto& [name, file] : *listed)
    if (file.starts_with(updates) && !host.files().exists(file)) return true;
  return std::ranges::any_of(kModuleNames, [&](std::string_view module) {
    const std::string name = kernel_name(module);
    const auto found = listed->find(name);
    return found == listed->end() ? !module_copies(host, release, name).empty() : !host.files().exists(found->second);
  });
}

}  // namespace

Result<void> run_due_depmods(Host& host) {
  for (const std::string& release : host.names("/lib/modules"))
    if (depmod_due(host, release)) TRY(host.run({.argv = {"depmod", release}, .deadline = std::chrono::minutes(10)}));
  return {};
}

Result<std::map<std::string, std::string>> module_info(const Host& host, std::string_view file) {
  const Descriptor handle = TRY(open_module(host, file));
  std::istringstream section(TRY_IN(file, section_of(handle, ".modinfo", SHT_PROGBITS)));
  std::map<std::string, std::string> out;
  for (std::string entry; std::getline(section, entry, '\0');) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

std::string module_build_id(const Host& host, const std::string& file) {
  if (const auto notes = notes_of(host, file)) return parse_build_id(*notes);
  for (const auto& [suffix, packer] : kPackers)
    if (file.ends_with(suffix) && host.has_program(packer))
      return host
          .once<std::string>("build id of " + file,
                             [&, packer = packer] { return packed_build_id(host, packer, file); })
          .value_or("");
  return "";
}

Result<std::vector<ModuleIdentity>> module_identities(const Host& host, const std::vector<std::string>& files) {
  std::vector<ModuleIdentity> out(files.size());
  std::vector<std::size_t> asked;
  Command modinfo{{"modinfo", "-F", "srcversion"}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    out[i].build_id = module_build_id(host, files[i]);
    const auto info = module_info(host, files[i]);
    if (!info && !files[i].ends_with(".ko")) {  // compressed, unlike the stand-ins of machine records
      modinfo.argv.push_back(files[i]);
      asked.push_back(i);
      continue;
    }
    if (!info) return Failure(info.error());
    const auto found = info->find("srcversion");
    if (found == info->end()) return fail(ErrorCode::invalid, files[i] + " has no srcversion");
    out[i].srcversion = found->second;
  }
  if (asked.empty()) return out;
  std::istringstream answers(TRY(host.output_of(modinfo)));
  for (const std::size_t i : asked)
    if (!std::getline(answers, out[i].srcversion) || out[i].srcversion.empty())
      return fail(ErrorCode::invalid, modinfo.text() + ": not one line a file");
  return out;
}

}  // namespace p2pd
