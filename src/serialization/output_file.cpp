#include "serialization/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exportguard/common/errors.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestWrite = std::size_t{1} << 30;  // Linux writes at most 2 GiB at a time
constexpr int kMostLinks = 40;                               // as Linux follows
constexpr std::string_view kPrefix = ".exportguard-";

std::string_view remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space or choose another folder";
    case ENOENT:
      return "; create the folder first";
    case EACCES:
    case EROFS:
      return "; choose a folder that you may write to";
    case ENAMETOOLONG:
      return "; choose a shorter name";
    default:
      return "";
  }
}

[[noreturn]] void fail(const fs::path& path, int error) {
  throw FileError(fmt::format("cannot write '{}': {}{}", path.string(), std::strerror(error), remedy(error)));
}

[[noreturn]] void refuse(const fs::path& path, std::string_view what) {
  throw FileError(
      fmt::format("cannot write '{}': it is {}, and only files are replaced; pass another name", path.string(), what));
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) throw FileError(fmt::format("the system has no random numbers: {}", std::strerror(errno)));
  }
  return number;
}

// Short, whatever the length of the final name.
fs::path temporary_beside(const fs::path& path) {
  return path.parent_path() / fmt::format("{}{:016x}.tmp", kPrefix, random_number());
}

// Of one final name, so that the next save to it knows it: FNV-1a of the name.
std::string backup_prefix(const fs::path& path) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : path.filename().string()) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return fmt::format("{}{:016x}-", kPrefix, hash);
}

fs::path backup_beside(const fs::path& path) {
  return path.parent_path() / fmt::format("{}{:016x}.old", backup_prefix(path), random_number());
}

// A file that a living save holds is locked; the system unlocks it when the process ends, however it does.
bool try_lock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0; }

void remove_if_dead(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  if (try_lock(descriptor)) ::unlink(file.c_str());
  ::close(descriptor);
}

// What saves left that were killed. Whatever cannot be looked at stays: it is no reason for this save to fail.
void remove_dead(const fs::path& folder, std::string_view prefix, std::string_view suffix) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    const bool is_file = fs::is_regular_file(entry->symlink_status(ignored));
    if (is_file && name.starts_with(prefix) && name.ends_with(suffix)) remove_if_dead(entry->path());
  }
}

// Where a path leads, through links to files that may not exist yet.
fs::path behind_links(fs::path path) {
  std::error_code ignored;
  for (int count = 0; fs::is_symlink(fs::symlink_status(path, ignored)); ++count) {
    if (count == kMostLinks) fail(path, ELOOP);
    path = path.parent_path() / fs::read_symlink(path);
  }
  return path;
}

void require_replaceable(const fs::path& path) {
  std::error_code ignored;
  switch (fs::symlink_status(path, ignored).type()) {
    case fs::file_type::directory:
      fail(path, EISDIR);
    case fs::file_type::block:
    case fs::file_type::character:
      refuse(path, "a device");
    case fs::file_type::fifo:
      refuse(path, "a pipe");
    case fs::file_type::socket:
      refuse(path, "a socket");
    default:
      return;
  }
}

// The temporary name is short: without this, a long one would be found out when the work is done.
void require_short_name(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const long longest = ::pathconf(folder.c_str(), _PC_NAME_MAX);
  if (longest > 0 && path.filename().string().size() > static_cast<std::size_t>(longest)) fail(path, ENAMETOOLONG);
}

// The mode of the file that is replaced, if there is one.
void keep_mode(const fs::path& path, int descriptor) {
  struct stat before{};
  if (::stat(path.c_str(), &before) == 0) ::fchmod(descriptor, before.st_mode & 07777);
}

// The new file, locked. A save that looks for dead files may have taken it for one before it was locked.
int create(fs::path& temporary, const fs::path& path) {
  while (true) {
    temporary = temporary_beside(path);
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor < 0) fail(path, errno);
    const bool is_locked = try_lock(descriptor) || errno != EWOULDBLOCK;  // some file systems have no locks
    struct stat status{};
    if (is_locked && ::fstat(descriptor, &status) == 0 && status.st_nlink > 0) {
      keep_mode(path, descriptor);
      return descriptor;
    }
    ::close(descriptor);
  }
}

void move(const fs::path& from, const fs::path& to, const fs::path& path) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(path, errno);
}

// Files of one model get their names together: saves to one folder take turns. Where folders cannot be locked they do
// not.
class Turn {
 public:
  explicit Turn(const fs::path& path) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_ = -1;
};

// One file that is being replaced. Unless committed, it puts back what was there.
class Replacement {
 public:
  Replacement(const fs::path& path, const fs::path& temporary) : path_(path), temporary_(temporary) {}
  Replacement(Replacement&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::move(other.temporary_)),
        backup_(std::exchange(other.backup_, {})),
        lock_(std::exchange(other.lock_, -1)),
        is_placed_(std::exchange(other.is_placed_, false)) {}
  Replacement& operator=(Replacement&&) = delete;

  ~Replacement() {
    if (is_placed_) ::rename(path_.c_str(), temporary_.c_str());
    if (!backup_.empty()) ::rename(backup_.c_str(), path_.c_str());
    if (lock_ >= 0) ::close(lock_);
  }

  void set_old_aside() {
    const fs::file_status status = fs::symlink_status(path_);
    if (!fs::exists(status)) return;
    if (fs::is_directory(status)) fail(path_, EISDIR);
    lock_ = ::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (lock_ >= 0) static_cast<void>(try_lock(lock_));
    const fs::path backup = backup_beside(path_);
    move(path_, backup, path_);
    backup_ = backup;
  }

  void place() {
    move(temporary_, path_, path_);
    is_placed_ = true;
  }

  void commit() noexcept {
    if (!backup_.empty()) ::unlink(backup_.c_str());
    backup_.clear();
    is_placed_ = false;
    // What stood there before a save that was killed is of no use any more.
    remove_dead(path_.has_parent_path() ? path_.parent_path() : fs::path("."), backup_prefix(path_), ".old");
  }

 private:
  fs::path path_;
  fs::path temporary_;
  fs::path backup_;
  int lock_ = -1;  ///< of what was set aside, so that no other save takes it for one of a dead save
  bool is_placed_ = false;
};

}  // namespace

OutputFile::OutputFile(fs::path path) {
  if (path.filename().empty()) throw FileError(fmt::format("cannot write '{}': no file name", path.string()));
  path_ = behind_links(std::move(path));
  require_replaceable(path_);
  require_short_name(path_);
  remove_dead(path_.has_parent_path() ? path_.parent_path() : fs::path("."), kPrefix, ".tmp");
  descriptor_ = create(temporary_, path_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      lock_(std::exchange(other.lock_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (lock_ >= 0) ::close(lock_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, std::size_t bytes, std::int64_t offset) {
  const char* position = static_cast<const char*>(data);
  while (bytes > 0) {
    const ::ssize_t written = ::pwrite(descriptor_, position, std::min(bytes, kLargestWrite), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, errno);
    if (written == 0) fail(path_, ENOSPC);
    position += written;
    offset += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::close() {
  if (descriptor_ < 0) return;
  // The lock is of both descriptors: it holds until the file has its name, or another save would take it for a dead
  // one.
  lock_ = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (lock_ < 0) fail(path_, errno);
  // Linux frees the descriptor even when close is interrupted.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail(path_, errno);
}

void publish(std::span<OutputFile> files) {
  if (files.empty()) return;
  for (OutputFile& file : files) file.close();
  const Turn turn(files.back().path_);
  std::vector<Replacement> replacements;
  for (const OutputFile& file : files) replacements.emplace_back(file.path_, file.temporary_);
  // A single file is replaced in one step. For several, the old ones go first: a process that dies in between leaves no
  // model rather than one that reads the weights of another.
  if (files.size() > 1) {
    for (auto old = replacements.rbegin(); old != replacements.rend(); ++old) old->set_old_aside();
  }
  for (Replacement& replacement : replacements) replacement.place();
  for (Replacement& replacement : replacements) replacement.commit();
  for (OutputFile& file : files) file.temporary_.clear();
}

void remove_old(const fs::path& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT || errno == EISDIR) return;
  throw FileError(
      fmt::format("cannot remove '{}', which the new model does not need: {}", path.string(), std::strerror(errno)));
}

}  // namespace exportguard::serialization
