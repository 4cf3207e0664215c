#include "serialization/data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <utility>

#include "exportguard/common/errors.h"
#include "serialization/mapped_file.h"
#include "serialization/output_file.h"
#include "serialization/proto_values.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".data";

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

bool has_name_of_data(const std::string& name, const std::string& model) {
  if (!name.starts_with(model) || !name.ends_with(kSuffix)) return false;
  if (name.size() < model.size() + kSuffix.size()) return false;
  const std::string number = name.substr(model.size(), name.size() - model.size() - kSuffix.size());
  if (number.empty()) return true;
  const auto is_digit = [](unsigned char byte) { return std::isdigit(byte) != 0; };
  return number.size() > 1 && number[0] == '.' && std::all_of(number.begin() + 1, number.end(), is_digit);
}

bool has_data_beside(const fs::path& path) {
  std::error_code error;
  const std::string model = path.filename().string();
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end; entry.increment(error)) {
    if (has_name_of_data(entry->path().filename().string(), model)) return true;
  }
  return false;
}

void add_location(const pb::TensorProto& tensor, std::set<std::string>& names) {
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") names.insert(entry.value());
  }
}

void add_locations(const pb::GraphProto& graph, std::set<std::string>& names);

void add_locations(const pb::NodeProto& node, std::set<std::string>& names) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_t()) add_location(attribute.t(), names);
    for (const auto& tensor : attribute.tensors()) add_location(tensor, names);
    if (attribute.has_g()) add_locations(attribute.g(), names);
    for (const auto& graph : attribute.graphs()) add_locations(graph, names);
  }
}

void add_locations(const pb::GraphProto& graph, std::set<std::string>& names) {
  for (const auto& tensor : graph.initializer()) add_location(tensor, names);
  for (const auto& node : graph.node()) add_locations(node, names);
}

/// The files that the model at `path` reads its weights from; none if it is no model.
std::set<std::string> locations_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  std::set<std::string> names;
  try {
    const MappedFile file(path);
    pb::ModelProto model;
    const std::size_t size = file.bytes().size();
    if (size > static_cast<std::size_t>(std::numeric_limits<int>::max())) return {};
    if (!model.ParseFromArray(file.bytes().data(), static_cast<int>(size))) return {};
    add_locations(model.graph(), names);
    for (const auto& function : model.functions()) {
      for (const auto& node : function.node()) add_locations(node, names);
    }
  } catch (const FileError&) {
    return {};  // whoever may not read the model does not know its data
  }
  return names;
}

}  // namespace

DataFiles::DataFiles(fs::path path) : path_(std::move(path)) {
  if (!has_data_beside(path_)) return;
  const std::string model = path_.filename().string();
  for (const std::string& name : locations_of(path_)) {
    if (has_name_of_data(name, model)) own_.push_back(name);
  }
}

bool DataFiles::is_own(const std::string& name) const { return std::ranges::find(own_, name) != own_.end(); }

fs::path DataFiles::next() const {
  const std::string model = path_.filename().string();
  for (int number = 0;; ++number) {
    const std::string name =
        number == 0 ? fmt::format("{}{}", model, kSuffix) : fmt::format("{}.{}{}", model, number, kSuffix);
    const fs::path candidate = path_.parent_path() / name;
    std::error_code error;
    const fs::file_type kind = fs::symlink_status(candidate, error).type();
    // What is neither a file nor a link to one is an error, of which the writer tells.
    const bool is_somebodys = kind == fs::file_type::regular || kind == fs::file_type::symlink;
    if (!is_somebodys || is_own(name)) return candidate;
  }
}

void DataFiles::remove_others(const fs::path& kept) const {
  for (const std::string& name : own_) {
    if (name != kept.filename().string()) remove_old(path_.parent_path() / name);
  }
}

}  // namespace exportguard::serialization
