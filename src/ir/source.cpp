#include <functional>
#include <mutex>
#include <tuple>
#include <unordered_set>

#include "exportguard/ir/graph.h"
#include "exportguard/ir/places.h"

namespace exportguard::ir {
namespace {

SourceView view(const Source& source) {
  return {source.target, source.module, source.type, source.file, source.line, source.code};
}

const SourceView& view(const SourceView& source) { return source; }

struct HashSource {
  using is_transparent = void;
  std::size_t operator()(const auto& source) const {
    const SourceView& parts = view(source);
    std::size_t seed = static_cast<std::size_t>(parts.line);
    for (const std::string_view part : {parts.module, parts.target, parts.file}) {
      seed = seed * 1000003 + std::hash<std::string_view>{}(part);
    }
    return seed;
  }
};

struct EqualSource {
  using is_transparent = void;
  static auto parts(const SourceView& s) { return std::tie(s.line, s.module, s.target, s.type, s.file, s.code); }
  bool operator()(const auto& a, const auto& b) const {
    const SourceView& left = view(a);
    const SourceView& right = view(b);
    return parts(left) == parts(right);
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

std::string placed(std::string_view what, const Source* source) {
  const std::string where = source != nullptr ? source->where() : std::string();
  std::string text(what);
  return where.empty() ? text : text + " (" + where + ")";
}

const Source* intern(const SourceView& source) {
  static std::mutex mutex;
  // Never freed: nodes may outlive every static object.
  static auto& pool = *new std::unordered_set<Source, HashSource, EqualSource>;
  const std::lock_guard lock(mutex);
  if (const auto found = pool.find(source); found != pool.end()) return &*found;
  const auto text = [](std::string_view part) { return std::string(part); };
  return &*pool.insert({text(source.target), text(source.module), text(source.type), text(source.file), source.line,
                        text(source.code)})
               .first;
}

}  // namespace exportguard::ir
