#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/ir/builder.h"
#include "exportguard/ir/graph.h"
#include "exportguard/lowering/target.h"

namespace exportguard::lowering {

using ir::Size;
using ir::Value;

/// What a lowering reads and writes with: a builder in front of one torch-level node, whose source new nodes take over,
/// and that node's arguments.
///
/// Arguments are addressed by their position in the operator's schema; one that the node leaves out has the schema's
/// default. Reading an argument as something that it is not raises a LoweringError that names the node, the user's
/// source line, the argument and what came. Pointers to values are never null unless the function's name starts with
/// `find_`.
class LoweringContext : public ir::Builder {
 public:
  const ir::Node& node() const { return *node_; }
  Target target() const;  ///< what the model is written for

  // ---------------------------------------------------------------- arguments
  std::size_t argument_count() const;                 ///< of the schema
  bool has(std::size_t i) const;                      ///< false for None and beyond the last
  const ir::Argument& argument(std::size_t i) const;  ///< as it is; the schema's default if left out

  Value* input(std::size_t i);                ///< a tensor
  Value* find_input(std::size_t i);           ///< a tensor, or null for None
  std::vector<Value*> inputs(std::size_t i);  ///< a list of tensors; null for None among them
  bool is_value(std::size_t i) const;         ///< a tensor or a symbolic scalar, rather than a literal

  std::int64_t integer(std::size_t i);  ///< bool counts as 0 and 1; a SymInt whose value is constant as well
  double number(std::size_t i);         ///< an int, float or bool
  double number_or(std::size_t i, double missing);  ///< `missing` for None; not for a SymFloat, as with `find_number`
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
  const ir::Type& output_type(std::size_t i = 0) const;  ///< as torch said
  DType output_dtype(std::size_t i = 0) const { return output_type(i).dtype; }
  /// The dtype that torch computes with when these arguments meet (tensors, tensors of rank 0, SymInts, numbers rank
  /// below each other, as in torch.result_type).
  DType promoted(std::initializer_list<std::size_t> arguments);

  // ---------------------------------------------------------------- building
  std::vector<Size> output_sizes(std::size_t i = 0);  ///< of the torch-level node's output
  Value* reshape_like_output(Value* value, std::size_t i = 0);
  Value* where(Value* condition, Value* a, Value* b);  ///< in a dtype that has a kernel; the result has that of `a`

  // ---------------------------------------------------------------- nested graphs (If, Loop, Scan, higher-order)
  /// The body of a higher-order operator by its attribute name, still at the torch level.
  ir::Graph& body(std::string_view name);
  /// Copies a torch-level graph to where new nodes go, its inputs replaced by `arguments`, and lowers the copy. Returns
  /// what takes the place of its outputs (null for None).
  std::vector<Value*> inlined(const ir::Graph& graph, const std::vector<Value*>& arguments);
  /// Lowers a torch-level graph in place with the same table and options; nested values of this graph are visible in
  /// it.
  void lower_nested(ir::Graph& graph);

  // ---------------------------------------------------------------- ends
  void result(Value* value);                        ///< output 0; keeps torch's type and name
  void results(const std::vector<Value*>& values);  ///< null: an output nobody reads
  /// Outputs that are a list (split, unbind) are that many outputs of the node, so `results` again.

  /// @throws LoweringError `cannot lower aten.foo.default (model.layers.3.mlp, modeling_x.py:123): <reason>`
  [[noreturn]] void fail(const std::string& reason) const final;
  /// fail(reason) unless the condition holds.
  using ir::Builder::require;

  struct Shared;  ///< state of one lowering run, private to the driver
  LoweringContext(Shared& shared, ir::Node& node);
  ~LoweringContext() override;

 private:
  [[noreturn]] void wrong_argument(std::size_t i, std::string_view expected) const;

  Shared& shared_;
  ir::Node* node_;
};

}  // namespace exportguard::lowering
