// SPDX-License-Identifier: MIT
#include "base/root.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <set>

#include "base/checkpoint.hpp"
#include "base/inode.hpp"

namespace p2pd {
namespace {

/// Name beside `name` for an incomplete file. Always the same, so that a retry replaces what a kill left.
std::string temporary(const std::string& name) { return "." + name + ".p2pd-new"; }

/// Removes doubled and trailing slashes and "." from `path`; keeps "..", because only the kernel can resolve it.
Result<std::string> clean(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return fail(ErrorCode::invalid, "a path contains a NUL byte");
  if (!path.starts_with('/')) return fail(ErrorCode::invalid, "'" + std::string(path) + "' is not an absolute path");
  std::string cleaned;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    if (!name.empty() && name != ".") cleaned.append("/").append(name);
    path.remove_prefix(std::min(name.size() + 1, path.size()));
  }
  return cleaned.empty() ? "/" : cleaned;
}

std::string directory_of(const std::string& cleaned) {
  return cleaned.substr(0, std::max<std::size_t>(cleaned.rfind('/'), 1));
}
std::string last_name(const std::string& cleaned) { return cleaned.substr(cleaned.rfind('/') + 1); }

Result<Descriptor> open_inside(int root, const std::string& path, std::uint64_t flags) {
  constexpr int kOpenAttempts = 100;  // EAGAIN: a directory was renamed while ".." was resolved
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 1;; ++attempt) {
    long fd = ::syscall(__NR_openat2, root, path.c_str(), &how, sizeof how);
    if (fd < 0 && errno == ENOSYS)
      fd = ::openat(root, path.c_str(), static_cast<int>(how.flags));  // "/": see Root::open
    if (fd >= 0) return Descriptor(static_cast<int>(fd));
    if ((errno == EAGAIN || errno == EINTR) && attempt < kOpenAttempts) continue;
    return fail_errno(path);
  }
}

Result<Descriptor> file_in_memory(const std::string& content) {
  Descriptor file(::memfd_create("p2pd", MFD_CLOEXEC));
  if (!file || ::write(file.get(), content.data(), content.size()) != std::ssize(content))
    return fail_errno("a file in memory");
  return file;
}

/// Checks for a kernel file system: tools that build an image mount it there, too.
Result<bool> is_of_kernel(const Descriptor& handle, std::string_view path) {
  struct statfs info {};
  if (::fstatfs(handle.get(), &info) != 0) return fail_errno(std::string(path));
  constexpr std::array<unsigned long, 3> kPseudoFileSystems{PROC_SUPER_MAGIC, SYSFS_MAGIC, EFIVARFS_MAGIC};
  return std::ranges::find(kPseudoFileSystems, static_cast<unsigned long>(info.f_type)) != kPseudoFileSystems.end();
}

}  // namespace

std::string_view to_string(FileState::Kind kind) {
  constexpr std::string_view kNames[] = {"absent", "regular", "symlink", "directory"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<std::string_view> choice_in_force(std::string_view content) {
  const std::size_t begin = content.find('['), end = content.find(']', begin);
  if (begin == content.npos || end == content.npos || end == begin + 1) return std::nullopt;
  return content.substr(begin + 1, end - begin - 1);
}

std::string_view attribute_value(std::string_view content) {
  return choice_in_force(content).value_or(content.substr(0, content.size() - (content.ends_with('\n') ? 1 : 0)));
}

Result<Root> Root::open(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::path resolved = std::filesystem::canonical(directory, error);
  if (error) return fail_errno("root directory " + directory.string(), error.value());
  auto fd = std::make_shared<Descriptor>(::open(resolved.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!*fd) return fail_errno("root directory " + directory.string());
  if (resolved != "/" && ::syscall(__NR_openat2, -1, nullptr, nullptr, 0) < 0 && errno == ENOSYS)
    return fail(ErrorCode::io,
                "this kernel has no openat2(2), without which paths cannot be kept inside a root directory",
                "Use --root on Linux 5.6 or newer.");
  return Root(std::move(resolved), std::move(fd));
}

Result<Descriptor> RootReader::open_at(std::string_view path, std::uint64_t flags) const {
  const std::string cleaned = TRY(clean(path));
  if (const auto to_come = pending_.find(cleaned); to_come != pending_.end())
    return to_come->second ? file_in_memory(*to_come->second) : fail_errno(path, ENOENT);
  Descriptor found = TRY(open_inside(fd_->get(), cleaned, flags));
  if (!live() && TRY(is_of_kernel(found, path)))
    return fail(ErrorCode::not_found, std::string(path) + " is of the kernel that runs, not of " + directory_.string());
  return found;
}

Result<std::string> RootReader::read(std::string_view path, std::size_t limit) const {
  return read_regular(TRY(open_at(path, O_PATH)), std::string(path), limit);
}

bool RootReader::exists(std::string_view path) const { return open_at(path, O_PATH).has_value(); }

Result<struct stat> RootReader::stat(std::string_view path) const {
  return status_of(TRY(open_at(path, O_PATH)), std::string(path));
}

Result<std::uint64_t> RootReader::free_bytes(std::string_view path) const {
  struct statvfs info {};
  if (::fstatvfs(TRY(open_at(path, O_PATH)).get(), &info) != 0) return fail_errno(path);
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

Result<std::vector<std::string>> RootReader::list_now(std::string_view path) const {
  const Descriptor directory = TRY(open_at(path, O_RDONLY | O_DIRECTORY));
  const int copy = ::fcntl(directory.get(), F_DUPFD_CLOEXEC, 0);  // fdopendir takes ownership
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (!stream) return fail_errno(path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return fail_errno(path);
  return names;
}

Result<std::vector<std::string>> RootReader::list(std::string_view path) const {
  Result<std::vector<std::string>> names = list_now(path);
  for (const auto& [file, content] : pending_) {
    if (directory_of(file) != path) continue;
    if (!names && content) names.emplace();  // its directory comes with it
    if (!names) continue;
    std::erase(*names, last_name(file));
    if (content) names->push_back(last_name(file));
  }
  if (names) std::ranges::sort(*names);
  return names;
}

Result<std::string> RootReader::read_link(std::string_view path) const {
  const Descriptor handle = TRY(open_at(path, O_PATH | O_NOFOLLOW));
  if (!S_ISLNK(TRY(status_of(handle, std::string(path))).st_mode))
    return fail(ErrorCode::invalid, std::string(path) + " is not a symbolic link");
  return read_target(handle, std::string(path));
}

Result<FileState> RootReader::capture(std::string_view path_given) const {
  const std::string path = TRY(clean(path_given));
  Result<Descriptor> handle = open_at(path, O_PATH | O_NOFOLLOW);
  if (!handle && handle.error().code == ErrorCode::not_found) return FileState{};
  if (!handle) return Failure(std::move(handle).error());
  const struct stat info = TRY(status_of(*handle, path));
  FileState state;
  state.mode = info.st_mode & 07777U;
  state.uid = info.st_uid;
  state.gid = info.st_gid;
  if (S_ISREG(info.st_mode)) {
    state.kind = FileState::Kind::regular;
    state.content = TRY(read_regular(*handle, path, kReadLimit));
  } else if (S_ISLNK(info.st_mode)) {
    state.kind = FileState::Kind::symlink;
    state.content = TRY(read_target(*handle, path));
  } else if (S_ISDIR(info.st_mode)) {
    state.kind = FileState::Kind::directory;
  } else {
    return fail(ErrorCode::invalid, path + " is " + std::string(kind_name(info.st_mode)) + ", which cannot be kept");
  }
  state.xattrs = TRY(xattrs_of(*handle, path));
  return state;
}

Result<std::filesystem::path> RootReader::real_path(std::string_view path) const {
  const Descriptor handle = TRY(open_at(path, O_PATH));
  std::array<char, PATH_MAX> name;
  const ssize_t size = ::readlink(handle_name(handle).c_str(), name.data(), name.size());
  if (size < 0) return fail_errno(path);
  return std::filesystem::path(std::string(name.data(), static_cast<std::size_t>(size)));
}

Result<Descriptor> Root::open_parent(const std::string& path, bool create) {
  const std::string name = last_name(path);
  if (name.empty() || name == "..") return fail(ErrorCode::invalid, "'" + path + "' does not name a file to change");
  const std::string above = directory_of(path);
  Result<Descriptor> parent = open_at(above, O_RDONLY | O_DIRECTORY);
  if (parent || !create || parent.error().code != ErrorCode::not_found) return parent;
  TRY(put(above, {FileState::Kind::directory, {}, 0755, ::geteuid(), ::getegid(), {}}));
  return open_at(above, O_RDONLY | O_DIRECTORY);
}

Result<void> Root::put(std::string_view path_given, const FileState& state) {
  const std::string path = TRY(clean(path_given));
  if (state.kind == FileState::Kind::absent) return remove(path);
  const Descriptor parent = TRY(open_parent(path, true));
  const std::string name = last_name(path);
  if (state.kind == FileState::Kind::directory && TRY(dress_directory(parent, name, path, state))) return {};
  const std::string beside = temporary(name);
  Result<void> made = make_inode(parent, beside, path, state);
  if (made && ::renameat(parent.get(), beside.c_str(), parent.get(), name.c_str()) != 0)
    made = fail_errno(path + ": replace");
  if (!made) {
    (void)unlink_name(parent, beside, path);  // the first error is the one to return
    return made;
  }
  return sync_file(parent.get(), path + ": directory");
}

Result<void> Root::write_attribute(std::string_view path, std::string_view value) {
  const Descriptor file = TRY(open_at(path, O_WRONLY | O_TRUNC));
  const ssize_t count = ::write(file.get(), value.data(), value.size());  // a second write would be another value
  if (count < 0) return fail_errno(fmt::format("{}: write of \"{}\"", path, value));
  if (static_cast<std::size_t>(count) != value.size())
    return fail(ErrorCode::io, fmt::format("{} took a part of \"{}\"", path, value));
  return {};
}

Result<void> Root::remove(std::string_view path_given) {
  const std::string path = TRY(clean(path_given));
  const Result<Descriptor> parent = open_parent(path, false);
  if (!parent && parent.error().code == ErrorCode::not_found) return {};
  if (!parent) return Failure(parent.error());
  TRY(unlink_name(*parent, temporary(last_name(path)), path));
  TRY(unlink_name(*parent, last_name(path), path));
  return sync_file(parent->get(), path + ": directory");
}

Result<void> Root::settle(std::string_view path_given) {
  const std::string path = TRY(clean(path_given));
  const Result<Descriptor> parent = open_parent(path, false);
  if (!parent && parent.error().code == ErrorCode::not_found) return {};
  if (!parent) return Failure(parent.error());
  TRY(unlink_name(*parent, temporary(last_name(path)), path));
  return sync_file(parent->get(), path + ": directory");
}

Result<void> Root::remove_tree(std::string_view path_given) {
  const std::string path = TRY(clean(path_given));
  const Result<Descriptor> parent = open_parent(path, false);
  if (!parent && parent.error().code == ErrorCode::not_found) return {};
  if (!parent) return Failure(parent.error());
  std::error_code error;
  std::filesystem::remove_all(handle_name(*parent) + "/" + last_name(path), error);  // follows no symlink
  if (error) return fail_errno(path + ": remove", error.value());
  return sync_file(parent->get(), path + ": directory");
}

Result<void> Root::move(std::string_view from_given, std::string_view to_given) {
  const std::string from = TRY(clean(from_given)), to = TRY(clean(to_given));
  const Descriptor source = TRY(open_parent(from, false)), target = TRY(open_parent(to, true));
  if (::syncfs(source.get()) != 0) return fail_errno(from + ": sync");
  if (::renameat(source.get(), last_name(from).c_str(), target.get(), last_name(to).c_str()) != 0)
    return fail_errno(from + ": rename to " + to);
  TRY(sync_file(source.get(), from + ": directory"));
  return sync_file(target.get(), to + ": directory");
}

Result<std::vector<std::string>> RootReader::missing_parents(std::string_view path) const {
  std::vector<std::string> missing;
  std::string above = directory_of(TRY(clean(path)));
  for (; above != "/" && !exists(above); above = directory_of(above)) {
    if (last_name(above) == "..")
      return fail(ErrorCode::invalid, "'" + std::string(path) + "' leads through what does not exist");
    missing.push_back(above);
  }
  std::reverse(missing.begin(), missing.end());
  return missing;
}

Result<void> RootReader::make_durable() const {
  std::set<dev_t> done;
  for (const std::string_view folder : {"/", "/boot", "/boot/efi", "/efi", "/etc", "/usr", "/var"}) {
    const auto fd = open_at(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // a system partition that systemd cannot mount holds nothing new
    if (!fd && (fd.error().code == ErrorCode::not_found || folder.ends_with("/efi"))) continue;
    if (!fd) return Failure(fd.error());
    struct stat info {};
    if (::fstat(fd->get(), &info) != 0) return fail_errno(std::string(folder) + ": stat");
    if (done.insert(info.st_dev).second && ::syncfs(fd->get()) != 0) return fail_errno(std::string(folder) + ": sync");
  }
  return {};
}

Result<void> RootReader::checkpoint(std::string_view directory) const {
  const Descriptor fd = TRY(open_at(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (live()) return checkpoint_file_system(fd, directory);
  return ::syncfs(fd.get()) == 0
             ? Result<void>()
             : fail_errno(std::string(directory) + ": sync");  // an image is unmounted before it boots
}

}  // namespace p2pd
