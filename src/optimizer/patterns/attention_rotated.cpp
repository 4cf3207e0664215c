#include <array>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/numbers_of_keys.h"
#include "optimizer/position_tables.h"

/// `GroupQueryAttention` (com.microsoft) turns queries and keys itself, by tables of cosines and sines for the
/// positions 0, 1, …, and takes queries, keys and values side by side, as one product gives them.
///
/// The positions are those that the numbers of keys tell. The kernel has an operand for others, but reads no more than
/// the first of them where nothing is kept (onnxruntime 1.32), so the file stops where they are not 0, 1, … in order.
namespace exportguard::optimizer {
namespace {

/// GroupQueryAttention's operands.
enum Operand : std::uint8_t { kQuery, kKey, kValue, kPastKey, kPastValue, kLastKeys, kTotal, kCos, kSin };

constexpr std::int64_t kMostElements = std::int64_t{1} << 23;  // of a table: 131,072 positions, heads of 128
constexpr std::int64_t kBlock = 16;                            // of a head, of which each table has half
constexpr std::array<std::string_view, 2> kTables = {"cos_cache", "sin_cache"};

bool keeps_its_keys(const ir::Node& node) { return node.output_count() == 3; }

ir::Type integers(ir::Shape shape) { return ir::Type::tensor(DType::kInt64, std::move(shape)); }

/// `total` in a file that stops where the positions are not those behind what is kept, one after the other.
Value& with_positions_in_order(Rewriter& rewriter, Value& total, Value& positions, Value& query) {
  const ir::Dim sequence = *dim(query, 1);
  Value& first = rewriter.ints({0});
  Value& one = rewriter.constant(ir::Tensor::scalar(std::int64_t{1}, DType::kInt64));
  Value& length = rewriter.op("Squeeze", {&rewriter.size(query, 1), &first}, {}, integers(ir::Shape{}));
  Value& past = rewriter.op("Sub", {&total, &length}, {}, integers(ir::Shape{}));
  Value& wanted = rewriter.op("Range", {&past, &total, &one}, {}, integers(ir::Shape{sequence}));
  const auto& shape = *shape_of(positions);
  Value& are_same =
      rewriter.op("Equal", {&positions, &wanted}, {}, ir::Type::tensor(DType::kBool, ir::Shape{shape[0], sequence}));
  return number_if_all(rewriter, total, are_same,
                       "position_ids must be 0, 1, 2, … from the first token kept: this file takes no others");
}

/// Queries and keys turned alike.
struct Turned {
  ir::Node* query = nullptr;
  ir::Node* key = nullptr;

  Value& table(std::size_t i) const { return query->input(1 + i); }
};

ir::Node* rotation_of(const Value* value) {
  ir::Node* node = producer_of(value, "RotaryEmbedding");
  const bool is_alone = node && node->input_count() >= 3 && node->find_input(3) == nullptr && has_one_use(*value);
  return is_alone && has_rank(node->input(0), 3) ? node : nullptr;
}

std::optional<Turned> turned_operands(const ir::Node& node) {
  const Turned turned{rotation_of(node.find_input(kQuery)), rotation_of(node.find_input(kKey))};
  if (turned.query == nullptr || turned.key == nullptr) return std::nullopt;
  const auto are_alike = [&](std::string_view attribute) {
    return int_attribute(*turned.query, attribute, 0) == int_attribute(*turned.key, attribute, 0);
  };
  const bool is_one = are_alike("interleaved") && are_alike("rotary_embedding_dim") &&
                      turned.query->find_input(1) == turned.key->find_input(1) &&
                      turned.query->find_input(2) == turned.key->find_input(2);
  return is_one ? std::optional(turned) : std::nullopt;
}

/// Whether the kernel turns so many pairs of numbers of a head, in whole blocks: all that the attributes name.
bool turns_head(const ir::Node& rotation, std::int64_t pairs, std::int64_t heads) {
  const auto width = dim(rotation.input(0), 2);
  if (!width || !width->constant() || heads < 1) return false;
  const std::int64_t size = *width->constant() / heads;
  const std::int64_t turned = int_attribute(rotation, "rotary_embedding_dim", 0);
  constexpr std::int64_t kPairs = kBlock / 2;
  return 2 * pairs == (turned == 0 ? size : turned) && pairs % kPairs == 0 && pairs <= size / kBlock * kPairs;
}

/// The table of one kind. Where rows were computed, whoever reads them looks them up from now on: it is computed once.
Value& table_of(Rewriter& rewriter, Value& rows, const RowsByPosition& by_position, std::string_view name,
                std::int64_t count) {
  if (by_position.table) return *by_position.table;
  Value& table = rewriter.weight(std::string(name), by_position.first_rows(count));
  ir::Node& producer = *rows.producer();
  ir::Node& lookup = rewriter.node({.domain = "",
                                    .op = "Gather",
                                    .inputs = {&table, by_position.positions},
                                    .attributes = ir::AttributeList{{"axis", 0}}.take(),
                                    .outputs = {rows.type()}});
  producer.graph().move_before(lookup, producer);
  rewriter.replace(rows, lookup.output());
  return table;
}

Match match_rotated(const Facts& facts, ir::Node& node) {
  if (!keeps_its_keys(node)) return Match::no("it keeps nothing");
  if (int_attribute(node, "do_rotary", 0) != 0) return Match::no("it turns them already");
  const auto turned = turned_operands(node);
  if (!turned) return Match::no("queries and keys are not turned alike in front of it, and for it alone");
  Value* total = number_of_keys(node.find_input(kLastKeys), node.find_input(kTotal));
  if (total == nullptr) return Match::no("samples may have different numbers of keys");

  std::array<std::optional<RowsByPosition>, 2> rows;
  for (std::size_t i = 0; i < 2; ++i) {
    rows[i] = rows_by_position(facts, turned->table(i));
    const auto pairs = dim(turned->table(i), 2);
    if (!rows[i] || !pairs || !pairs->constant()) return Match::no("the angles are not of positions alone");
    if (!turns_head(*turned->query, *pairs->constant(), int_attribute(node, "num_heads", 0)))
      return Match::no("the kernel does not turn so many numbers of a head");
    if (!rows[i]->table && facts.positions() < 1) return Match::no("it is not told how many positions there are");
    if (!rows[i]->table && *pairs->constant() * facts.positions() > kMostElements)
      return Match::no("there are many positions");
  }
  Value& positions = *rows[0]->positions;
  if (rows[1]->positions != &positions) return Match::no("cosines and sines are of different positions");
  if (!has_rank(node.input(kQuery), 3)) return Match::no("its queries have no known shape");

  return Match([=, &node, &positions](Rewriter& rewriter) {
    const ir::Node& rotation = *turned->query;
    Value& checked = with_positions_in_order(rewriter, *total, positions, node.input(kQuery));
    const NumbersOfKeys keys = numbers_of_keys(rewriter, checked, node.input(kQuery));
    std::vector<Value*> inputs = {&turned->query->input(0),
                                  &turned->key->input(0),
                                  node.find_input(kValue),
                                  node.find_input(kPastKey),
                                  node.find_input(kPastValue),
                                  keys.lasts,
                                  keys.total};
    for (std::size_t i = 0; i < 2; ++i)
      inputs.push_back(&table_of(rewriter, turned->table(i), *rows[i], kTables[i], facts.positions()));
    auto attributes = attributes_of(node);
    attributes.emplace_back("do_rotary", std::int64_t{1});
    if (int_attribute(rotation, "interleaved", 0) != 0) attributes.emplace_back("rotary_interleaved", std::int64_t{1});
    ir::Node& made = rewriter.node({.domain = "com.microsoft",
                                    .op = "GroupQueryAttention",
                                    .inputs = std::move(inputs),
                                    .attributes = std::move(attributes),
                                    .outputs = {node.output(0).type(), node.output(1).type(), node.output(2).type()}});
    for (std::size_t i = 0; i < 3; ++i) rewriter.replace(node.output(i), made.output(i));
  });
}

/// Queries, keys and values that are cut from one product for this operator alone.
Match match_packed(const Facts& facts, ir::Node& node) {
  if (!keeps_its_keys(node)) return Match::no("it keeps nothing");
  const ir::Node* split = producer_of(node.find_input(kQuery), "Split");
  if (split == nullptr || split->output_count() != 3) return Match::no("its queries are not cut from another tensor");
  for (std::size_t i = 0; i < 3; ++i) {
    if (node.find_input(i) != &split->output(i) || !has_one_use(split->output(i)))
      return Match::no("queries, keys and values do not come in order, and for it alone");
  }
  Value& packed = split->input(0);
  const auto axis = axis_from_start(packed, int_attribute(*split, "axis", 0));
  if (!has_rank(packed, 3) || axis != 2) return Match::no("they are not cut from the last axis");
  const std::int64_t queries = int_attribute(node, "num_heads", 0);
  const std::int64_t keys = int_attribute(node, "kv_num_heads", 0);
  const auto widths = facts.ints(split->find_input(1));
  const bool are_heads = queries > 0 && keys > 0 && widths && widths->size() == 3 && (*widths)[0] % queries == 0 &&
                         (*widths)[1] == (*widths)[0] / queries * keys && (*widths)[2] == (*widths)[1];
  if (!are_heads) return Match::no("the parts are not heads of one size");
  return Match([&node, &packed](Rewriter& rewriter) {
    std::vector<Value*> inputs = {&packed, nullptr, nullptr};
    for (std::size_t i = kPastKey; i < node.input_count(); ++i) inputs.push_back(node.find_input(i));
    ir::Node& made = rewriter.node({.domain = "com.microsoft",
                                    .op = "GroupQueryAttention",
                                    .inputs = std::move(inputs),
                                    .attributes = attributes_of(node),
                                    .outputs = {node.output(0).type(), node.output(1).type(), node.output(2).type()}});
    for (std::size_t i = 0; i < 3; ++i) rewriter.replace(node.output(i), made.output(i));
  });
}

}  // namespace

void populate_attention_rotated(PatternTable& table) {
  table.add({.name = "attention_rotated",
             .matches =
                 "`GroupQueryAttention` that `attention_one_buffer` made, of queries and keys turned by "
                 "`RotaryEmbedding`, by angles that positions alone decide: looked up in a constant, or computed, "
                 "where the optimizer is told how many positions there are",
             .makes = "`GroupQueryAttention` that turns them by tables for all positions; positions other than those "
                      "of the tokens stop the file",
             .roots = {"com.microsoft::GroupQueryAttention"},
             .match = match_rotated,
             .stage = Stage::kFinish,
             .opset = 23,
             .target = Target::kOnnxRuntimeGenai});
  table.add({.name = "attention_packed",
             .matches = "`GroupQueryAttention` of queries, keys and values that are cut from one tensor for it alone",
             .makes = "`GroupQueryAttention` of that tensor",
             .roots = {"com.microsoft::GroupQueryAttention"},
             .match = match_packed,
             .stage = Stage::kPack,
             .opset = 23,
             .target = Target::kOnnxRuntimeGenai});
}

}  // namespace exportguard::optimizer
