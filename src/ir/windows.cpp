#include "ir/windows.h"

#include <fmt/format.h>

namespace exportguard::ir {
namespace {

std::vector<std::int64_t> list_of(const InferenceContext& ctx, std::string_view name, std::size_t count,
                                  std::int64_t fallback) {
  const auto* given = ctx.find_integers(name);
  if (given == nullptr || given->empty()) return std::vector<std::int64_t>(count, fallback);
  if (given->size() != count) ctx.fail(fmt::format("{} must have {} entries, got {}", name, count, given->size()));
  return *given;
}

}  // namespace

Windows read_windows(const InferenceContext& ctx, std::size_t spatial_axes) {
  Windows windows{list_of(ctx, "strides", spatial_axes, 1), list_of(ctx, "dilations", spatial_axes, 1),
                  list_of(ctx, "pads", 2 * spatial_axes, 0), ctx.text("auto_pad", "NOTSET"),
                  ctx.integer("ceil_mode", 0) != 0};
  for (const std::int64_t stride : windows.strides) {
    if (stride < 1) ctx.fail(fmt::format("strides must be at least 1, got {}", stride));
  }
  return windows;
}

Dim window_count(const InferenceContext& ctx, const Windows& windows, std::size_t i, const Dim& size,
                 const Dim& kernel) {
  const std::int64_t stride = windows.strides[i];
  const SymExpr reach = (kernel - 1) * windows.dilations[i] + 1;
  if (windows.auto_pad.starts_with("SAME")) return floor_div(size + (stride - 1), stride);

  const bool has_pads = windows.auto_pad == "NOTSET" || windows.auto_pad.empty();
  const std::int64_t front = has_pads ? windows.pads[i] : 0;
  const std::int64_t behind = has_pads ? windows.pads[i + windows.strides.size()] : 0;
  const SymExpr room = size + front + behind - reach;
  // Rounded up, the one window there is may reach beyond what it looks at, though not as far as a step.
  const std::int64_t least = windows.rounds_up ? 1 - stride : 0;
  if (room.is_constant() && *room.constant() < least) {
    ctx.fail(fmt::format("a window of {} is larger than the padded size {}", reach.str(), (room + reach).str()));
  }

  if (!windows.rounds_up) return floor_div(room, stride) + 1;
  if (!room.is_constant() || !size.is_constant()) return ctx.fresh();
  // A window that would begin in the padding behind is left out.
  const std::int64_t count = (*room.constant() + stride - 1) / stride + 1;
  return (count - 1) * stride >= *size.constant() + front ? count - 1 : count;
}

}  // namespace exportguard::ir
