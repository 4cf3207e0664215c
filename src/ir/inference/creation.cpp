#include <algorithm>
#include <limits>

#include "exportguard/common/dtypes.h"
#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

Shape shape_of(const Tensor& tensor) { return Shape(tensor.shape().begin(), tensor.shape().end()); }

void infer_constant(InferenceContext& ctx) {
  const auto& attributes = ctx.call().attributes;
  if (attributes.empty()) ctx.fail("one of its value attributes must be given");
  const auto& [name, value] = attributes.front();
  if (const auto* tensor = std::get_if<Tensor>(&value)) return ctx.set(0, tensor->dtype(), shape_of(*tensor));
  const auto list = [&](DType dtype, std::size_t size) { ctx.set(0, dtype, Shape{static_cast<std::int64_t>(size)}); };
  if (std::holds_alternative<std::int64_t>(value)) ctx.set(0, DType::kInt64, Shape{});
  if (std::holds_alternative<double>(value)) ctx.set(0, DType::kFloat32, Shape{});
  if (std::holds_alternative<std::string>(value)) ctx.set(0, DType::kString, Shape{});
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value)) {
    list(DType::kInt64, numbers->size());
    ctx.set_elements(Elements(numbers->begin(), numbers->end()));
  }
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) list(DType::kFloat32, numbers->size());
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) list(DType::kString, texts->size());
  if (const auto* number = std::get_if<std::int64_t>(&value)) ctx.set_elements({*number});
}

void infer_constant_of_shape(InferenceContext& ctx) {
  const Attribute* value = ctx.find_attribute("value");
  const auto* tensor = value ? std::get_if<Tensor>(value) : nullptr;
  const DType dtype = tensor ? tensor->dtype() : DType::kFloat32;
  const auto sizes = ctx.elements(0);
  if (sizes) return ctx.set(0, dtype, *sizes);
  const auto rank = ctx.count_of_sizes(0);
  ctx.set(0, dtype, rank ? std::optional(ctx.fresh_shape(*rank)) : std::nullopt);
}

void infer_filled_like(InferenceContext& ctx) { ctx.set(0, ctx.dtype_attribute("dtype", ctx.dtype(0)), ctx.shape(0)); }

void infer_random(InferenceContext& ctx) {
  const auto* sizes = ctx.find_integers("shape");
  ctx.set(0, ctx.dtype_attribute("dtype", DType::kFloat32),
          sizes ? std::optional(Shape(sizes->begin(), sizes->end())) : std::nullopt);
}

void infer_multinomial(InferenceContext& ctx) {
  const auto shape = ctx.shape(0);
  const Dim batch = shape && shape->size() == 2 ? shape->front() : ctx.fresh();
  ctx.set(0, ctx.dtype_attribute("dtype", DType::kInt32), Shape{batch, ctx.integer("sample_size", 1)});
}

/// ceil((limit - start) / delta), and no less than nothing.
Dim range_size(const InferenceContext& ctx) {
  const auto start = ctx.elements(0);
  const auto limit = ctx.elements(1);
  const auto delta = ctx.elements(2);
  if (!start || !limit || !delta || start->size() != 1 || limit->size() != 1 || delta->size() != 1) return ctx.fresh();
  const auto apart = unless_overflow([&] { return std::optional(limit->front() - start->front()); });
  if (!apart) return ctx.fresh();
  const SymExpr& distance = *apart;
  const auto step = delta->front().constant();
  if (step == 0) ctx.fail("delta must not be 0");
  if (distance.is_constant() && step) {
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    if (distance.constant() == kLeast || step == kLeast) return ctx.fresh();  // they have no negative
    const std::int64_t span = *step > 0 ? *distance.constant() : -*distance.constant();
    const std::int64_t width = *step > 0 ? *step : -*step;
    return span <= 0 ? 0 : (span - 1) / width + 1;
  }
  // From 0 to a size by ones: a size is never negative, other expressions may be.
  const bool is_size = step == 1 && start->front().constant() == 0 && distance.symbol_name().has_value();
  return is_size ? max(SymExpr(0), distance) : ctx.fresh();
}

void infer_range(InferenceContext& ctx) {
  const Dim size = range_size(ctx);
  ctx.set(0, ctx.dtype(0), Shape{size});
  const auto count = size.constant();
  const auto start = ctx.integers(0);
  const auto delta = ctx.integers(2);
  if (!count || !start || !delta || *count > static_cast<std::int64_t>(KnownElements::kMost)) return;
  Elements elements;
  for (std::int64_t i = 0; i < *count; ++i) elements.emplace_back(start->front() + i * delta->front());
  ctx.set_elements(std::move(elements));
}

void infer_one_hot(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(2), std::nullopt);
  const auto depth = ctx.elements(1);
  const std::size_t axis = ctx.axis(ctx.integer("axis", -1), shape->size() + 1);
  shape->insert(shape->begin() + static_cast<std::ptrdiff_t>(axis),
                depth && depth->size() == 1 ? depth->front() : ctx.fresh());
  ctx.set(0, ctx.dtype(2), std::move(shape));
}

void infer_window(InferenceContext& ctx) {
  const auto size = ctx.elements(0);
  ctx.set(0, ctx.dtype_attribute("output_datatype", DType::kFloat32),
          Shape{size && size->size() == 1 ? size->front() : ctx.fresh()});
}

void infer_mel_weights(InferenceContext& ctx) {
  const auto bins = ctx.elements(0);
  const auto length = ctx.elements(1);
  const Dim rows = length && length->size() == 1 ? floor_div(length->front(), 2) + 1 : ctx.fresh();
  ctx.set(0, ctx.dtype_attribute("output_datatype", DType::kFloat32),
          Shape{rows, bins && bins->size() == 1 ? bins->front() : ctx.fresh()});
}

}  // namespace

void populate_creation(InferenceTable& table) {
  table.add({"Constant"}, infer_constant);
  table.add({"ConstantOfShape"}, infer_constant_of_shape);
  table.add({"EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}, infer_filled_like);
  table.add({"RandomNormal", "RandomUniform"}, infer_random);
  table.add({"Multinomial"}, infer_multinomial);
  table.add({"Range"}, infer_range);
  table.add({"OneHot"}, infer_one_hot);
  table.add({"BlackmanWindow", "HammingWindow", "HannWindow"}, infer_window);
  table.add({"MelWeightMatrix"}, infer_mel_weights);
}

}  // namespace exportguard::ir
