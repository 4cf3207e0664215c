#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/table.h"

/// ONNX runtimes have no complex arithmetic, so nodes on complex tensors are
/// rewritten, still at the torch level, as nodes on two real tensors of the
/// same shape.
namespace exportguard::lowering {

using ir::Value;

struct Parts {
  Value* real;
  Value* imaginary;
};

/// An operand or a literal of a node to be written.
using Item = std::variant<Value*, ir::Argument>;

DType real_dtype(DType dtype);             ///< of the parts of a complex dtype; any other stays
ir::Type real_type(const ir::Type& type);  ///< with the dtype of the parts
ir::Argument literal(std::int64_t number);
ir::Argument literal(double number);

/// The complex values of one graph and their parts.
class ComplexValues {
 public:
  explicit ComplexValues(ir::Graph& graph) : graph_(graph) {}

  ir::Graph& graph() const { return graph_; }
  /// The parts of a value that a rewritten node gave, or of an initializer,
  /// which is split without a copy.
  /// @throws LoweringError for a value that nobody has split.
  Parts parts(Value& value);
  void set(Value& value, Parts parts) { parts_.insert_or_assign(&value, parts); }

 private:
  ir::Graph& graph_;
  std::unordered_map<const Value*, Parts> parts_;
};

/// One node to be rewritten: what a rule reads and writes with.
class ComplexSite {
 public:
  ComplexSite(ComplexValues& values, ir::Node& node, int opset) : values_(values), node_(node), opset_(opset) {}

  const ir::Node& node() const { return node_; }
  int opset() const { return opset_; }
  bool has(std::size_t argument) const;               ///< false for None and beyond the last
  const ir::Argument& argument(std::size_t i) const;  ///< None beyond the last
  bool is_complex(std::size_t argument) const;        ///< a complex tensor or number
  Value& value(std::size_t argument) const;           ///< @throws LoweringError unless a tensor
  std::int64_t integer(std::size_t argument) const;   ///< @throws LoweringError unless an integer literal
  std::vector<std::int64_t> integers(std::size_t argument) const;
  Parts parts(std::size_t argument) { return values_.parts(value(argument)); }
  /// An operand that may be real: its imaginary part is missing then. Numbers
  /// are literals.
  std::pair<Item, std::optional<Item>> number(std::size_t argument);

  /// An aten node in front of this one.
  Value* emit(std::string_view op, std::vector<Item> items, ir::Type type);
  Value* onnx(std::string_view op, std::vector<Value*> inputs, std::vector<ir::NamedAttribute> attributes,
              ir::Type type);
  Value* integers_constant(const std::vector<std::int64_t>& numbers);
  Value* zeros_like(Value& value);
  /// This node once more, on real tensors: `operands` take the place of its
  /// operands.
  std::vector<Value*> again(const std::vector<Value*>& operands, std::vector<ir::Argument> arguments);
  /// Writes a node of the domain "complex" with this node's operator and arguments, for a row of the table: a complex
  /// operand is the list of its parts there, a complex output two outputs.
  void leave_to_row();
  /// Writes this node once more with its bodies, which take and give parts side by side.
  void leave_to_bodies();
  Parts in_parts(Value& value) { return values_.parts(value); }

  ir::Type output_type(std::size_t i = 0) const { return real_type(node_.output(i).type()); }
  void give(Parts parts, std::size_t output = 0) { values_.set(node_.output(output), parts); }
  void give_real(Value* value) { node_.output().replace_all_uses_with(*value); }
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  ir::Argument argument_of_row(const ir::Argument& argument, std::vector<Value*>& operands);
  /// The arguments with the parts of complex operands side by side, in lists too.
  std::vector<ir::Argument> side_by_side(const std::vector<ir::Argument>& arguments, std::vector<Value*>& operands);
  std::size_t parts_of_output(std::size_t i) const { return exportguard::is_complex(node_.output(i).dtype()) ? 2 : 1; }
  std::vector<ir::Type> types_of_parts() const;  ///< of the outputs
  void give_parts_of(const ir::Node& made);      ///< whose outputs are those of this node as parts

  ComplexValues& values_;
  ir::Node& node_;
  int opset_;
};

/// A complex tensor goes into the node or comes out.
bool touches_complex(const ir::Node& node);

/// Rewrites every node of the graph that touches a complex tensor. Complex
/// inputs and outputs of the graph become real ones with a last axis of 2, as
/// `torch.view_as_real` shows them.
/// @throws LoweringError with every operator that has no rule.
void separate_complex(ir::Graph& graph, const LoweringTable& table, int opset);

}  // namespace exportguard::lowering
