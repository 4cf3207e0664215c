#include "exportguard/common/errors.h"

#include "python/bindings.h"

namespace exportguard::python {
namespace {

// Looked up when it is needed: the package imports this module before it defines its exceptions.
py::object exception_class(const char* name) { return py::module_::import("exportguard.errors").attr(name); }

void raise(const char* name, const std::exception& error) {
  PyErr_SetString(exception_class(name).ptr(), error.what());
}

void raise_parse_error(const ParseError& error) {
  const py::object type = exception_class("ParseError");
  PyErr_SetObject(type.ptr(), type(error.what(), error.line(), error.column()).ptr());
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
