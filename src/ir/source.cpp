#include <mutex>
#include <set>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {
namespace {

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
  static auto& pool = *new std::set<Source>;  // never freed: nodes may outlive every static object
  const std::lock_guard lock(mutex);
  return &*pool.insert(std::move(source)).first;
}

}  // namespace exportguard::ir
