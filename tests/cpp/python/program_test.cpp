#include "exportguard/python/program.h"

#include <string>

#include "exportguard/guard/export_patches.h"
#include "exportguard/serialization/onnx_file.h"
#include "python/python_test.h"

namespace exportguard::python {
namespace {

/// Both ways from the ExportedProgram `program` to the bytes of a model.
class ConversionInBothLanguages : public PythonTest {
 protected:
  ConversionInBothLanguages() { exec("import torch, exportguard"); }

  static std::string from_python() {
    return eval("exportguard.to_onnx(program, opset=22).to_bytes()").cast<std::string>();
  }
  static std::string from_cpp() { return serialization::to_bytes(to_onnx("program", {.lowering = {.opset = 22}})); }
  static void expect_same() {
    const std::string python = from_python();
    EXPECT_TRUE(python == from_cpp());
    EXPECT_GT(python.size(), 100U);
  }
};

TEST_F(ConversionInBothLanguages, GivesTheSameBytesForAnOperatorThatTorchTakesApart) {
  exec(R"(
library = torch.library.Library("both_languages", "DEF")
library.define("twice_plus(Tensor x, Tensor y, *, float scale=2.0) -> Tensor")
library.impl("twice_plus", lambda x, y, *, scale=2.0: x * scale + y, "CompositeImplicitAutograd")

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.ops.both_languages.twice_plus(x, y).relu()
program = torch.export.export(Model(), (torch.rand(2, 3), torch.rand(2, 3)), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},) * 2)
)");
  expect_same();
}

TEST_F(ConversionInBothLanguages, GivesTheSameBytesForWritesAndBranches) {
  exec(R"(
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.weight = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        self.count.add_(1)
        y = x.clone()
        y[:, 0] = 2
        return torch.cond(x.sum() > 0, lambda v: (v * self.weight,), lambda v: (v - 1,), (y,))
program = torch.export.export(Model(), (torch.rand(2, 3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
)");
  expect_same();
}

TEST_F(ConversionInBothLanguages, ChecksTheGuardsOfAProgram) {
  exec(R"(
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * 2 if x.shape[0] == y.shape[0] + 1 else x
auto = torch.export.Dim.AUTO
program = torch.export.export(Model(), (torch.rand(4, 3), torch.rand(3, 3)), dynamic_shapes=({0: auto}, {0: auto}))
)");
  expect_same();
  EXPECT_NE(from_cpp().find("only sizes with x.shape[0] == "), std::string::npos);

  const ConversionOptions unchecked{.lowering = {.opset = 22}, .check_sizes = false};
  const std::string without = serialization::to_bytes(to_onnx("program", unchecked));
  EXPECT_EQ(without.find("only sizes with"), std::string::npos);
  const std::string options = "options=exportguard.ExportOptions(check_sizes=False)";
  EXPECT_TRUE(without ==
              eval(("exportguard.to_onnx(program, opset=22, " + options + ").to_bytes()").c_str()).cast<std::string>());
}

TEST_F(ConversionInBothLanguages, GivesTheSameBytesForALlamaWithItsCache) {
  exec(R"(
import inspect
import transformers
config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                                  num_key_value_heads=1, vocab_size=64)
model = transformers.LlamaForCausalLM(config).eval()
cache = exportguard.make_dynamic_cache([(torch.zeros(2, 1, 5, 16), torch.zeros(2, 1, 5, 16)) for _ in range(2)])
name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"  # up to transformers 5.23
inputs = {"input_ids": torch.zeros(2, 3, dtype=torch.int64), "attention_mask": torch.ones(2, 8, dtype=torch.int64), name: cache}
dynamic = torch.export.Dim.DYNAMIC
shapes = {"input_ids": {0: dynamic, 1: dynamic}, "attention_mask": {0: dynamic, 1: dynamic}, name: [{0: dynamic, 2: dynamic} for _ in range(4)]}
)");
  {
    const ExportPatches guard;
    exec("program = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)");
  }
  expect_same();
}

}  // namespace
}  // namespace exportguard::python
