// Lowers a torch-level graph given as text and saves it as ONNX: the library without Python.
#include <exportguard/exportguard.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) try {
  exportguard::ir::Model model;
  model.graph = exportguard::ir::parse_graph(R"(
    graph(%x: f32[batch,4], %y: f32[batch,4]):
      %sum: f32[batch,4] = aten.add.Tensor(%x, %y)
      %top: f32[batch,4] = aten.relu.default(%sum)
      return (%top))");
  exportguard::lowering::lower(model);
  std::puts(exportguard::ir::print(*model.graph).c_str());
  if (argc > 1) exportguard::serialization::save(model, argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
