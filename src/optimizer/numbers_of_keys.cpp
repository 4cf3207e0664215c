#include "optimizer/numbers_of_keys.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kInt32 = 6;  // TensorProto.INT32
constexpr std::int64_t kInt64 = 7;  // TensorProto.INT64

ir::Type integers(ir::Shape shape) { return ir::Type::tensor(DType::kInt64, std::move(shape)); }

}  // namespace

Value& number_if_first(Rewriter& rewriter, Value& number, Value& place, std::string_view name) {
  Value& list = rewriter.op("Unsqueeze", {&number, &rewriter.ints({0})}, {}, integers(ir::Shape{1}));
  ir::Node& made = rewriter.node({.domain = "",
                                  .op = "Gather",
                                  .inputs = {&list, &place},
                                  .attributes = ir::AttributeList{{"axis", 0}}.take(),
                                  .outputs = {integers(ir::Shape{})},
                                  .name = std::string(name)});
  return made.output();
}

Value& number_if_all(Rewriter& rewriter, Value& number, Value& flags, std::string_view name) {
  Value& one = rewriter.constant(ir::Tensor::scalar(std::int64_t{1}, DType::kInt64));
  Value& counted = rewriter.op("Cast", {&flags}, {{"to", kInt64}}, integers(*shape_of(flags)));
  Value& least = rewriter.op("ReduceMin", {&counted}, {{"keepdims", 0}}, integers(ir::Shape{}));
  Value& place = rewriter.op("Sub", {&one, &least}, {}, integers(ir::Shape{}));
  return number_if_first(rewriter, number, place, name);
}

NumbersOfKeys numbers_of_keys(Rewriter& rewriter, Value& total, Value& query) {
  const auto number = ir::Type::tensor(DType::kInt32, ir::Shape{});
  Value& keys = rewriter.op("Cast", {&total}, {{"to", kInt32}}, number);
  Value& one = rewriter.constant(ir::Tensor::scalar(std::int64_t{1}, DType::kInt32));
  Value& last = rewriter.op("Sub", {&keys, &one}, {}, number);
  const ir::Shape samples = {(*shape_of(query))[0]};
  Value& lasts = rewriter.op("Expand", {&last, &rewriter.size(query, 0)}, {}, ir::Type::tensor(DType::kInt32, samples));
  return {&lasts, &keys};
}

Value* number_of_keys(const Value* lasts, const Value* total) {
  const ir::Node* narrowed = producer_of(total, "Cast");
  const ir::Node* expanded = producer_of(lasts, "Expand");
  const ir::Node* last = expanded ? producer_of(expanded->find_input(0), "Sub") : nullptr;
  const bool is_one = narrowed && last && last->find_input(0) == total;
  return is_one && narrowed->input(0).dtype() == DType::kInt64 ? narrowed->find_input(0) : nullptr;
}

}  // namespace exportguard::optimizer
