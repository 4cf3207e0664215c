#include "exportguard/lowering/empty_products.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <variant>
#include <vector>

#include "exportguard/ir/builder.h"
#include "lowering/sums_of_sizes.h"
#include "lowering/target_facts.h"

namespace exportguard::lowering {
namespace {

bool may_be_empty(const ir::Dim& size) { return !is_sum_of_sizes(size - SymExpr(1)); }

/// Whether one of `sizes` is zero wherever `size` is: it is a summand of it.
bool is_empty_with(const ir::Shape& sizes, const ir::Dim& size) {
  return std::ranges::any_of(sizes, [&](const ir::Dim& other) { return is_sum_of_sizes(size - other); });
}

bool moves_first_axis(const ir::Node& transpose) {
  const ir::Attribute* permutation = transpose.find_attribute("perm");
  return permutation == nullptr || std::get<std::vector<std::int64_t>>(*permutation).front() != 0;
}

/// Whether a Transpose may be moved to just before `value`: there is one above it, with no node between that
/// orders the elements anew.
class Transposes {
 public:
  bool any_above(const ir::Value& value, bool of_first_axis) {
    const ir::Node* node = value.producer();
    if (node == nullptr || !seen_.insert(node).second || is_barrier(*node)) return false;
    if (node->op() == "Transpose" && (!of_first_axis || moves_first_axis(*node))) return true;

    for (std::size_t i = 0; i < node->input_count(); ++i) {
      const ir::Value* operand = node->find_input(i);
      if (operand != nullptr && any_above(*operand, of_first_axis)) return true;
    }
    return false;
  }

 private:
  static bool is_barrier(const ir::Node& node) {
    static constexpr std::string_view kOrdering[] = {"Reshape", "MatMul", "Gemm",      "Conv", "ConvTranspose",
                                                     "Shape",   "Gather", "ScatterND", "LSTM", "GRU"};
    return !node.domain().empty() || !node.subgraphs().empty() ||
           std::ranges::find(kOrdering, node.op()) != std::end(kOrdering);
  }

  std::set<const ir::Node*> seen_;
};

class EmptyProducts {
 public:
  EmptyProducts(ir::Model& model, Target target) : model_(model), target_(target) {}

  void write(ir::Graph& graph) {
    std::vector<ir::Node*> products;
    for (ir::Node& node : graph) {
      for (ir::Graph* body : node.subgraphs()) write(*body);
      if (node.is("", "MatMul") && has_ranks(node)) products.push_back(&node);
    }
    for (ir::Node* product : products) write(*product);
  }

  std::size_t written() const { return written_; }

 private:
  static bool has_ranks(const ir::Node& product) {
    const auto a = product.input(0).type().rank();
    const auto b = product.input(1).type().rank();
    return a && b && *a >= 2 && *b >= 2 && (*a > 2 || *b > 2) && product.output().type().shape;
  }

  void write(ir::Node& product) {
    if (leaves_memory(product) && has_kernel(target_, "Where", product.output().dtype())) write_result(product);
    const bool are_batches = *product.input(0).type().rank() > 2 && *product.input(1).type().rank() > 2;
    for (std::size_t i = 0; are_batches && i < 2; ++i) {
      if (is_merged(product.input(i))) keep_operand(product, i);
    }
  }

  /// A product of a whole batch with one matrix is a product of matrices, unless the batch is transposed within it.
  static bool leaves_memory(const ir::Node& product) {
    const ir::Shape& shape = *product.input(0).type().shape;
    if (!may_be_empty(shape.back()) || is_empty_with(*product.output().type().shape, shape.back())) return false;
    return *product.input(1).type().rank() > 2 || Transposes().any_above(product.input(0), false);
  }

  static bool is_merged(const ir::Value& operand) {
    const ir::Shape& shape = *operand.type().shape;
    const bool is_empty = may_be_empty(shape.back()) || may_be_empty(shape[shape.size() - 2]);
    return is_empty && Transposes().any_above(operand, true);
  }

  /// A product over nothing has the batch axes of the first operand; those of the second one that are others come from
  /// the zeros.
  static ir::Value* zeros_beside(ir::Builder& builder, ir::Node& product) {
    ir::Value* zero = builder.number_like(0, &product.output());
    const ir::Shape& first = *product.input(0).type().shape;
    const ir::Shape& second = *product.input(1).type().shape;
    const ir::Shape& result = *product.output().type().shape;
    if (first.size() < 2 || second.size() <= 2) return zero;  // the second one has no batch axes, or gives all of them
    if (first.size() == result.size() && std::equal(first.begin(), first.end() - 2, result.begin())) return zero;
    std::vector<ir::Size> sizes = builder.sizes_of(&product.input(1));
    sizes[sizes.size() - 2] = sizes[sizes.size() - 1] = 1;
    return builder.filled(sizes, zero);
  }

  void write_result(ir::Node& product) {
    ir::Value& result = product.output();
    ir::Builder builder(model_, {&product.graph(), product.next(), product.source()});
    ir::Value* is_nothing = builder.op("Equal", {builder.dim_of(&product.input(0), -1), builder.ints({0})});
    ir::Value* whole = builder.op("Where", {is_nothing, zeros_beside(builder, product), &result});
    whole->set_type(result.type());

    result.replace_all_uses_with(*whole);
    whole->producer()->set_input(2, &result);
    ++written_;
  }

  void keep_operand(ir::Node& product, std::size_t i) {
    ir::Value& operand = product.input(i);
    ir::Builder builder(model_, product);
    const std::vector<std::int64_t> as_they_are(*operand.type().rank(), 0);
    ir::Value* kept = builder.op("Reshape", {&operand, builder.ints(as_they_are)});
    kept->set_type(operand.type());
    product.set_input(i, kept);
    ++written_;
  }

  ir::Model& model_;
  Target target_;
  std::size_t written_ = 0;
};

}  // namespace

std::size_t keep_empty_products(ir::Model& model, Target target) {
  if (!departs(target, Departure::kEmptyProducts)) return 0;
  EmptyProducts products(model, target);
  products.write(*model.graph);
  for (ir::Function& function : model.functions) products.write(*function.body);
  return products.written();
}

}  // namespace exportguard::lowering
