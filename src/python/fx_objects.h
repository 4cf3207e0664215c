#pragma once

#include <string>
#include <string_view>

#include "python/bindings.h"

namespace exportguard::python {

/// Attribute names, made once, so that reading one is a pointer look-up.
struct FxNames {
  PyObject* args;
  PyObject* block_module;  ///< key in `meta` of a node of a repeated block: the module in whose call it was recorded
  PyObject* block_path;    ///< of a marker: the path that the block took
  PyObject* block_shares;  ///< the position of the argument whose memory the result has; -1: none
  PyObject* expr;
  PyObject* expr_as_made;  ///< `_expr`: before torch replaces what it found to be equal
  PyObject* kwargs;
  PyObject* meta;
  PyObject* name;
  PyObject* nn_module_stack;
  PyObject* node;
  PyObject* op;
  PyObject* shape_env;
  PyObject* stack_trace;
  PyObject* target;
  PyObject* users;
  PyObject* val;

  static const FxNames& get();
};

/// Classes that the importer tells apart, looked up once.
struct [[gnu::visibility("hidden")]] FxClasses {
  py::object node;
  py::object graph_module;
  py::object sym_int;
  py::object sym_float;
  py::object sym_bool;
  py::object op_overload;
  py::object higher_order_operator;

  static const FxClasses& get();
};

/// `object.name`. @throws py::error_already_set.
py::object attribute(py::handle object, PyObject* name);

/// The entry of a dict; null if there is none. Borrowed.
py::handle find_item(py::handle dict, PyObject* key);

/// The characters of a str, valid while it lives. @throws py::error_already_set for another object.
std::string_view text_of(py::handle str);

inline bool is_sequence(py::handle object) { return PyTuple_Check(object.ptr()) || PyList_Check(object.ptr()); }

/// Items of a list or tuple; borrowed.
inline Py_ssize_t sequence_size(py::handle sequence) { return PySequence_Fast_GET_SIZE(sequence.ptr()); }
inline py::handle sequence_item(py::handle sequence, Py_ssize_t i) {
  return PySequence_Fast_GET_ITEM(sequence.ptr(), i);
}

}  // namespace exportguard::python
