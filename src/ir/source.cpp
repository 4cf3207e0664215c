#include <functional>
#include <mutex>
#include <unordered_set>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {
namespace {

struct HashSource {
  std::size_t operator()(const Source& source) const {
    std::size_t seed = static_cast<std::size_t>(source.line);
    for (const std::string* part : {&source.module, &source.target, &source.file}) {
      seed = seed * 1000003 + std::hash<std::string>{}(*part);
    }
    return seed;
  }
};

std::string_view file_name(std::string_view path) {
  const std::size_t slash = path.find_last_of("/\\");
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::string Source::where() const {
  std::string text = module;
  if (file.empty()) return text;
  if (!text.empty()) text += ", ";
  text += file_name(file);
  if (line > 0) text += ':' + std::to_string(line);
  return text;
}

const Source* intern(Source source) {
  static std::mutex mutex;
  static auto& pool =
      *new std::unordered_set<Source, HashSource>;  // never freed: nodes may outlive every static object
  const std::lock_guard lock(mutex);
  return &*pool.insert(std::move(source)).first;
}

}  // namespace exportguard::ir
