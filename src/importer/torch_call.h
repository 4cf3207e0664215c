#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::importer {

/// An argument of a new torch-level node: a value of the graph, a literal, or a list with values in it.
class CallArgument {
 public:
  CallArgument(ir::Value& value) : values_{&value}, literal_{ir::Argument::Operand{0}} {}  // NOLINT
  CallArgument(std::int64_t number) : literal_{number} {}                                  // NOLINT
  CallArgument(bool flag) : literal_{flag} {}                                              // NOLINT
  CallArgument(DType dtype) : literal_{dtype} {}                                           // NOLINT
  explicit CallArgument(ir::Argument literal) : literal_(std::move(literal)) {}

  /// A list of tensors; null for None.
  static CallArgument list(const std::vector<ir::Value*>& values);

  /// Argument `position` of `node` as it stands there.
  static CallArgument of(const ir::Node& node, std::size_t position);

 private:
  friend class TorchCall;
  std::vector<ir::Value*> values_;  // what the operands in `literal_` count from
  ir::Argument literal_;
};

/// Puts new torch-level nodes in front of a node; they take over its source.
class TorchCall {
 public:
  explicit TorchCall(ir::Node& before) : graph_(before.graph()), before_(&before) {}
  /// At the end of a graph, without a source.
  explicit TorchCall(ir::Graph& graph) : graph_(graph) {}

  ir::Node& node(std::string domain, std::string op, const std::vector<CallArgument>& arguments,
                 std::vector<ir::Type> outputs) const;

  /// A node of domain `aten` with one output.
  ir::Value& aten(std::string op, const std::vector<CallArgument>& arguments, ir::Type type) const;

  const ir::Node* before() const { return before_; }  ///< null at the end of a graph

 private:
  ir::Graph& graph_;
  ir::Node* before_ = nullptr;
};

/// The value that argument `position` of `node` is; null for a literal, a list, and one that is left out.
ir::Value* find_operand(const ir::Node& node, std::size_t position);

/// Every value in argument `position`: one for a tensor, any number for a list.
std::vector<ir::Value*> operands(const ir::Node& node, std::size_t position);

/// The literal integer at that position, or the constant value of a SymInt; nothing otherwise.
std::optional<std::int64_t> find_integer(const ir::Node& node, std::size_t position);

/// `aten.add_.Tensor (model.layers.3, modeling_x.py:12)`, for errors.
std::string place_of(const ir::Node& node);

}  // namespace exportguard::importer
