#pragma once

#include <exportguard/ir/graph.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "python/bindings.h"

namespace exportguard::python {

/// Where nodes come from in the user's model, from what torch keeps in their `meta`.
class FxSources {
 public:
  FxSources();

  /// `block`: the module of the block that the node is stamped for, if it was recorded in another one.
  const ir::Source* source(py::handle meta, std::string_view target, const std::string* block = nullptr);

  /// The path of the module that a node is called in.
  std::string module_path(py::handle meta);

 private:
  struct Module {
    std::string path;
    std::string type;
  };
  void read_frame(std::string_view stack_trace, ir::SourceView& source);
  bool is_users(std::string_view file);
  const Module& module_of(py::handle path, py::handle type);
  const Module* find_module(py::handle meta);

  std::string torch_modules_;                             // torch's folder of them
  py::object is_users_;                                   // which code is the user's: Python's one answer,
  std::unordered_map<std::string, bool> users_;           // asked once for each file
  std::unordered_map<std::string_view, Module> modules_;  // by the path as torch writes it; the graph keeps that alive
};

/// `model.layers.3` of `L['self'].model.layers[3]`, `model.layers.3@1` and torch's other ways to write it.
std::string clean_module_path(std::string_view path);

}  // namespace exportguard::python
