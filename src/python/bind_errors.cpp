#include "exportguard/common/errors.h"

#include "python/bindings.h"

namespace exportguard::python {
namespace {

// Looked up when it is needed: the package imports this module before it defines its exceptions.
py::object exception_class(const char* name) { return py::module_::import("exportguard.errors").attr(name); }

// A text may quote bytes of a file that are no text.
py::object message_of(const std::exception& error) {
  const std::string_view what = error.what();
  PyObject* decoded = PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace");
  return decoded != nullptr ? py::reinterpret_steal<py::object>(decoded) : throw py::error_already_set();
}

void raise(const char* name, const std::exception& error) {
  PyErr_SetObject(exception_class(name).ptr(), message_of(error).ptr());
}

void raise_parse_error(const ParseError& error) {
  const py::object type = exception_class("ParseError");
  PyErr_SetObject(type.ptr(), type(message_of(error), error.line(), error.column()).ptr());
}

// What is not ours passes on to pybind11's own translators.
void translate(std::exception_ptr error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument& e) {
    raise("InvalidArgumentError", e);
  } catch (const GraphError& e) {
    raise("GraphError", e);
  } catch (const ParseError& e) {
    raise_parse_error(e);
  } catch (const ImportError& e) {
    raise("ProgramError", e);
  } catch (const LoweringError& e) {
    raise("LoweringError", e);
  } catch (const FileError& e) {
    raise("FileError", e);
  } catch (const GuardError& e) {
    raise("GuardError", e);
  } catch (const Error& e) {
    raise("ExportGuardError", e);
  }
}

}  // namespace

void bind_errors(py::module_&) { py::register_local_exception_translator(&translate); }

}  // namespace exportguard::python
