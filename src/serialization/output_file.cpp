#include "serialization/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exportguard/common/errors.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestWrite = std::size_t{1} << 30;  // Linux writes at most 2 GiB at a time

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
    default:
      return "";
  }
}

[[noreturn]] void fail(const fs::path& path, int error) {
  throw FileError(fmt::format("cannot write '{}': {}{}", path.string(), std::strerror(error), remedy(error)));
}

// Short, whatever the length of the final name, and unlike any other of this process and its siblings.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.parent_path() / fmt::format(".exportguard-{}-{}.tmp", ::getpid(), counter++);
}

int create(const fs::path& temporary, const fs::path& path) {
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(path, errno);
  return descriptor;
}

void move(const fs::path& from, const fs::path& to, const fs::path& path) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(path, errno);
}

// One file that is being replaced. Unless committed, it puts back what was there.
class Replacement {
 public:
  Replacement(const fs::path& path, const fs::path& temporary) : path_(path), temporary_(temporary) {}
  Replacement(Replacement&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::move(other.temporary_)),
        backup_(std::exchange(other.backup_, {})),
        is_placed_(std::exchange(other.is_placed_, false)) {}
  Replacement& operator=(Replacement&&) = delete;

  ~Replacement() {
    if (is_placed_) ::rename(path_.c_str(), temporary_.c_str());
    if (!backup_.empty()) ::rename(backup_.c_str(), path_.c_str());
  }

  void set_old_aside() {
    const fs::file_status status = fs::symlink_status(path_);
    if (!fs::exists(status)) return;
    if (fs::is_directory(status)) fail(path_, EISDIR);
    const fs::path backup = temporary_beside(path_);
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
  }

 private:
  fs::path path_;
  fs::path temporary_;
  fs::path backup_;
  bool is_placed_ = false;
};

}  // namespace

OutputFile::OutputFile(fs::path path) : path_(std::move(path)), temporary_(temporary_beside(path_)) {
  if (path_.filename().empty()) throw FileError(fmt::format("cannot write '{}': no file name", path_.string()));
  if (std::error_code ignored; fs::is_directory(path_, ignored)) fail(path_, EISDIR);
  descriptor_ = create(temporary_, path_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
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
  // Linux frees the descriptor even when close is interrupted.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail(path_, errno);
}

void publish(std::span<OutputFile> files) {
  for (OutputFile& file : files) file.close();
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
