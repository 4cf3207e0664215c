#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

#include "exportguard/common/torch_dtypes.h"
#include "exportguard/validation/comparison.h"
#include "python/bindings.h"
#include "python/divergence_views.h"

namespace exportguard::python {
namespace {

namespace checks = validation;

using TensorPair = std::tuple<at::Tensor, at::Tensor, double, double>;

std::vector<checks::Comparison> compare(const std::vector<TensorPair>& pairs) {
  std::vector<ir::Tensor> tensors;
  tensors.reserve(2 * pairs.size());
  std::vector<checks::Pair> borrowed;
  for (const auto& [expected, got, absolute, relative] : pairs) {
    const ir::Tensor& first = tensors.emplace_back(expected.detach());
    borrowed.push_back({&first, &tensors.emplace_back(got.detach()), {absolute, relative}});
  }
  return checks::compare(borrowed);
}

std::pair<double, double> tolerance_for(const py::object& dtype) {
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("dtype must be a torch.dtype");
  const auto type = reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
  const checks::Tolerance tolerance = checks::tolerance_for(from_scalar_type(type));
  return {tolerance.absolute, tolerance.relative};
}

}  // namespace

void bind_validation(py::module_& m) {
  using checks::Comparison;
  py::class_<Comparison>(m, "Comparison", "What one pass over two tensors of one shape finds.")
      .def_readonly("count", &Comparison::count, "Pairs.")
      .def_readonly("finite", &Comparison::finite, "Pairs of finite values.")
      .def_readonly("over", &Comparison::over, "Finite pairs beyond the tolerance.")
      .def_readonly("nan_mismatches", &Comparison::nan_mismatches, "Pairs of which one alone is NaN.")
      .def_readonly("infinity_mismatches", &Comparison::infinity_mismatches,
                    "Pairs without NaN of which one alone is infinite, or of other signs.")
      .def_readonly("max_absolute", &Comparison::max_absolute)
      .def_readonly("mean_absolute", &Comparison::mean_absolute)
      .def_readonly("max_relative", &Comparison::max_relative)
      .def_readonly("mean_relative", &Comparison::mean_relative)
      .def_readonly("max_absolute_at", &Comparison::max_absolute_at, "Row-major position of the first such pair.")
      .def_readonly("max_relative_at", &Comparison::max_relative_at)
      .def_readonly("ulps", &Comparison::ulps, "Equal values, then those 2^(k-1) to 2^k - 1 units apart.")
      .def_readonly("cosine", &Comparison::cosine)
      .def_readonly("signal_to_noise", &Comparison::signal_to_noise, "Decibels.")
      .def_property_readonly("agrees", &Comparison::agrees)
      .def_property_readonly("ulps_at_most", &Comparison::ulps_at_most);

  m.def("compare", &compare, py::arg("pairs"), py::call_guard<py::gil_scoped_release>(),
        "Compares (expected, got, absolute, relative) tuples in one pass over the data, CUDA pairs in one launch.");
  m.def("tolerance_for", &tolerance_for, py::arg("dtype"),
        "(absolute, relative) bounds for results of that dtype; zeros where they must be exact.");
  bind_divergence(m);
  m.def("has_cuda", &checks::has_cuda, "Whether there are CUDA kernels and a device for them.");
}

}  // namespace exportguard::python
