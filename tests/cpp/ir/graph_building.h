#pragma once

#include <string>
#include <utility>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// What a test needs of an ONNX node: operator, operands, the name of its one output.
inline NodeSpec onnx(std::string op, std::vector<Value*> inputs) {
  NodeSpec spec;
  spec.op = std::move(op);
  spec.inputs = std::move(inputs);
  return spec;
}

inline Value& add(Graph& graph, std::string op, std::vector<Value*> inputs, std::string name = {}) {
  Value& value = graph.append(onnx(std::move(op), std::move(inputs))).output();
  value.set_name(std::move(name));
  return value;
}

inline Type f32(Shape shape) { return Type::tensor(DType::kFloat32, std::move(shape)); }

/// The operators in order: what a test compares with.
inline std::vector<std::string> operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph) names.push_back(node.op());
  return names;
}

}  // namespace exportguard::ir
