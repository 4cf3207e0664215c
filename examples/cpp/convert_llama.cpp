// Exports an untrained Llama with its cache under a guard in the embedded interpreter, converts it in C++, saves and
// checks the file, and compares what onnxruntime computes with eager at another batch and with an empty cache.
//
//   example_convert_llama out/llama.onnx
#include <exportguard/exportguard.h>

#include <cstdio>
#include <exception>

namespace {

constexpr const char* kModel = R"(
import inspect, torch, transformers, exportguard

config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=2, vocab_size=256)
model = transformers.LlamaForCausalLM(config).eval()
cache = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"  # up to 5.23

def inputs(batch, seq, past):
    layers = [(torch.randn(batch, 2, past, 16), torch.randn(batch, 2, past, 16)) for _ in range(2)]
    mask = torch.ones(batch, past + seq, dtype=torch.int64)
    return {"input_ids": torch.randint(0, 256, (batch, seq)), "attention_mask": mask,
            cache: exportguard.make_dynamic_cache(layers)}

dynamic = torch.export.Dim.DYNAMIC
shapes = {"input_ids": {0: dynamic, 1: dynamic}, "attention_mask": {0: dynamic, 1: dynamic},
          cache: [{0: dynamic, 2: dynamic} for _ in range(4)]}
)";

constexpr const char* kExport =
    "program = torch.export.export(model, (), inputs(2, 3, 5), dynamic_shapes=shapes, strict=False)";

constexpr const char* kCompare = R"(
import onnxruntime
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

def difference(batch, seq, past):
    call = inputs(batch, seq, past)
    feeds = {"input_ids": call["input_ids"].numpy(), "attention_mask": call["attention_mask"].numpy()}
    for i, layer in enumerate(call[cache].layers):
        feeds[f"past_key_values.{i}.key"] = layer.keys.numpy()
        feeds[f"past_key_values.{i}.value"] = layer.values.numpy()
    logits = session.run(["logits"], feeds)[0]
    return float((torch.from_numpy(logits) - model(**call).logits).abs().max())

with torch.no_grad():
    for sizes in ((2, 3, 5), (1, 1, 7), (3, 4, 0)):
        off = difference(*sizes)
        print(f"batch {sizes[0]}, sequence {sizes[1]}, past {sizes[2]}: largest difference {off:.1e}")
        assert off < 1e-4, off
)";

void convert(exportguard::python::Interpreter& python, const char* path) {
  python.execute(kModel);
  {
    const exportguard::ExportPatches guard;
    python.execute(kExport);
  }  // every patch is gone here
  const exportguard::ir::Model model = exportguard::python::to_onnx("program");
  std::printf("%zu nodes\n", model.graph->node_count());
  exportguard::serialization::save(model, path);
  exportguard::serialization::check_file(path, /*full=*/true);
  python.execute("path = '" + std::string(path) + "'");
  python.execute(kCompare);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s PATH.onnx\n", argv[0]);
    return 2;
  }
  exportguard::python::Interpreter python({.python = VENV_PYTHON});
  convert(python, argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
