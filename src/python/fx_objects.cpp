#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

PyObject* interned(const char* text) {
  PyObject* name = PyUnicode_InternFromString(text);
  if (name == nullptr) throw py::error_already_set();
  return name;
}

}  // namespace

// Both are never freed: interpreter shutdown must not run their destructors.
const FxNames& FxNames::get() {
  static const auto& names = *new FxNames{
      .args = interned("args"),
      .block_module = interned("exportguard_module"),
      .block_path = interned("exportguard_path"),
      .block_shares = interned("exportguard_shares"),
      .expr = interned("expr"),
      .expr_as_made = interned("_expr"),
      .kwargs = interned("kwargs"),
      .meta = interned("meta"),
      .name = interned("name"),
      .nn_module_stack = interned("nn_module_stack"),
      .node = interned("node"),
      .op = interned("op"),
      .shape_env = interned("shape_env"),
      .stack_trace = interned("stack_trace"),
      .target = interned("target"),
      .users = interned("users"),
      .val = interned("val"),
  };
  return names;
}

const FxClasses& FxClasses::get() {
  static const auto& classes = *[] {
    const py::module_ torch = py::module_::import("torch");
    const py::module_ fx = py::module_::import("torch.fx");
    const py::module_ ops = py::module_::import("torch._ops");
    return new FxClasses{
        fx.attr("Node"),       fx.attr("GraphModule"), torch.attr("SymInt"),           torch.attr("SymFloat"),
        torch.attr("SymBool"), ops.attr("OpOverload"), ops.attr("HigherOrderOperator")};
  }();
  return classes;
}

py::object attribute(py::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

py::handle find_item(py::handle dict, PyObject* key) {
  return PyDict_Check(dict.ptr()) ? PyDict_GetItem(dict.ptr(), key) : nullptr;
}

std::string_view text_of(py::handle str) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(str.ptr(), &size);
  if (data == nullptr) throw py::error_already_set();
  return {data, static_cast<std::size_t>(size)};
}

}  // namespace exportguard::python
