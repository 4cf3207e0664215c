#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace exportguard::serialization {

/// The names of the data files beside a model: which one a new model may take, and which ones are of no use behind it.
///
/// A file belongs to the model at `path` if it is called `<name>.data` or `<name>.<number>.data` and the model that
/// stands there reads it. Any other file of such a name is somebody else's: it is neither replaced nor removed.
class DataFiles {
 public:
  /// Looks at the model at `path`, if there is one and a file has such a name.
  explicit DataFiles(std::filesystem::path path);

  /// The first name that is free, or the model's own.
  std::filesystem::path next() const;
  /// Removes the data files of the earlier model but `kept`. @throws FileError.
  void remove_others(const std::filesystem::path& kept) const;

 private:
  bool is_own(const std::string& name) const;

  std::filesystem::path path_;
  std::vector<std::string> own_;
};

}  // namespace exportguard::serialization
