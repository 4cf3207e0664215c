// Reads, checks, runs, compares and optimizes every .onnx file of a folder, which may hold anything: an error of the
// library or a result, never another exception, a crash or undefined behaviour. Meant for a build with sanitizers.
//
//   hostile_files FOLDER
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"
#include "exportguard/evaluator/evaluator.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "exportguard/optimizer/optimize.h"
#include "exportguard/serialization/onnx_file.h"
#include "exportguard/validation/divergence.h"

namespace {

using exportguard::evaluator::Program;
using exportguard::evaluator::Value;
namespace ir = exportguard::ir;
namespace serialization = exportguard::serialization;

constexpr std::int64_t kUnknown = 2;  // the size that an axis without one is given
constexpr std::int64_t kMost = 64;    // of a declared one

/// Something of the dtype and sizes that the graph declares, as far as a machine can hold it.
Value input_for(const ir::Value& declared) {
  std::vector<std::int64_t> sizes;
  if (declared.type().shape) {
    for (const auto& size : *declared.type().shape) {
      const std::optional<std::int64_t> number = size.constant();
      sizes.push_back(number ? std::clamp<std::int64_t>(*number, 0, kMost) : kUnknown);
    }
  }
  const auto dtype = declared.type().dtype;
  if (dtype == exportguard::DType::kString) return {};
  try {
    return ir::Tensor(at::ones(sizes, exportguard::to_scalar_type(dtype)));
  } catch (const std::exception&) {  // a dtype that torch cannot fill
    return {};
  }
}

/// The steps that one file is given, and what came of them.
class Steps {
 public:
  explicit Steps(std::string file) : file_(std::move(file)) {}

  /// Whether it ran. What one step refuses the next ones are given all the same.
  bool done(const char* name, const std::function<void()>& step) {
    try {
      step();
      return true;
    } catch (const exportguard::Error&) {
      return false;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      std::fprintf(stderr, "%s: %s: %s\n", file_.c_str(), name, text.substr(0, text.find('\n')).c_str());
      failed_ = true;
      return false;
    }
  }

  bool failed() const { return failed_; }

 private:
  std::string file_;
  bool failed_ = false;
};

/// Whether the model ran.
bool try_file(const std::filesystem::path& file, Steps& steps) {
  std::optional<ir::Model> model;
  if (!steps.done("load", [&] { model = serialization::load(file); })) return false;
  std::vector<Value> inputs;
  for (const auto& input : model->graph->inputs()) inputs.push_back(input_for(*input));
  const auto run = [&] { Program(*model).run(inputs); };
  const auto write = [&] { serialization::to_bytes(*model); };

  steps.done("print", [&] { ir::print(*model); });
  steps.done("verify", [&] { ir::verify(*model); });
  const bool ran = steps.done("run", run);
  steps.done("write", write);
  steps.done("search", [&] { exportguard::validation::find_divergence(*model, *model, inputs); });
  steps.done("optimize", [&] { exportguard::optimizer::optimize(*model); });
  steps.done("run what is optimized", run);
  steps.done("write what is optimized", write);
  return ran;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());

  std::size_t ran = 0;
  std::size_t failed = 0;
  for (const auto& file : files) {
    std::printf("%s\r", file.filename().c_str());  // the last one is what a crash was at
    std::fflush(stdout);
    Steps steps(file.filename());
    ran += try_file(file, steps) ? 1 : 0;
    failed += steps.failed() ? 1 : 0;
  }
  std::printf("%zu files: %zu ran, %zu failed otherwise than by an error of the library\n", files.size(), ran, failed);
  return files.empty() || failed > 0 ? 1 : 0;
}
