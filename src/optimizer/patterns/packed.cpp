#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "exportguard/ir/joined.h"
#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// A product of one value with a weight, and the sum with its bias if that is all that reads the product.
struct Projection {
  ir::Node* product = nullptr;
  ir::Node* sum = nullptr;  // null without a bias
  Value* bias = nullptr;

  Value& weight() const { return product->input(1); }
  Value& result() const { return sum ? sum->output() : product->output(); }
  std::int64_t width() const { return weight().initializer()->shape()[1]; }
};

bool is_dense_float(const ir::Tensor& tensor) { return is_floating(tensor.dtype()) && bit_width(tensor.dtype()) >= 16; }

bool is_weight(const Value* value, std::size_t rank) {
  const ir::Tensor* tensor = value ? value->initializer() : nullptr;
  return tensor && tensor->shape().size() == rank && tensor->numel() > 0 && is_dense_float(*tensor) &&
         has_one_use(*value);
}

bool is_product(const ir::Use& use) {
  const ir::Node& node = use.user();
  return node.is("", "MatMul") && use.index() == 0 && is_weight(node.find_input(1), 2);
}

void find_bias(Projection& projection) {
  const Value& product = projection.product->output();
  if (!has_one_use(product)) return;
  ir::Node& reader = product.uses().front()->user();
  if (!reader.is("", "Add") || &reader.graph() != &projection.product->graph()) return;
  Value* bias = other_operand(reader, &product);
  if (!is_weight(bias, 1) || bias->initializer()->shape()[0] != projection.width()) return;
  projection.sum = &reader;
  projection.bias = bias;
}

/// Products of what `node` reads, of the same graph and the same inner size, in their order.
std::vector<Projection> projections_beside(const ir::Node& node) {
  std::vector<Projection> found;
  const auto rows = node.input(1).initializer()->shape()[0];
  for (const ir::Use* use : node.input(0).uses()) {
    if (!is_product(*use) || &use->user().graph() != &node.graph()) continue;
    Projection projection{.product = &use->user()};
    if (projection.weight().dtype() != node.input(1).dtype() || projection.weight().initializer()->shape()[0] != rows)
      continue;
    find_bias(projection);
    found.push_back(projection);
  }
  std::ranges::sort(found, [](const Projection& a, const Projection& b) { return a.product->is_before(*b.product); });
  const bool have_bias =
      std::ranges::all_of(found, [](const Projection& projection) { return projection.sum != nullptr; });
  if (!have_bias) {
    for (Projection& projection : found) projection.sum = nullptr;
  }
  return found;
}

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (const auto word : std::views::split(name, '.')) words.emplace_back(word.begin(), word.end());
  return words;
}

/// `a.q.weight`, `a.k.weight` → `a.q+k.weight`.
std::string joined_name(const std::vector<const Value*>& parts) {
  std::vector<std::string_view> common = words_of(parts.front()->name());
  std::vector<std::vector<std::string_view>> all;
  for (const Value* part : parts) all.push_back(words_of(part->name()));
  const bool is_alike = std::ranges::all_of(all, [&](const auto& words) { return words.size() == common.size(); });
  if (!is_alike) {
    const auto names = parts | std::views::transform([](const Value* part) { return std::string_view(part->name()); });
    return fmt::format("{}", fmt::join(std::vector<std::string_view>(names.begin(), names.end()), "+"));
  }
  std::vector<std::string> words;
  for (std::size_t i = 0; i < common.size(); ++i) {
    std::vector<std::string_view> different;
    for (const auto& name : all) {
      if (different.empty() || name[i] != common[i]) different.push_back(name[i]);
    }
    words.push_back(fmt::format("{}", fmt::join(different, "+")));
  }
  return fmt::format("{}", fmt::join(words, "."));
}

Value& joined(Rewriter& rewriter, const std::vector<const Value*>& parts, std::int64_t axis) {
  std::vector<ir::Tensor> tensors;
  for (const Value* part : parts) tensors.push_back(*part->initializer());
  return rewriter.weight(joined_name(parts), ir::joined(tensors, axis));
}

ir::Type with_width(const Value& like, std::int64_t width) {
  ir::Type type = like.type();
  if (type.shape && !type.shape->empty()) type.shape->back() = ir::Dim(width);
  return type;
}

void pack(Rewriter& rewriter, const std::vector<Projection>& projections) {
  ir::Node& root = rewriter.root();
  ir::Node& first = *projections.front().product;
  if (&root != &first) root.graph().move_before(root, first);

  std::vector<const Value*> weights;
  std::vector<const Value*> biases;
  std::vector<std::int64_t> widths;
  std::vector<ir::Type> types;
  for (const Projection& projection : projections) {
    weights.push_back(&projection.weight());
    if (projection.sum) biases.push_back(projection.bias);
    widths.push_back(projection.width());
    types.push_back(projection.result().type());
  }

  std::int64_t total = 0;
  for (const std::int64_t width : widths) total += width;
  const ir::Type type = with_width(first.output(), total);
  Value* all = &rewriter.op("MatMul", {&first.input(0), &joined(rewriter, weights, 1)}, {}, type);
  if (!biases.empty()) all = &rewriter.op("Add", {all, &joined(rewriter, biases, 0)}, {}, type);

  const auto parts = rewriter.op_many("Split", {all, &rewriter.ints(widths)}, {{"axis", -1}}, std::move(types));
  for (std::size_t i = 0; i < parts.size(); ++i) rewriter.replace(projections[i].result(), *parts[i]);
}

Match match_projections(const Facts&, ir::Node& node) {
  if (!is_weight(node.find_input(1), 2)) return Match::no("the second operand is no weight of its own");
  if (node.input(0).type().rank().value_or(0) < 2) return Match::no("the first operand is not known to be a matrix");
  std::vector<Projection> projections = projections_beside(node);
  if (projections.size() < 2) return Match::no("no other product of the same operand");
  return Match([projections = std::move(projections)](Rewriter& rewriter) { pack(rewriter, projections); });
}

}  // namespace

void populate_packed(PatternTable& table) {
  table.add({.name = "packed_projections",
             .matches = "`MatMul` of one value with several weights, each read there alone, all with a bias or none",
             .makes = "one `MatMul` with the weights side by side, a view until its bytes are written, and `Split`",
             .roots = {"MatMul"},
             .match = match_projections,
             .stage = Stage::kPack,
             .target = Target::kOnnxRuntime});
}

}  // namespace exportguard::optimizer
