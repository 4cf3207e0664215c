#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "exportguard/common/sizes.h"
#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

// ------------------------------------------------------------------------------------------------ signs

constexpr int kMostVisits = 16;  // of nodes, for one question

/// `visits` are those that are left.
bool is_never_negative(const Facts& facts, const Value* value, int& visits);

bool is_one_of(const ir::Node& node, std::initializer_list<std::string_view> names) {
  return node.domain().empty() && std::ranges::find(names, node.op()) != names.end();
}

bool are_never_negative(const Facts& facts, const ir::Node& node, int& visits) {
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    if (!is_never_negative(facts, node.find_input(i), visits)) return false;
  }
  return true;
}

/// Every window has an element.
bool has_narrow_pads(const ir::Node& pool) {
  const auto* kernel = find_ints_attribute(pool, "kernel_shape");
  const auto* pads = find_ints_attribute(pool, "pads");
  if (kernel == nullptr || pads == nullptr) return kernel != nullptr;
  for (std::size_t i = 0; i < pads->size(); ++i) {
    if ((*pads)[i] >= kernel->at(i % kernel->size())) return false;
  }
  return true;
}

bool is_never_negative(const Facts& facts, const Value* value, int& visits) {
  const ir::Node* node = value ? value->producer() : nullptr;
  if (node == nullptr || --visits < 0) return false;
  if (is_one_of(*node, {"Relu", "Sigmoid", "HardSigmoid", "Abs", "Exp", "Sqrt", "Softmax"})) return true;
  if (is_one_of(*node, {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose"}))
    return is_never_negative(facts, node->find_input(0), visits);
  if (is_one_of(*node, {"Add", "Mul", "Concat"})) return are_never_negative(facts, *node, visits);
  if (is_one_of(*node, {"Clip"})) return facts.number(node->find_input(1)).value_or(-1) >= 0;
  if (is_one_of(*node, {"MaxPool"}))
    return has_narrow_pads(*node) && is_never_negative(facts, node->find_input(0), visits);
  return false;
}

// ------------------------------------------------------------------------------------------------ windows

constexpr std::int64_t kMostElements = std::int64_t{1} << 16;  // of the weights that only sum up

/// A pool of the flags for NaN of `x`, as flags again.
struct Marked {
  const ir::Node* pool = nullptr;
  Value* x = nullptr;
};

std::optional<Marked> marked(const Value* flags) {
  const ir::Node* back = producer_of(flags, "Cast");
  const ir::Node* pool = back ? producer_of(back->find_input(0), "MaxPool") : nullptr;
  const ir::Node* to_number = pool ? producer_of(pool->find_input(0), "Cast") : nullptr;
  const ir::Node* is_nan = to_number ? producer_of(to_number->find_input(0), "IsNaN") : nullptr;
  return is_nan ? std::optional(Marked{pool, &is_nan->input(0)}) : std::nullopt;
}

/// The weights of a convolution of each channel by itself that is minus the sum of a window.
std::optional<std::vector<std::int64_t>> sizes_of_sum(const ir::Node& pool, const Value& x) {
  const auto* kernel = find_ints_attribute(pool, "kernel_shape");
  const auto& shape = shape_of(x);
  const auto channels = shape && shape->size() > 2 ? (*shape)[1].constant() : std::nullopt;
  if (kernel == nullptr || !channels || *channels < 1) return std::nullopt;
  std::vector<std::int64_t> sizes = {*channels, 1};
  sizes.insert(sizes.end(), kernel->begin(), kernel->end());
  const auto count = element_count(sizes);
  return count && *count <= kMostElements ? std::optional(sizes) : std::nullopt;
}

bool puts_nan(const Facts& facts, const ir::Node& where) {
  const auto number = facts.number(where.find_input(1));
  return number && std::isnan(*number);
}

/// Padding by itself, and gaps within a window, which may be larger than the picture then.
bool has_other_windows(const ir::Node& pool) {
  const ir::Attribute* automatic = pool.find_attribute("auto_pad");
  const auto* gaps = find_ints_attribute(pool, "dilations");
  return (automatic && std::get<std::string>(*automatic) != "NOTSET") ||
         (gaps && std::ranges::any_of(*gaps, [](std::int64_t gap) { return gap != 1; }));
}

/// A lowering marks the windows with a NaN, as runtimes drop it from a maximum: with a second pool, of the flags of all
/// elements. Of numbers that are not negative, minus the sum of a window has nothing that is positive, and is NaN where
/// one of them is and nowhere else: what Relu leaves of it is to be added to the maximum. A convolution and an addition
/// stay in the layout that runtimes have for pictures, where flags and choices leave it.
Match match_marked_pool(const Facts& facts, ir::Node& node) {
  const auto flagged = marked(node.find_input(0));
  if (!flagged || !puts_nan(facts, node)) return Match::no("it does not put NaN where a pool of flags for NaN says so");
  Value& x = *flagged->x;
  Value& found = node.input(2);
  const ir::Node* pool = producer_of(&found, "MaxPool");
  if (pool == nullptr || &pool->input(0) != &x || &pool->output(0) != &found)
    return Match::no("the other numbers are no pool of the same tensor");
  int visits = kMostVisits;
  if (x.dtype() != DType::kFloat32 || !is_never_negative(facts, &x, visits))
    return Match::no("the pooled numbers may be negative");
  if (int_attribute(*flagged->pool, "ceil_mode", 0) != 0) return Match::no("a convolution has other windows");
  if (has_other_windows(*flagged->pool))
    return Match::no("a convolution takes no such windows, or refuses small pictures");
  if (!same_shape(found, node.output()) || !same_shape(node.input(0), node.output()))
    return Match::no("the flags or the numbers are stretched");
  const auto sizes = sizes_of_sum(*flagged->pool, x);
  if (!sizes) return Match::no("the channels are not known, or too many for weights of their own");
  return Match([=, &node, &x, &found](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    std::vector<ir::NamedAttribute> attributes = attributes_of(*flagged->pool);
    std::erase_if(attributes, [](const auto& one) { return one.first == "storage_order" || one.first == "ceil_mode"; });
    attributes.emplace_back("group", sizes->front());
    Value& weight = rewriter.constant(ir::Tensor(at::full(*sizes, -1, at::kFloat)), "minus_sum");
    const ir::Type type = node.output().type();
    Value& sum = rewriter.op("Conv", {&x, &weight}, std::move(attributes), type);
    Value& nothing = rewriter.op("Relu", {&sum}, {}, type);
    rewriter.replace(node.output(), rewriter.op("Add", {&found, &nothing}, {}, type));
  });
}

/// A choice between tensors of one shape has a faster kernel than one that stretches a number.
Match match_nan(const Facts& facts, ir::Node& node) {
  const ir::Node* is_nan = producer_of(node.find_input(0), "IsNaN");
  if (is_nan == nullptr || !puts_nan(facts, node)) return Match::no("it does not put NaN where NaN is");
  Value& x = is_nan->input(0);
  if (x.dtype() != node.output().dtype() || !same_shape(x, node.output()))
    return Match::no("the flags are of another dtype or shape");
  return Match([&node, &x](Rewriter& rewriter) {
    rewriter.replace(node.output(),
                     rewriter.op("Where", {&node.input(0), &x, &node.input(2)}, {}, node.output().type()));
  });
}

}  // namespace

void populate_pooling(PatternTable& table) {
  table.add({.name = "max_pool_nan",
             .matches = "a `MaxPool` of numbers that are not negative, with NaN put where another one of the flags for "
                        "NaN has found one",
             .makes = "the `MaxPool` and what `Relu` leaves of minus the sum of each window: nothing, or NaN",
             .roots = {"Where"},
             .match = match_marked_pool,
             .stage = Stage::kFuse});
  table.add({.name = "nan_of_itself",
             .matches = "`Where` that puts NaN in the places in which a tensor of its shape has NaN",
             .makes = "`Where` of that tensor itself",
             .roots = {"Where"},
             .match = match_nan,
             .stage = Stage::kFuse});
}

}  // namespace exportguard::optimizer
