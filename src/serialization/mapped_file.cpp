#include "serialization/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "exportguard/common/errors.h"

namespace exportguard::serialization {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* reason) {
  throw FileError(fmt::format("cannot read '{}': {}", path.string(), reason));
}

class Descriptor {
 public:
  // Without waiting, as a pipe would for who writes into it.
  explicit Descriptor(const std::filesystem::path& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (number_ < 0) fail(path, std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }
  int number() const { return number_; }

 private:
  int number_;
};

std::size_t size_of(const Descriptor& file, const std::filesystem::path& path) {
  struct stat facts{};
  if (::fstat(file.number(), &facts) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) fail(path, "not a file");
  return static_cast<std::size_t>(facts.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path);
  const std::size_t size = size_of(file, path);
  if (size == 0) return;  // which mmap refuses
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number(), 0);
  if (data == MAP_FAILED) fail(path, std::strerror(errno));
  bytes_ = {static_cast<std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace exportguard::serialization
