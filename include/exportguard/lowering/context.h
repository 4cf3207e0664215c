#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::lowering {

using ir::Value;

/// One entry of a shape under construction: a number, or an int64[1] value.
class Size {
 public:
  Size(std::int64_t number) : number_(number) {}  // NOLINT: a number is a size
  Size(int number) : number_(number) {}           // NOLINT
  Size(Value* value) : value_(value) {}           // NOLINT: so is a value
  Value* value() const { return value_; }         ///< null for a number
  std::optional<std::int64_t> number() const { return value_ ? std::nullopt : std::optional(number_); }

 private:
  std::int64_t number_ = 0;
  Value* value_ = nullptr;
};

/// What a lowering reads and writes with. It stands on one torch-level node; new ONNX nodes go in front of that node
/// and take over its source.
///
/// Arguments are addressed by their position in the operator's schema; one that the node leaves out has the schema's
/// default. Reading an argument as something that it is not raises a LoweringError that names the node, the user's
/// source line, the argument and what came. Pointers to values are never null unless the function's name starts with
/// `find_`.
class LoweringContext {
 public:
  const ir::Node& node() const { return *node_; }
  int opset() const;  ///< of the ONNX domain, 18 to 25

  // ---------------------------------------------------------------- arguments
  std::size_t argument_count() const;  ///< of the schema
  bool has(std::size_t i) const;       ///< false for None and beyond the last

  Value* input(std::size_t i);                ///< a tensor
  Value* find_input(std::size_t i);           ///< a tensor, or null for None
  std::vector<Value*> inputs(std::size_t i);  ///< a list of tensors; null for None among them
  bool is_value(std::size_t i) const;         ///< a tensor or a symbolic scalar, rather than a literal

  std::int64_t integer(std::size_t i);  ///< bool counts as 0 and 1; a SymInt whose value is constant as well
  double number(std::size_t i);         ///< an int, float or bool
  bool flag(std::size_t i);
  std::string_view text(std::size_t i);  ///< a string or an enum's name
  DType dtype(std::size_t i);
  std::vector<std::int64_t> integers(std::size_t i);  ///< a list; one int is a list of one
  std::vector<double> numbers(std::size_t i);
  std::optional<std::int64_t> find_integer(std::size_t i);  ///< nothing for None, and for a SymInt
  std::optional<double> find_number(std::size_t i);         ///< nothing for None, and for a SymInt or SymFloat
  std::optional<DType> find_dtype(std::size_t i);           ///< nothing for None

  /// Axis `i` counted from 0 for a tensor of that rank. @throws LoweringError out of range.
  std::int64_t axis(std::size_t i, std::size_t rank);
  /// A list of axes, sorted, counted from 0; None and an empty list are all axes.
  std::vector<std::int64_t> axes(std::size_t i, std::size_t rank);

  /// A number, SymInt, SymFloat or tensor as a tensor of `dtype` (rank 0 unless it is a tensor of another rank).
  Value* scalar(std::size_t i, DType dtype);
  /// An int or SymInt as int64[1].
  Value* dim(std::size_t i);
  /// A list of ints and SymInts, as the sizes of a shape.
  std::vector<Size> sizes(std::size_t i);

  // ---------------------------------------------------------------- facts
  std::size_t rank(const Value* value) const;                 ///< @throws LoweringError if unknown
  const ir::Shape& shape(const Value* value) const;           ///< @throws LoweringError if unknown
  ir::Dim size(const Value* value, std::int64_t axis) const;  ///< negative axes count from the end
  const ir::Type& output_type(std::size_t i = 0) const;       ///< as torch said
  DType output_dtype(std::size_t i = 0) const { return output_type(i).dtype; }
  /// The dtype that torch computes with when these arguments meet (tensors, tensors of rank 0, SymInts, numbers rank
  /// below each other, as in torch.result_type).
  DType promoted(std::initializer_list<std::size_t> arguments);

  // ---------------------------------------------------------------- building
  /// One ONNX node with one output. Its dtype is inferred where the operator tells it; its shape is left open.
  Value* op(std::string_view op, std::initializer_list<Value*> inputs, ir::AttributeList attributes = {});
  Value* op(std::string_view op, const std::vector<Value*>& inputs, ir::AttributeList attributes = {});
  /// One ONNX node with several outputs.
  std::vector<Value*> op_many(std::string_view op, const std::vector<Value*>& inputs, std::size_t outputs,
                              ir::AttributeList attributes = {});
  /// An operator of another domain, `com.microsoft`; its opset import is added.
  Value* op_in(std::string_view domain, std::string_view op, const std::vector<Value*>& inputs,
               ir::AttributeList attributes = {});

  // Constants are shared: the same one is made once in a graph.
  Value* constant(double value, DType dtype);        ///< rank 0
  Value* constant(std::int64_t value, DType dtype);  ///< rank 0
  Value* constant(int value, DType dtype) { return constant(static_cast<std::int64_t>(value), dtype); }
  Value* constant(bool value, DType dtype) { return constant(static_cast<std::int64_t>(value), dtype); }
  Value* constant(ir::Tensor tensor);
  Value* ints(const std::vector<std::int64_t>& values);  ///< int64[n]
  Value* number_like(double value, const Value* like);   ///< rank 0, of that value's dtype
  /// The elements of a constant (initializer, or Constant node); null if the value is none.
  const ir::Tensor* find_constant(const Value* value) const;

  Value* cast(Value* value, DType dtype);  ///< the value itself if it has that dtype
  /// Converts float16 and bfloat16 up to float32, others as they are; for operators that need the range.
  Value* widened(Value* value);

  // Shapes. All are folded to constants where the symbolic shape allows, and computed once for each expression.
  Value* shape_of(Value* value);                        ///< int64[rank]
  Value* dim_of(Value* value, std::int64_t axis);       ///< int64[1]; negative axes count from the end
  Value* dim_scalar(Value* value, std::int64_t axis);   ///< int64 of rank 0
  Value* dim_value(const SymExpr& expression);          ///< int64[1] computed from the sizes of the inputs
  Value* find_dim_value(const SymExpr& expression);     ///< null if a symbol of it comes from no input
  Value* numel_of(Value* value);                        ///< int64 of rank 0
  Value* concat_sizes(const std::vector<Size>& sizes);  ///< int64[n]
  std::vector<Size> sizes_of(Value* value);
  std::vector<Size> output_sizes(std::size_t i = 0);  ///< of the torch-level node's output
  Value* dim_as_scalar(Value* dim);                   ///< int64[1] → rank 0, and back:
  Value* scalar_as_dim(Value* scalar);

  /// Reshape; `-1` may stand once. Right for empty tensors, too.
  Value* reshape(Value* value, const std::vector<Size>& sizes);
  Value* reshape_like_output(Value* value, std::size_t i = 0);
  Value* expand(Value* value, const std::vector<Size>& sizes);
  Value* transpose(Value* value, const std::vector<std::int64_t>& permutation);
  Value* swap_axes(Value* value, std::int64_t a, std::int64_t b);
  Value* unsqueeze(Value* value, const std::vector<std::int64_t>& axes);
  Value* squeeze(Value* value, const std::vector<std::int64_t>& axes);
  Value* concat(const std::vector<Value*>& values, std::int64_t axis);
  /// value[start:end:step] along one axis; sizes may be values.
  Value* slice(Value* value, std::int64_t axis, Size start, Size end, std::int64_t step = 1);
  Value* gather(Value* value, Value* indices, std::int64_t axis);
  Value* filled(const std::vector<Size>& sizes, Value* scalar);  ///< a tensor of that shape full of a rank 0 value
  Value* where(Value* condition, Value* a, Value* b);

  /// Reduction over `axes` (all if empty and `all_if_empty`), axes as an input or attribute as the opset wants.
  Value* reduce(std::string_view op, Value* value, const std::vector<std::int64_t>& axes, bool keepdim);

  // ---------------------------------------------------------------- nested graphs (If, Loop, Scan, higher-order)
  /// The body of a higher-order operator by its attribute name, still at the torch level.
  ir::Graph& body(std::string_view name);
  /// Copies a torch-level graph to where new nodes go, its inputs replaced by `arguments`, and lowers the copy. Returns
  /// what takes the place of its outputs (null for None).
  std::vector<Value*> inlined(const ir::Graph& graph, const std::vector<Value*>& arguments);
  /// Lowers a torch-level graph in place with the same table and options; nested values of this graph are visible in
  /// it.
  void lower_nested(ir::Graph& graph);
  /// Stands on another graph while it lives: `op` and the others then append to `graph`.
  class Inside {
   public:
    Inside(LoweringContext& ctx, ir::Graph& graph);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    struct State;
    LoweringContext& ctx_;
    std::unique_ptr<State> state_;
  };

  // ---------------------------------------------------------------- ends
  void result(Value* value);                        ///< output 0; keeps torch's type and name
  void results(const std::vector<Value*>& values);  ///< null: an output nobody reads
  /// Outputs that are a list (split, unbind) are that many outputs of the node, so `results` again.

  /// @throws LoweringError `cannot lower aten.foo.default (model.layers.3.mlp, modeling_x.py:123): <reason>`
  [[noreturn]] void fail(const std::string& reason) const;
  /// fail(reason) unless the condition holds.
  void require(bool condition, const std::string& reason) const;

  struct Shared;  ///< state of one lowering run, private to the driver
  LoweringContext(Shared& shared, ir::Node& node);
  ~LoweringContext();
  LoweringContext(const LoweringContext&) = delete;
  LoweringContext& operator=(const LoweringContext&) = delete;

 private:
  const ir::Argument& argument(std::size_t i) const;
  [[noreturn]] void wrong_argument(std::size_t i, std::string_view expected) const;
  ir::Node& emit(ir::NodeSpec spec);

  Shared& shared_;
  ir::Node* node_;
  ir::Graph* graph_;  // where new nodes go
  ir::Node* before_;  // in front of this one; null: at the end
};

}  // namespace exportguard::lowering
