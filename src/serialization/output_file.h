#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace exportguard::serialization {

/// A file that is written under a temporary name in the folder of its final one. Until `publish` takes it over,
/// destroying it removes the file. A link is followed, and the file behind it gets the mode of the one that it
/// replaces. Move-only.
class OutputFile {
 public:
  /// Removes what saves left in the folder whose processes are dead.
  /// @throws FileError if it cannot be created, naming `path` and the system's reason, if the name is too long, or if
  /// what stands there is no file.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Writes all of it at `offset`; other offsets keep what they have. @throws FileError, on a full disk for instance.
  void write(const void* data, std::size_t bytes, std::int64_t offset);
  /// @throws FileError if the system reports a write as failed only now.
  void close();

  const std::filesystem::path& path() const { return path_; }            ///< the final name, behind links
  const std::filesystem::path& temporary() const { return temporary_; }  ///< empty once published

 private:
  friend void publish(std::span<OutputFile> files);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int lock_ = -1;  ///< of what was closed, and has another name yet
};

/// Gives all files their final names, the last one last. What stood under these names before is kept until all have
/// succeeded and put back if one fails, so that no mix of old and new files is left. @throws FileError.
void publish(std::span<OutputFile> files);

/// Removes a file that nothing reads any more, if it is there; a folder stays. @throws FileError.
void remove_old(const std::filesystem::path& path);

}  // namespace exportguard::serialization
