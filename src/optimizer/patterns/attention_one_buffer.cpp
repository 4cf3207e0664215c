#include <algorithm>
#include <array>

#include "exportguard/optimizer/optimize.h"
#include "exportguard/optimizer/rewriter.h"
#include "optimizer/numbers_of_keys.h"

/// `GroupQueryAttention` (com.microsoft) writes new keys and values behind those that its cache holds, in the cache's
/// own buffer, where `Attention` copies the cache. How much of the buffer is used is told by numbers, not by its size;
/// so padding, which the numbers cannot tell, has to stop the file.
namespace exportguard::optimizer {
namespace {

enum Operand : std::uint8_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kOperands };

constexpr int kDeepest = 16;           // nodes one after the other in what makes a mask
constexpr std::int64_t kHeadStep = 8;  // onnxruntime's kernel takes heads of 8, 16, … numbers
constexpr std::int64_t kFloat32 = 1;   // TensorProto.FLOAT
constexpr std::string_view kLastKey =
    "what is kept of the token before the new ones";  // the name of the node that reads it
constexpr std::int64_t kInt64 = 7;                    // TensorProto.INT64

// ------------------------------------------------------------------------------------------------ masks

/// What a step along one axis adds, and how many places the axis has: `limit`, an int64 of rank 0.
struct Step {
  SymExpr by;
  Value* limit = nullptr;
};

/// Integers that grow evenly: `start`, and the steps along the axes, the last axis first.
struct Ramp {
  SymExpr start;
  std::vector<Step> steps;

  Step step(std::size_t from_end) const { return from_end < steps.size() ? steps[from_end] : Step{}; }
};

std::optional<Ramp> ramp_of(const Facts& facts, const Value* value, int depth);

/// One number, whatever its rank.
std::optional<SymExpr> one_number(const Facts& facts, const Value* value) {
  if (const auto& sizes = facts.sizes(value); sizes && sizes->size() == 1) return sizes->front();
  const auto number = facts.number(value);
  return number ? std::optional(SymExpr(static_cast<std::int64_t>(*number))) : std::nullopt;
}

std::optional<Ramp> ramp_of_range(const Facts& facts, const ir::Node& node) {
  const bool counts =
      facts.is_number(node.find_input(0), 0) && facts.is_number(node.find_input(2), 1) && has_rank(node.input(1), 0);
  Ramp ramp;
  ramp.steps.push_back({SymExpr(1), node.find_input(1)});
  return counts ? std::optional(ramp) : std::nullopt;
}

/// One times the first and `factor` times the second.
std::optional<Ramp> ramp_of_sum(const std::optional<Ramp>& a, const std::optional<Ramp>& b, int factor) {
  if (!a || !b) return std::nullopt;
  Ramp sum{a->start + SymExpr(factor) * b->start, {}};
  for (std::size_t i = 0; i < std::max(a->steps.size(), b->steps.size()); ++i) {
    const Step one = a->step(i);
    const Step other = b->step(i);
    if (one.limit != nullptr && other.limit != nullptr) return std::nullopt;  // both go along one axis
    sum.steps.push_back(one.limit ? one : Step{SymExpr(factor) * other.by, other.limit});
  }
  return sum;
}

std::optional<Ramp> ramp_of_unsqueezed(const Facts& facts, const ir::Node& node, int depth) {
  const auto from = ramp_of(facts, node.find_input(0), depth);
  const auto axes = facts.ints(node.find_input(1));
  const auto rank = node.output().type().rank();
  if (!from || !axes || !rank) return std::nullopt;
  Ramp ramp{from->start, {}};
  std::size_t taken = 0;
  for (std::size_t i = 0; i < *rank; ++i) {
    const auto from_start = static_cast<std::int64_t>(*rank - 1 - i);
    const bool is_new = std::ranges::any_of(*axes, [&](std::int64_t axis) {
      return (axis < 0 ? axis + static_cast<std::int64_t>(*rank) : axis) == from_start;
    });
    ramp.steps.push_back(is_new ? Step{} : from->step(taken++));
  }
  return ramp;
}

std::optional<Ramp> ramp_of(const Facts& facts, const Value* value, int depth) {
  if (value == nullptr || value->dtype() != DType::kInt64 || depth > kDeepest) return std::nullopt;
  if (const auto number = one_number(facts, value)) return Ramp{*number, {}};
  const ir::Node* node = value->producer();
  if (node == nullptr || !node->domain().empty()) return std::nullopt;
  const auto operand = [&](std::size_t i) { return ramp_of(facts, node->find_input(i), depth + 1); };
  if (node->op() == "Range") return ramp_of_range(facts, *node);
  if (node->op() == "Add") return ramp_of_sum(operand(0), operand(1), 1);
  if (node->op() == "Sub") return ramp_of_sum(operand(0), operand(1), -1);
  if (node->op() == "Unsqueeze") return ramp_of_unsqueezed(facts, *node, depth + 1);
  return std::nullopt;
}

/// `ramp <= 0` for a comparison of two ramps.
std::optional<Ramp> not_positive(const Facts& facts, const ir::Node& node) {
  const bool is_less = node.is("", "Less") || node.is("", "LessOrEqual");
  const bool is_greater = node.is("", "Greater") || node.is("", "GreaterOrEqual");
  if (!is_less && !is_greater) return std::nullopt;
  const auto a = ramp_of(facts, node.find_input(is_less ? 0 : 1), 0);
  const auto b = ramp_of(facts, node.find_input(is_less ? 1 : 0), 0);
  auto ramp = ramp_of_sum(a, b, -1);
  if (ramp && (node.is("", "Less") || node.is("", "Greater"))) ramp->start = ramp->start + SymExpr(1);
  return ramp;
}

/// How many there are: queries, keys before the first of them, and keys in all.
struct Counts {
  SymExpr queries;
  SymExpr past;

  SymExpr total() const { return past + queries; }
};

/// Which keys a query sees: itself and those before, maybe the last ones alone, and those that `allowed` has.
struct Seen {
  Value* total = nullptr;              ///< the keys in all; null unless later ones are hidden
  std::optional<std::int64_t> window;  ///< keys, the query's own among them
  Value* allowed = nullptr;            ///< bool for each sample and key
};

/// Whether it goes along all keys, by that step, and the other way along all queries.
bool goes_along(const Facts& facts, const Ramp& ramp, const Counts& counts, int step) {
  const auto is_all = [&](std::size_t from_end, int by, const SymExpr& count) {
    const Step found = ramp.step(from_end);
    return found.limit != nullptr && found.by == SymExpr(by) && one_number(facts, found.limit) == count;
  };
  const bool has_further = std::any_of(ramp.steps.begin() + std::min<std::ptrdiff_t>(2, std::ssize(ramp.steps)),
                                       ramp.steps.end(), [](const Step& one) { return one.limit != nullptr; });
  return !has_further && is_all(0, step, counts.total()) && is_all(1, -step, counts.queries);
}

bool is_for_each_key(const Value& value) {
  const auto& shape = shape_of(value);
  return shape && shape->size() == 4 && (*shape)[1] == ir::Dim(1) && (*shape)[2] == ir::Dim(1);
}

/// Whether the condition is understood; what it says is added to `seen`.
bool add_condition(const Facts& facts, Value& condition, const Counts& counts, Seen& seen, int depth) {
  if (const ir::Node* both = producer_of(&condition, "And"); both && depth < kDeepest) {
    return add_condition(facts, both->input(0), counts, seen, depth + 1) &&
           add_condition(facts, both->input(1), counts, seen, depth + 1);
  }
  const auto ramp = condition.producer() ? not_positive(facts, *condition.producer()) : std::nullopt;
  if (ramp && goes_along(facts, *ramp, counts, 1)) {  // key - query - past <= 0
    seen.total = ramp->step(0).limit;
    return ramp->start == SymExpr(0) - counts.past;
  }
  if (ramp && goes_along(facts, *ramp, counts, -1)) {  // past + query - key - (window - 1) <= 0
    const auto window = (counts.past + SymExpr(1) - ramp->start).constant();
    if (!window || *window < 1) return false;
    seen.window = std::min(*window, seen.window.value_or(*window));
    return true;
  }
  const bool is_first = seen.allowed == nullptr || seen.allowed == &condition;
  if (!is_for_each_key(condition) || !is_first) return false;
  seen.allowed = &condition;
  return true;
}

/// A number that hides a key where it is added to its score.
bool hides(const Facts& facts, const Value* value) {
  const auto number = facts.number(value);
  return number && *number <= (value->dtype() == DType::kFloat16 ? -6e4 : -1e30);
}

/// Where the mask shows a key: itself, or what chooses between 0 and a number that hides; null if it is neither.
Value* condition_of(const Facts& facts, Value& mask) {
  if (mask.dtype() == DType::kBool) return &mask;
  const ir::Node* choice = producer_of(&mask, "Where");
  if (choice == nullptr) return nullptr;
  // One such number in the place of another, which is for queries that see no key. Here each sees its own.
  const ir::Node* equal = producer_of(choice->find_input(0), "Equal");
  const bool is_replaced = equal && equal->find_input(0) == choice->find_input(2) &&
                           hides(facts, equal->find_input(1)) && hides(facts, choice->find_input(1));
  if (is_replaced) choice = producer_of(choice->find_input(2), "Where");
  const bool is_plain = choice && facts.is_number(choice->find_input(1), 0) && hides(facts, choice->find_input(2));
  return is_plain ? choice->find_input(0) : nullptr;
}

std::optional<Seen> seen_by(const Facts& facts, Value& mask, const Counts& counts) {
  Seen seen;
  Value* condition = condition_of(facts, mask);
  const bool is_read = condition != nullptr && add_condition(facts, *condition, counts, seen, 0);
  return is_read && seen.total != nullptr ? std::optional(seen) : std::nullopt;
}

// ------------------------------------------------------------------------------------------------ attention

struct Heads {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};

/// Heads of queries and of keys, all of one size that the kernel takes.
std::optional<Heads> heads_of(const ir::Node& node) {
  const Heads heads{int_attribute(node, "q_num_heads", 0), int_attribute(node, "kv_num_heads", 0)};
  if (heads.queries < 1 || heads.keys < 1 || heads.queries % heads.keys != 0) return std::nullopt;
  const auto width = [&](Operand operand) { return dim(node.input(operand), 2); };
  const auto queries = width(kQuery) ? width(kQuery)->constant() : std::nullopt;
  if (!queries || *queries % (heads.queries * kHeadStep) != 0) return std::nullopt;
  const ir::Dim wanted(*queries / heads.queries * heads.keys);
  return width(kKey) == wanted && width(kValue) == wanted ? std::optional(heads) : std::nullopt;
}

ir::Type integers(ir::Shape shape) { return ir::Type::tensor(DType::kInt64, std::move(shape)); }

/// The last input of the graph that is a cache of that many keys; null if there is none.
Value* last_cache(const ir::Graph& graph, const SymExpr& past) {
  Value* found = nullptr;
  for (const auto& input : graph.inputs())
    if (has_rank(*input, 4) && (*shape_of(*input))[2] == past) found = &*input;
  return found;
}

/// Stops the file where nothing but zeros is kept of the token before the new ones. onnxruntime-genai (0.18) appends
/// tokens behind generated ones without a run of the last of these; in a buffer its place is empty and would be read.
///
/// It is looked for in the last layer: a token whose embedding is zero, as that of padding is, has zeros in the first
/// one, and behind it what the layer saw of the tokens before. The first token of all sees none, and is never missing.
Value& without_hole(Rewriter& rewriter, Value& total, Value& query, Value& cache) {
  const auto flag = ir::Type::tensor(DType::kBool, ir::Shape{1});
  Value& one = rewriter.ints({1});
  Value& axis = rewriter.ints({2});
  Value& all = rewriter.op("Unsqueeze", {&total, &rewriter.ints({0})}, {}, integers(ir::Shape{1}));
  Value& past = rewriter.op("Sub", {&all, &rewriter.size(query, 1)}, {}, integers(ir::Shape{1}));
  Value& last = rewriter.op("Sub", {&past, &one}, {}, integers(ir::Shape{1}));
  ir::Shape row = *shape_of(cache);
  row[2] = ir::Dim(1);
  ir::Node& key = rewriter.node({.domain = "",
                                 .op = "Slice",
                                 .inputs = {&cache, &last, &past, &axis},
                                 .attributes = {},
                                 .outputs = {ir::Type::tensor(cache.dtype(), row)},
                                 .name = std::string(kLastKey)});
  Value& sum =
      rewriter.op("ReduceL1", {&key.output()}, {{"keepdims", 0}}, ir::Type::tensor(cache.dtype(), ir::Shape{}));
  Value& sums =
      rewriter.op("Unsqueeze", {&sum, &rewriter.ints({0})}, {}, ir::Type::tensor(cache.dtype(), ir::Shape{1}));
  Value& zero = rewriter.constant(ir::Tensor::scalar(0., cache.dtype()));
  Value& is_empty = rewriter.op("Equal", {&sums, &zero}, {}, flag);
  Value& is_there = rewriter.op("Greater", {&past, &one}, {}, flag);
  Value& is_hole = rewriter.op("And", {&is_empty, &is_there}, {}, flag);
  Value& places = rewriter.op("Cast", {&is_hole}, {{"to", kInt64}}, integers(ir::Shape{1}));
  Value& place = rewriter.op("Squeeze", {&places, &rewriter.ints({0})}, {}, integers(ir::Shape{}));
  return number_if_first(rewriter, total, place,
                         "the cache is empty before the new tokens: rewind by the last token and append it again");
}

/// The keys in all, int64 of rank 0, in a file that stops where the numbers do not tell which they are.
Value& checked_total(Rewriter& rewriter, const Seen& seen, Value& query, const SymExpr& past) {
  constexpr std::string_view kPadding = "attention_mask must be all ones: this file takes no padding";
  Value& total = seen.allowed ? number_if_all(rewriter, *seen.total, *seen.allowed, kPadding) : *seen.total;
  Value* cache = last_cache(rewriter.root().graph(), past);
  return cache ? without_hole(rewriter, total, query, *cache) : total;
}

/// Whether nothing but the outputs of the graph reads the cache behind the new tokens: a buffer has more than that.
bool keeps_cache_alone(const ir::Node& node) {
  const auto outputs = node.graph().outputs();
  return std::ranges::all_of(std::array{1, 2}, [&](std::size_t i) {
    const Value& cache = node.output(i);
    return static_cast<std::size_t>(std::ranges::count(outputs, &cache)) == cache.use_count();
  });
}

/// Attention that sees what stands before, with its cache as operands and results.
Match match_one_buffer(const Facts& facts, ir::Node& node) {
  if (node.input_count() != kOperands || node.output_count() != 3)
    return Match::no("it has no cache, or further operands");
  for (std::size_t i = 0; i < kOperands; ++i)
    if (node.find_input(i) == nullptr) return Match::no("it has no cache, or no mask");
  Value& query = node.input(kQuery);
  Value& mask = node.input(kMask);
  if (query.dtype() != DType::kFloat32 && query.dtype() != DType::kFloat16)
    return Match::no("onnxruntime has no kernel for the dtype");
  if (!has_rank(query, 3) || !has_rank(node.input(kKey), 3) || !has_rank(node.input(kValue), 3))
    return Match::no("it does not have three axes");
  const auto heads = heads_of(node);
  if (!heads) return Match::no("the heads are not of one size that the kernel takes");
  if (int_attribute(node, "is_causal", 0) != 0 || int_attribute(node, "softmax_precision", kFloat32) != kFloat32)
    return Match::no("it is not plain");

  if (!keeps_cache_alone(node)) return Match::no("something else reads the cache that it gives");

  const auto rows = dim(query, 1);
  const auto past = dim(node.input(kPastKey), 2);
  if (!rows || !past || dim(node.input(kKey), 1) != rows || dim(node.input(kPastValue), 2) != past)
    return Match::no("it is not known to have a key for each query, behind its cache");
  const auto seen = seen_by(facts, mask, {*rows, *past});
  if (!seen) return Match::no("the mask does not tell what stands before each query");

  return Match([heads = *heads, seen = *seen, past = *past, &node, &query](Rewriter& rewriter) {
    const NumbersOfKeys keys = numbers_of_keys(rewriter, checked_total(rewriter, seen, query, past), query);
    auto attributes = ir::AttributeList{{"num_heads", heads.queries}, {"kv_num_heads", heads.keys}}.take();
    for (ir::NamedAttribute& attribute : attributes_of(node))
      if (attribute.first == "scale" || attribute.first == "softcap") attributes.push_back(std::move(attribute));
    if (seen.window) attributes.emplace_back("local_window_size", *seen.window);
    ir::Node& made = rewriter.node({.domain = "com.microsoft",
                                    .op = "GroupQueryAttention",
                                    .inputs = {&query, &node.input(kKey), &node.input(kValue), &node.input(kPastKey),
                                               &node.input(kPastValue), keys.lasts, keys.total},
                                    .attributes = std::move(attributes),
                                    .outputs = {node.output(0).type(), node.output(1).type(), node.output(2).type()}});
    for (std::size_t i = 0; i < 3; ++i) rewriter.replace(node.output(i), made.output(i));
  });
}

// ------------------------------------------------------------------------------------------------ sizes

struct Axis {
  Value* of = nullptr;
  std::size_t axis = 0;
};

/// Two sizes of inputs that are no caches, the first of which is larger by `size`.
std::optional<std::pair<Axis, Axis>> apart_by(const ir::Graph& graph, const SymExpr& size) {
  std::vector<Axis> axes;
  for (const auto& input : graph.inputs()) {
    const auto& shape = shape_of(*input);
    if (!shape || shape->size() == 4) continue;
    for (std::size_t i = 0; i < shape->size(); ++i) axes.push_back({&*input, i});
  }
  const auto size_at = [](const Axis& at) { return (*shape_of(*at.of))[at.axis]; };
  for (const Axis& more : axes)
    for (const Axis& less : axes)
      if (size_at(more) - size_at(less) == size) return std::pair(more, less);
  return std::nullopt;
}

/// A cache in a buffer is as long as the buffer.
Match match_size_of_cache(const Facts&, ir::Node& node) {
  Value& cache = node.input(0);
  if (!cache.is_input() || !has_rank(cache, 4) || node.graph().parent() != nullptr)
    return Match::no("it is no input of four axes");
  const std::int64_t start = axis_from_start(cache, int_attribute(node, "start", 0)).value_or(0);
  const std::int64_t end = axis_from_start(cache, int_attribute(node, "end", 4)).value_or(4);
  const SymExpr size = (*shape_of(cache))[static_cast<std::size_t>(start)];
  if (end != start + 1 || size.is_constant()) return Match::no("it is not one size that changes");
  const auto found = apart_by(node.graph(), size);
  if (!found) return Match::no("no other inputs tell that size");
  return Match([&node, more = found->first, less = found->second](Rewriter& rewriter) {
    const auto one_size = ir::Type::tensor(DType::kInt64, ir::Shape{1});
    rewriter.replace(
        node.output(),
        rewriter.op("Sub", {&rewriter.size(*more.of, more.axis), &rewriter.size(*less.of, less.axis)}, {}, one_size));
  });
}

bool reads_buffer(const ir::Use& use) {
  const ir::Node& node = use.user();
  if (node.is("", "Slice") && use.index() == 0) return node.name() == kLastKey;
  return node.is("com.microsoft", "GroupQueryAttention") && node.output_count() == 3 && keeps_cache_alone(node) &&
         (use.index() == kPastKey - 1 || use.index() == kPastValue - 1);
}

}  // namespace

bool keeps_caches_in_one_buffer(const ir::Model& model) {
  std::size_t caches = 0;
  for (const auto& input : model.graph->inputs()) {
    if (!has_rank(*input, 4)) continue;
    const auto uses = input->uses();
    if (uses.empty() || !std::ranges::all_of(uses, [](const ir::Use* use) { return reads_buffer(*use); })) return false;
    ++caches;
  }
  return caches > 0;
}

void populate_attention_one_buffer(PatternTable& table) {
  table.add({.name = "attention_one_buffer",
             .matches =
                 "`Attention` of three axes with its cache, heads of 8, 16, … numbers in float32 or float16, with a "
                 "mask that shows each query what stands before it, maybe in a window",
             .makes = "`GroupQueryAttention`, whose cache may lie in one buffer; padding stops the file",
             .roots = {"Attention"},
             .match = match_one_buffer,
             .stage = Stage::kFinish,
             .opset = 23,
             .target = Target::kOnnxRuntimeGenai});
  table.add({.name = "size_of_cache",
             .matches = "`Shape` of an input of four axes, one size by which two sizes of other inputs differ",
             .makes = "the difference of those: a buffer may be longer than what it holds",
             .roots = {"Shape"},
             .match = match_size_of_cache,
             .target = Target::kOnnxRuntimeGenai});
}

}  // namespace exportguard::optimizer
