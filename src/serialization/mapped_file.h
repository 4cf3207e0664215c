#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace exportguard::serialization {

/// A file in memory without a copy of it: pages are read when they are touched. Private: writing to them changes no
/// file. A file that another process cuts short while it is mapped ends this one at the next touch, as with every
/// mapping.
class MappedFile {
 public:
  /// @throws FileError naming the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace exportguard::serialization
