#include "python/module_tree.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace exportguard::python {
namespace {

/// A module, and its place in the one around it: the number of that one, and the name of the place.
struct Found {
  py::object module;
  std::size_t around = 0;
  py::object part;
};

using Named = std::pair<std::string, py::object>;

/// Calls `visit` with each name and value of a mapping of a module's that is not None.
template <typename Visit>
void for_each_item(const py::object& module, py::handle kind, const Visit& visit) {
  const py::object held = module.attr(kind);
  if (py::isinstance<py::dict>(held)) {
    for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(held)) {
      if (!value.is_none()) visit(name, value);
    }
  } else {  // of a scripted module
    for (const py::handle item : held.attr("items")()) {
      const py::object value = item[py::int_(1)];
      const py::object name = item[py::int_(0)];
      if (!value.is_none()) visit(name, value);
    }
  }
}

/// The modules in torch's order, each once, at its first place; nothing if one of them lists others than torch does.
std::optional<std::vector<Found>> modules_of(const py::object& outermost, const py::function& is_plain) {
  const py::str kind_of_modules("_modules");
  std::vector<Found> found, waiting{{outermost}};
  std::unordered_set<const PyObject*> met;
  std::unordered_map<const PyObject*, bool> plain_kinds;
  while (!waiting.empty()) {
    found.push_back(std::move(waiting.back()));
    waiting.pop_back();
    const py::object module = found.back().module;
    if (!met.insert(module.ptr()).second) {
      found.pop_back();
      continue;
    }
    const py::handle kind = py::type::handle_of(module);
    const auto [known, is_new] = plain_kinds.try_emplace(kind.ptr());
    if (is_new) known->second = is_plain(kind).cast<bool>();
    if (!known->second) return std::nullopt;
    const std::size_t around = found.size() - 1, first = waiting.size();
    for_each_item(module, kind_of_modules, [&](py::handle part, py::handle inner) {
      waiting.push_back({py::reinterpret_borrow<py::object>(inner), around, py::reinterpret_borrow<py::object>(part)});
    });
    std::reverse(waiting.begin() + static_cast<std::ptrdiff_t>(first), waiting.end());
  }
  return found;
}

/// The name of a module, and of what it has by another one, if one is given.
std::string name_of(const std::vector<Found>& modules, std::size_t at, py::handle inner = {}) {
  std::string name = inner ? py::cast<std::string>(inner) : std::string();
  for (; at != 0; at = modules[at].around) {
    name.insert(0, name.empty() ? "" : ".").insert(0, py::cast<std::string>(modules[at].part));
  }
  return name;
}

std::optional<std::vector<Named>> named_modules(const py::object& outermost, const py::function& is_plain) {
  std::optional<std::vector<Found>> modules = modules_of(outermost, is_plain);
  if (!modules) return std::nullopt;
  std::vector<Named> named;
  named.reserve(modules->size());
  for (std::size_t at = 0; at < modules->size(); ++at) named.emplace_back(name_of(*modules, at), (*modules)[at].module);
  return named;
}

std::optional<std::vector<Named>> named_tensors(const py::object& outermost, const py::str& kind,
                                                const py::function& is_plain) {
  const std::optional<std::vector<Found>> modules = modules_of(outermost, is_plain);
  if (!modules) return std::nullopt;
  std::vector<Named> named;
  std::unordered_set<const PyObject*> met;
  for (std::size_t at = 0; at < modules->size(); ++at) {
    for_each_item((*modules)[at].module, kind, [&](py::handle part, py::handle tensor) {
      if (!met.insert(tensor.ptr()).second) return;
      named.emplace_back(name_of(*modules, at, part), py::reinterpret_borrow<py::object>(tensor));
    });
  }
  return named;
}

}  // namespace

void bind_module_tree(py::module_& m) {
  m.def("named_modules", &named_modules, py::arg("module"), py::arg("is_plain"),
        "The modules in a module by their names, as `torch.nn.Module.named_modules` gives them; None where `is_plain` "
        "is false for the class of one.");
  m.def("named_tensors", &named_tensors, py::arg("module"), py::arg("kind"), py::arg("is_plain"),
        "The tensors of its `_parameters` or `_buffers`, each once, under its first name; None as for named_modules.");
}

}  // namespace exportguard::python
