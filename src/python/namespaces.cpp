#include "python/namespaces.h"

#include <pybind11/stl.h>

#include <unordered_set>
#include <vector>

namespace exportguard::python {
namespace {

/// The `__module__` of a class or a function; nothing if it has none.
py::object module_of(py::handle value) {
  if (PyFunction_Check(value.ptr())) {
    PyObject* name = PyFunction_GetModule(value.ptr());
    return name == nullptr ? py::object() : py::reinterpret_borrow<py::object>(name);
  }
  static PyObject* const attribute = PyUnicode_InternFromString("__module__");
  PyObject* name = PyObject_GetAttr(value.ptr(), attribute);
  if (name == nullptr) PyErr_Clear();
  return py::reinterpret_steal<py::object>(name);
}

/// The values of a namespace, held: to ask a class for its module may run code of its metaclass.
py::list values_of(const py::dict& space) { return py::reinterpret_steal<py::list>(PyDict_Values(space.ptr())); }

PyObject* space_of(PyTypeObject* kind) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyType_GetDict(kind);
#else
  Py_XINCREF(kind->tp_dict);
  return kind->tp_dict;
#endif
}

py::set modules_named_in(const py::dict& space) {
  py::set found;
  for (const py::handle value : values_of(space)) {
    py::object module;
    if (PyModule_Check(value.ptr())) {
      PyObject* own = PyDict_GetItemString(PyModule_GetDict(value.ptr()), "__name__");
      if (own != nullptr) module = py::reinterpret_borrow<py::object>(own);
    } else if (PyType_Check(value.ptr()) || PyFunction_Check(value.ptr())) {
      module = module_of(value);
    }
    if (module && PyUnicode_Check(module.ptr())) found.add(module);
  }
  return found;
}

bool defines_kind_of(const py::dict& space, const py::str& module, const py::type& base) {
  for (const py::handle value : values_of(space)) {
    if (!PyType_Check(value.ptr())) continue;
    auto* kind = reinterpret_cast<PyTypeObject*>(value.ptr());
    if (!PyType_IsSubtype(kind, reinterpret_cast<PyTypeObject*>(base.ptr()))) continue;
    const py::object own = module_of(value);
    if (own && own.equal(module)) return true;
  }
  return false;
}

std::vector<py::object> values_of_type(const std::vector<py::dict>& spaces, const py::type& type) {
  std::vector<py::object> found;
  std::unordered_set<const PyObject*> met;
  const auto look = [&](PyObject* space) {
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(space, &at, nullptr, &value) != 0;) {
      if (reinterpret_cast<PyObject*>(Py_TYPE(value)) == type.ptr() && met.insert(value).second) {
        found.push_back(py::reinterpret_borrow<py::object>(value));
      }
    }
  };
  std::vector<PyTypeObject*> kinds;
  for (const py::dict& space : spaces) {
    look(space.ptr());
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(space.ptr(), &at, nullptr, &value) != 0;) {
      if (PyType_Check(value) && met.insert(value).second) kinds.push_back(reinterpret_cast<PyTypeObject*>(value));
    }
  }
  for (PyTypeObject* kind : kinds) {
    const auto own = py::reinterpret_steal<py::object>(space_of(kind));
    if (own) look(own.ptr());
  }
  return found;
}

}  // namespace

void bind_namespaces(py::module_& m) {
  m.def("modules_named_in", &modules_named_in, py::arg("space"),
        "The names of the modules that a namespace holds, and of those that define its functions and classes.");
  m.def("defines_kind_of", &defines_kind_of, py::arg("space"), py::arg("module"), py::arg("base"),
        "Whether the namespace of a module of this name holds a class that it defines and that derives from `base`.");
  m.def("values_of_type", &values_of_type, py::arg("spaces"), py::arg("type"),
        "The values of exactly a type in namespaces, and in those of the classes in them; each once.");
}

}  // namespace exportguard::python
