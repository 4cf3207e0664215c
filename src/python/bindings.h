#pragma once

#include <torch/csrc/utils/pybind.h>  // torch's pybind11, so that at::Tensor converts

// pybind11's types are hidden, and a function that takes one would be as well.
#define EXPORTGUARD_BINDING __attribute__((visibility("default")))

/// One function for each layer, each in its own `bind_<layer>.cpp`.
namespace exportguard::python {

namespace py = pybind11;

EXPORTGUARD_BINDING void bind_errors(py::module_& m);
EXPORTGUARD_BINDING void bind_ir(py::module_& m);
EXPORTGUARD_BINDING void bind_guard(py::module_& m);
EXPORTGUARD_BINDING void bind_importer(py::module_& m);
EXPORTGUARD_BINDING void bind_lowering(py::module_& m);
EXPORTGUARD_BINDING void bind_optimizer(py::module_& m);
EXPORTGUARD_BINDING void bind_builder(py::module_& m);
EXPORTGUARD_BINDING void bind_pipeline(py::module_& m);
EXPORTGUARD_BINDING void bind_evaluator(py::module_& m);
EXPORTGUARD_BINDING void bind_quantization(py::module_& m);
EXPORTGUARD_BINDING void bind_serialization(py::module_& m);
EXPORTGUARD_BINDING void bind_validation(py::module_& m);

}  // namespace exportguard::python
