#include "python/bindings.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ side of exportguard.";
  exportguard::python::bind_errors(m);
  exportguard::python::bind_ir(m);
  exportguard::python::bind_guard(m);
  exportguard::python::bind_importer(m);
  exportguard::python::bind_lowering(m);
  exportguard::python::bind_optimizer(m);
  exportguard::python::bind_builder(m);
  exportguard::python::bind_pipeline(m);
  exportguard::python::bind_quantization(m);
  exportguard::python::bind_serialization(m);
  exportguard::python::bind_evaluator(m);
  exportguard::python::bind_validation(m);
}
