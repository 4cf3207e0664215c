#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// What is known of values beside their types. Sizes are computed with tensors in ONNX; this follows them.
class KnownElements {
 public:
  static constexpr std::size_t kMost = 64;  ///< elements of a longer tensor are not followed

  /// Of constants and SymInts, too. Null if unknown.
  const Elements* find(const Value& value) const;
  void set(const Value& value, Elements elements);  ///< a no-op for more than `kMost`

 private:
  mutable std::unordered_map<const Value*, Elements> elements_;
};

/// The elements of a constant (initializer, or output of a Constant node); null if the value is none.
const Tensor* constant_of(const Value& value);

/// A symbol that no type of the model has: `_d0`, `_d1`, ….
SymExpr fresh_symbol(Model& model);

/// An operator with what it is given, as inference reads it. Borrows everything.
struct OperatorCall {
  std::string_view domain;
  std::string_view op;
  std::span<Value* const> inputs;  ///< null: left out
  std::span<const NamedAttribute> attributes;
  std::size_t outputs = 1;
  const Source* source = nullptr;
};

/// What one inference reads and writes: the operator's inputs, attributes, and the types of its outputs, which are
/// unknown until set.
///
/// An inference sets what always holds. It raises a GraphError (`fail`) only for what no input could make right, such
/// as axes beyond a known rank.
class InferenceContext {
 public:
  struct Known {
    Model& model;
    KnownElements& elements;
    int opset;  ///< of the operator's domain `""`
  };
  InferenceContext(const OperatorCall& call, const Known& known);

  std::string_view op() const { return call_.op; }
  int opset() const { return known_.opset; }
  Model& model() const { return known_.model; }
  const OperatorCall& call() const { return call_; }

  std::size_t input_count() const { return call_.inputs.size(); }
  std::size_t output_count() const { return outputs_.size(); }
  bool has(std::size_t i) const { return find_input(i) != nullptr; }
  const Value* find_input(std::size_t i) const;           ///< null if left out
  const Type* find_type(std::size_t i) const;             ///< null if left out
  DType dtype(std::size_t i) const;                       ///< undefined if left out or unknown
  std::optional<Shape> shape(std::size_t i) const;        ///< nothing if left out, unknown, or no tensor's
  std::optional<std::size_t> rank(std::size_t i) const;   ///< the same
  std::optional<Elements> elements(std::size_t i) const;  ///< of a small integer tensor
  std::optional<std::vector<std::int64_t>> integers(std::size_t i) const;  ///< of an integer constant
  const Tensor* find_constant(std::size_t i) const;                        ///< initializer, or output of Constant

  const Attribute* find_attribute(std::string_view name) const;
  bool has_attribute(std::string_view name) const { return find_attribute(name) != nullptr; }
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  std::string_view text(std::string_view name, std::string_view fallback) const;
  const std::vector<std::int64_t>* find_integers(std::string_view name) const;
  const Graph* find_graph(std::string_view name) const;
  DType dtype_attribute(std::string_view name, DType fallback) const;

  Dim fresh() const { return fresh_symbol(known_.model); }
  Shape fresh_shape(std::size_t rank) const;
  /// How many sizes operand `i` is a list of; nothing if that is not known, or no tensor has so many axes.
  std::optional<std::size_t> count_of_sizes(std::size_t i) const;
  /// Axis `i` counted from 0. @throws GraphError out of range.
  std::size_t axis(std::int64_t axis, std::size_t rank) const;
  /// Axes counted from 0, in ascending order. @throws GraphError if one is out of range or stands twice.
  std::vector<std::size_t> axes(const std::vector<std::int64_t>& axes, std::size_t rank) const;
  /// The size that both have after broadcasting. @throws GraphError if they are known and do not fit.
  Dim broadcast(const Dim& a, const Dim& b) const;
  Shape broadcast(const Shape& a, const Shape& b) const;
  /// One size of two that must be equal: the constant or named one.
  Dim same(const Dim& a, const Dim& b) const;

  void set(std::size_t i, Type type);  ///< a no-op for an output that the node does not have
  void set(std::size_t i, DType dtype, std::optional<Shape> shape);
  void set_elements(Elements elements);  ///< of output 0

  /// @throws GraphError `Concat: <reason>`.
  [[noreturn]] void fail(const std::string& reason) const;

  std::vector<Type> take_types() && { return std::move(outputs_); }
  std::optional<Elements> take_elements() && { return std::move(elements_); }

 private:
  const OperatorCall& call_;
  const Known& known_;
  std::vector<Type> outputs_;
  std::optional<Elements> elements_;
};

using Inference = void (*)(InferenceContext&);

/// Which inference belongs to which operator. Every file of `src/ir/inference` adds a family.
class InferenceTable {
 public:
  /// Operators of ONNX's own domain. @throws InvalidArgument if one has a row already.
  void add(std::initializer_list<std::string_view> ops, Inference inference);
  void add_in(std::string_view domain, std::initializer_list<std::string_view> ops, Inference inference);

  Inference find(std::string_view domain, std::string_view op) const;  ///< null without a row
  std::vector<std::string> operators() const;                          ///< `MatMul`, `com.microsoft::Gelu`; sorted

  static const InferenceTable& builtin();  ///< every unit; built once

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Rows = std::unordered_map<std::string, Inference, Hash, std::equal_to<>>;
  Rows onnx_;
  std::unordered_map<std::string, Rows, Hash, std::equal_to<>> others_;
};

/// Types of the outputs of an ONNX node as far as operator, attributes, operands and their elements tell, a call of a
/// local function included; what depends on data has fresh symbols, or no shape.
struct InferredTypes {
  std::vector<Type> types;
  std::optional<Elements> elements;  ///< of output 0, if followed
};
InferredTypes infer(const OperatorCall& call, const InferenceContext::Known& known);

/// The type that holds where both hold: sizes that differ become fresh symbols, ranks that differ no shape.
Type merged(Model& model, const Type& a, const Type& b);

/// Infers every ONNX node of the graph and of the graphs nested in it again, in order; a type that says more than the
/// inference does is kept. Outputs of loops are inferred after their bodies.
void infer_graph(Graph& graph, const InferenceContext::Known& known);
void infer_model(Model& model);  ///< the main graph

}  // namespace exportguard::ir
