// Proves a converted model in a process without Python: runs it with torch's kernels on recorded inputs and compares
// what it makes with recorded outputs. FOLDER is in the layout of onnx's test data, `input_0.pb`, …, `output_0.pb`, ….
//
//   example_prove_model MODEL.onnx FOLDER
#include <exportguard/evaluator/value.h>
#include <exportguard/serialization/onnx_file.h>
#include <exportguard/serialization/recorded.h>
#include <exportguard/validation/divergence.h>

#include <cstdio>
#include <exception>

namespace {

using exportguard::evaluator::Value;
using exportguard::validation::Finding;

bool report(const Finding& finding) {
  const auto& [absolute, relative] = finding.tolerance;
  if (!finding.structural.empty()) {
    std::printf("%s: %s\n", finding.name.c_str(), finding.structural.c_str());
  } else {
    std::printf("%s: %s, largest difference %.1e, tolerance %.1e + %.1e * |expected|\n", finding.name.c_str(),
                finding.agrees() ? "agrees" : "differs", finding.figures.max_absolute, absolute, relative);
  }
  return finding.agrees();
}

bool prove(const char* path, const char* folder) {
  const exportguard::ir::Model model = exportguard::serialization::load(path);
  const auto call = exportguard::serialization::load_recorded(folder);
  const std::vector<Value> inputs(call.inputs.begin(), call.inputs.end());
  const std::vector<Value> outputs(call.outputs.begin(), call.outputs.end());
  bool is_right = true;
  for (const Finding& finding : exportguard::validation::validate(model, inputs, outputs)) {
    is_right = report(finding) && is_right;
  }
  return is_right;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.onnx FOLDER\n", argv[0]);
    return 2;
  }
  return prove(argv[1], argv[2]) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
