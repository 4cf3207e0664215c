#include "python/fx_sources.h"

#include <charconv>
#include <optional>

#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

/// One `File "path", line 12, in forward` and the line of code below it.
struct Frame {
  std::string_view file;
  int line = 0;
  std::string_view code;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// The frame that begins at `text`, just behind `File "`.
Frame parse_frame(std::string_view text) {
  constexpr std::string_view kLine = "\", line ";
  Frame frame;
  const std::size_t quote = text.find(kLine);
  if (quote == std::string_view::npos) return frame;
  frame.file = text.substr(0, quote);
  const std::string_view number = text.substr(quote + kLine.size());
  std::from_chars(number.data(), number.data() + number.size(), frame.line);
  const std::size_t end = number.find('\n');
  if (end == std::string_view::npos) return frame;
  const std::string_view below = number.substr(end + 1);
  frame.code = trimmed(below.substr(0, below.find('\n')));
  return frame;
}

/// Last entry of a dict, as (path, class); nothing unless it is such a pair.
std::optional<std::pair<py::handle, py::handle>> last_module(py::handle stack) {
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(stack.ptr(), &position, &key, &value) != 0) continue;
  if (value == nullptr || !PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2) return std::nullopt;
  return std::pair<py::handle, py::handle>(PyTuple_GET_ITEM(value, 0), PyTuple_GET_ITEM(value, 1));
}

std::string class_name(py::handle type) {
  if (PyType_Check(type.ptr())) return py::str(type.attr("__qualname__")).cast<std::string>();
  const std::string_view text = PyUnicode_Check(type.ptr()) ? text_of(type) : std::string_view();
  return std::string(text.substr(text.rfind('.') + 1));
}

bool is_all_digits(std::string_view text) { return text.find_first_not_of("0123456789") == std::string_view::npos; }

/// The path of a module in one block, as it is in another.
std::string moved_path(std::string_view path, py::handle meta, const std::string& block) {
  const py::handle recorded = find_item(meta, FxNames::get().block_module);
  if (!recorded || !PyUnicode_Check(recorded.ptr())) return std::string(path);
  const std::string old = clean_module_path(text_of(recorded));
  const bool is_inside = path.starts_with(old) && (path.size() == old.size() || path[old.size()] == '.');
  return is_inside ? block + std::string(path.substr(old.size())) : std::string(path);
}

}  // namespace

std::string clean_module_path(std::string_view path) {
  if (const std::size_t call = path.rfind('@');
      call != std::string_view::npos && is_all_digits(path.substr(call + 1))) {
    path = path.substr(0, call);
  }

  if (path.starts_with("_empty_nn_module_stack")) return {};  // torch's own nodes
  for (const std::string_view root : {"L['self']", "L__self__", "getattr_L__self__"}) {
    if (path.starts_with(root)) path.remove_prefix(root.size());
  }
  // While it traces, torch 2.11 to 2.13 has the model in a module of its own, and takes its name out of finished nodes.
  if (path.starts_with("_export_root.")) path.remove_prefix(std::string_view("_export_root.").size());

  std::string clean;
  for (const char c : path) {
    if (c == '\'' || c == '"' || c == ']') continue;
    const bool is_separator = c == '.' || c == '[';
    if (!is_separator) {
      clean += c;
    } else if (!clean.empty() && clean.back() != '.') {
      clean += '.';
    }
  }
  for (std::size_t at; (at = clean.find("_modules.")) != std::string::npos;) clean.erase(at, 9);
  return clean;
}

FxSources::FxSources() {
  const std::string file = py::module_::import("torch").attr("__file__").cast<std::string>();
  torch_modules_ = file.substr(0, file.find_last_of("/\\") + 1) + "nn/";
  is_users_ = py::module_::import("exportguard.model_code").attr("is_users");
}

bool FxSources::is_users(std::string_view file) {
  const auto [row, is_new] = users_.try_emplace(std::string(file));
  if (is_new) row->second = is_users_(py::str(file.data(), file.size())).cast<bool>();
  return row->second;
}

// The innermost frame of the user's code says most. Of torch's own files only its modules help,
// where the model is made of nothing else.
void FxSources::read_frame(std::string_view stack_trace, ir::SourceView& source) {
  constexpr std::string_view kFile = "File \"";
  Frame chosen;
  for (std::size_t end = stack_trace.size(); end != std::string_view::npos && end > 0;) {
    const std::size_t at = stack_trace.rfind(kFile, end - 1);
    if (at == std::string_view::npos) break;
    end = at;
    const Frame frame = parse_frame(stack_trace.substr(at + kFile.size()));
    if (frame.file.empty()) continue;
    const bool is_module = frame.file.starts_with(torch_modules_);
    const bool is_the_models = is_users(frame.file);
    if (is_the_models || (is_module && chosen.file.empty())) chosen = frame;
    if (is_the_models) break;
  }
  source.file = chosen.file;
  source.line = chosen.line;
  source.code = chosen.code;
}

const FxSources::Module& FxSources::module_of(py::handle path, py::handle type) {
  static const auto& nothing = *new Module;
  if (!PyUnicode_Check(path.ptr())) return nothing;
  const std::string_view text = text_of(path);
  if (const auto found = modules_.find(text); found != modules_.end()) return found->second;
  return modules_.emplace(text, Module{clean_module_path(text), class_name(type)}).first->second;
}

const FxSources::Module* FxSources::find_module(py::handle meta) {
  const py::handle stack = find_item(meta, FxNames::get().nn_module_stack);
  if (!stack || !PyDict_Check(stack.ptr())) return nullptr;
  const auto last = last_module(stack);
  return last ? &module_of(last->first, last->second) : nullptr;
}

std::string FxSources::module_path(py::handle meta) {
  const Module* module = find_module(meta);
  return module ? module->path : std::string();
}

const ir::Source* FxSources::source(py::handle meta, std::string_view target, const std::string* block) {
  const FxNames& names = FxNames::get();
  ir::SourceView source;
  source.target = target;
  if (const py::handle trace = find_item(meta, names.stack_trace); trace && PyUnicode_Check(trace.ptr())) {
    read_frame(text_of(trace), source);
  }
  std::string moved;
  if (const Module* module = find_module(meta)) {
    source.module = module->path;
    source.type = module->type;
    if (block != nullptr) source.module = moved = moved_path(module->path, meta, *block);
  }
  return ir::intern(source);
}

}  // namespace exportguard::python
