#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

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

/// Writes ONNX nodes at one place of a graph, with one source. Types of what it makes are inferred; constants are
/// shared, and a size is computed once.
///
/// What was computed is used again further on, so a builder goes through a graph in one direction: new nodes stand in
/// front of the place, one after the other. For another place make another builder; that is cheap.
///
/// Constants are initializers of the outermost graph around the place (a function's body holds its own; in the file
/// they become Constant nodes there), so that nested graphs can read them.
///
/// Wrong calls raise a GraphError that names the operator, what was expected and what came, and leave the graph as it
/// was.
class Builder {
 public:
  struct Place {
    Graph* graph = nullptr;
    Node* before = nullptr;          ///< new nodes stand in front of it; null: at the end
    const Source* source = nullptr;  ///< of new nodes
  };

  explicit Builder(Model& model);             ///< at the end of the main graph
  Builder(Model& model, Node& where);         ///< in front of `where`, with its source
  Builder(Model& model, Function& function);  ///< at the end of a local function of the model
  Builder(Model& model, const Place& place);
  virtual ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Model& model() const;
  Graph& graph() const { return *place_.graph; }  ///< where new nodes go
  int opset() const;                              ///< of the ONNX domain, 18 to 25
  const Source* source() const { return place_.source; }
  void set_source(const Source* source) { place_.source = source; }  ///< of the nodes from here on

  // ---------------------------------------------------------------- facts
  std::size_t rank(const Value* value) const;             ///< @throws GraphError if unknown
  const Shape& shape(const Value* value) const;           ///< @throws GraphError if unknown
  Dim size(const Value* value, std::int64_t axis) const;  ///< negative axes count from the end
  /// The elements of a small integer tensor as expressions of the inputs' sizes; null if unknown.
  const Elements* find_elements(const Value* value) const;
  /// The elements of a constant (initializer, or Constant node); null if the value is none.
  const Tensor* find_constant(const Value* value) const;

  // ---------------------------------------------------------------- nodes
  /// One ONNX node with one output.
  Value* op(std::string_view op, std::initializer_list<Value*> inputs, AttributeList attributes = {});
  Value* op(std::string_view op, const std::vector<Value*>& inputs, AttributeList attributes = {});
  /// One ONNX node with several outputs.
  std::vector<Value*> op_many(std::string_view op, const std::vector<Value*>& inputs, std::size_t outputs,
                              AttributeList attributes = {});
  /// An operator of another domain, `com.microsoft`, or a local function; an opset import is added, of version 1 unless
  /// there is one.
  Value* op_in(std::string_view domain, std::string_view op, const std::vector<Value*>& inputs,
               AttributeList attributes = {});
  std::vector<Value*> op_many_in(std::string_view domain, std::string_view op, const std::vector<Value*>& inputs,
                                 std::size_t outputs, AttributeList attributes = {});

  // Constants are shared: the same one is made once in a graph.
  Value* constant(double value, DType dtype);        ///< rank 0
  Value* constant(std::int64_t value, DType dtype);  ///< rank 0
  Value* constant(int value, DType dtype) { return constant(static_cast<std::int64_t>(value), dtype); }
  Value* constant(bool value, DType dtype) { return constant(static_cast<std::int64_t>(value), dtype); }
  Value* constant(Tensor tensor);
  Value* ints(const std::vector<std::int64_t>& values);  ///< int64[n]
  Value* number_like(double value, const Value* like);   ///< rank 0, of that value's dtype

  Value* cast(Value* value, DType dtype);  ///< the value itself if it has that dtype
  /// Converts float16 and bfloat16 up to float32, others as they are; for operators that need the range.
  Value* widened(Value* value);

  // ---------------------------------------------------------------- sizes
  // All are folded to constants where the symbolic shape allows, and computed once for each expression.
  Value* shape_of(Value* value);                        ///< int64[rank]
  Value* dim_of(Value* value, std::int64_t axis);       ///< int64[1]; negative axes count from the end
  Value* dim_scalar(Value* value, std::int64_t axis);   ///< int64 of rank 0
  Value* dim_value(const SymExpr& expression);          ///< int64[1] computed from the sizes of the inputs
  Value* find_dim_value(const SymExpr& expression);     ///< null if a symbol of it comes from no input
  SymExpr fresh_size();                                 ///< of which nothing is known
  Value* numel_of(Value* value);                        ///< int64 of rank 0
  Value* concat_sizes(const std::vector<Size>& sizes);  ///< int64[n]
  std::vector<Size> sizes_of(Value* value);
  Value* dim_as_scalar(Value* dim);  ///< int64[1] → rank 0, and back:
  Value* scalar_as_dim(Value* scalar);
  /// Remembers that sizes of that type can be read off `value`.
  void note_sizes(Value& value, const Type& type);

  // ---------------------------------------------------------------- shapes
  Value* reshape(Value* value, const std::vector<Size>& sizes);  ///< `-1` may stand once; right for empty tensors, too
  Value* expand(Value* value, const std::vector<Size>& sizes);
  Value* transpose(Value* value, const std::vector<std::int64_t>& permutation);
  Value* swap_axes(Value* value, std::int64_t a, std::int64_t b);
  Value* unsqueeze(Value* value, const std::vector<std::int64_t>& axes);
  Value* squeeze(Value* value, const std::vector<std::int64_t>& axes);
  Value* concat(const std::vector<Value*>& values, std::int64_t axis);
  /// value[start:end:step] along one axis; sizes may be values.
  Value* slice(Value* value, std::int64_t axis, Size start, Size end, Size step = 1);
  Value* gather(Value* value, Value* indices, std::int64_t axis);
  Value* filled(const std::vector<Size>& sizes, Value* scalar);  ///< a tensor of that shape full of a rank 0 value
  /// Reduction over `axes` (all if empty).
  Value* reduce(std::string_view op, Value* value, const std::vector<std::int64_t>& axes, bool keepdim);

  // ---------------------------------------------------------------- nested graphs (If, Loop, Scan)
  /// Stands at the end of another graph while it lives: of a nested one, which sees what was computed around it, or of
  /// a function's body, which sees nothing.
  class Inside {
   public:
    Inside(Builder& builder, Graph& graph);
    Inside(Builder& builder, Function& function);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Builder& builder_;
    Place outside_;
  };
  /// Infers the outputs of a node again: of If, Loop or Scan after their bodies were filled.
  void infer_again(Node& node);

  class Memory;  ///< what was computed where; private to the builder and its heirs

 protected:
  Builder(Memory& memory, const Place& place);  ///< `memory` outlives the builder
  /// @throws GraphError with the reason; an heir names what it stands for.
  [[noreturn]] virtual void fail(const std::string& reason) const;
  void require(bool condition, const std::string& reason) const;
  Memory& memory() const { return *memory_; }
  const Place& place() const { return place_; }

 private:
  Node& emit(NodeSpec spec);
  Value* shared_constant(const std::string& key, const std::function<Tensor()>& make);

  std::unique_ptr<Memory> own_memory_;
  Memory* memory_;
  Place place_;
};

}  // namespace exportguard::ir
