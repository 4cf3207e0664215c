#include <fmt/format.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "exportguard/common/errors.h"
#include "exportguard/serialization/onnx_file.h"
#include "python/bindings.h"

namespace exportguard::python {
namespace {

namespace io = serialization;
using ReleaseGil = py::call_guard<py::gil_scoped_release>;

io::ExternalData external_data_named(const std::string& name) {
  if (name == "auto") return io::ExternalData::kAuto;
  if (name == "always") return io::ExternalData::kAlways;
  if (name == "never") return io::ExternalData::kNever;
  throw InvalidArgument(fmt::format("external_data must be 'auto', 'always' or 'never', got '{}'", name));
}

py::bytes to_bytes(const ir::Model& model, bool sources) {
  io::SaveOptions options;
  options.sources = sources;
  std::string bytes;
  {
    const py::gil_scoped_release release;
    bytes = io::to_bytes(model, options);
  }
  return bytes;
}

py::bytes infer_shapes(const std::string& model_bytes, bool strict) {
  std::string bytes;
  {
    const py::gil_scoped_release release;
    bytes = io::infer_shapes(model_bytes, strict);
  }
  return bytes;
}

ir::Model from_bytes(const py::bytes& model_bytes) {
  const std::string_view bytes = model_bytes;
  const py::gil_scoped_release release;
  return io::from_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void bind_save(py::module_& m) {
  const io::SaveOptions defaults;
  m.def(
      "save",
      [](const ir::Model& model, const std::filesystem::path& path, const std::string& external_data,
         std::size_t inline_limit, std::size_t min_external_bytes, std::size_t alignment, bool sources) {
        io::save(model, path,
                 {.external_data = external_data_named(external_data),
                  .inline_limit = inline_limit,
                  .min_external_bytes = min_external_bytes,
                  .alignment = alignment,
                  .sources = sources});
      },
      py::arg("model"), py::arg("path"), py::kw_only(), py::arg("external_data") = "auto",
      py::arg("inline_limit") = defaults.inline_limit, py::arg("min_external_bytes") = defaults.min_external_bytes,
      py::arg("alignment") = defaults.alignment, py::arg("sources") = defaults.sources, ReleaseGil(),
      "Writes path, and path + '.data' if the weights are external; sizes in bytes.");
}

}  // namespace

void bind_serialization(py::module_& m) {
  bind_save(m);
  m.def("to_bytes", &to_bytes, py::arg("model"), py::kw_only(), py::arg("sources") = true,
        "The model as bytes of a ModelProto, weights inline.");
  m.def("load", &io::load, py::arg("path"), ReleaseGil(), "Reads an ONNX file; external data is mapped.");
  m.def("from_bytes", &from_bytes, py::arg("model_bytes"), "The same of the bytes of a ModelProto.");
  m.def("check", &io::check, py::arg("model_bytes"), py::arg("full") = false, ReleaseGil(),
        "onnx's checker, with shape inference if full.");
  m.def("check_file", &io::check_file, py::arg("path"), py::arg("full") = false, ReleaseGil(),
        "The same of a file, whose weights may be external.");
  m.def("infer_shapes", &infer_shapes, py::arg("model_bytes"), py::arg("strict") = false,
        "onnx's shape inference; bytes in and out.");
  m.def("newest_opset", &io::newest_opset, "The newest opset that the onnx library built in knows.");
}

}  // namespace exportguard::python
