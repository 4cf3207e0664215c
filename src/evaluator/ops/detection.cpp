// NonMaxSuppression, RoiAlign, MaxRoiPool; on the CPU, in float32.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

Tensor plain(const Tensor& x) { return x.to(at::kCPU, at::kFloat).contiguous(); }

struct Box {
  float top, left, bottom, right;
  float area() const { return (bottom - top) * (right - left); }
};

// Two opposite corners in any order, or center and size.
Box box_of(const float* b, bool is_centered) {
  if (is_centered) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

float overlap(const Box& a, const Box& b) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return 0;
  const float shared = height * width;
  const float whole = a.area() + b.area() - shared;
  return whole > 0 ? shared / whole : 0;
}

void run_non_max_suppression(Call& call) {
  const Tensor boxes = plain(call.input(0));
  const Tensor scores = plain(call.input(1));
  const bool fits = boxes.dim() == 3 && boxes.size(2) == 4 && scores.dim() == 3 && scores.size(0) == boxes.size(0) &&
                    scores.size(2) == boxes.size(1);
  call.require(fits, "boxes must be [batch, n, 4] and scores [batch, classes, n]");

  const std::int64_t most = call.has(2) ? call.integer(2) : 0;
  const double threshold = call.has(3) ? call.number(3) : 0.0;
  const bool is_centered = call.flag("center_point_box");
  const std::int64_t n = boxes.size(1);

  std::vector<std::int64_t> selected;
  for (std::int64_t batch = 0; batch < scores.size(0); ++batch) {
    for (std::int64_t kind = 0; kind < scores.size(1); ++kind) {
      const float* score = scores.const_data_ptr<float>() + (batch * scores.size(1) + kind) * n;
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < n; ++i) {
        if (!call.has(4) || static_cast<double>(score[i]) > call.number(4)) order.push_back(i);
      }
      std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return score[a] > score[b]; });
      std::vector<Box> kept;
      for (const std::int64_t i : order) {
        if (static_cast<std::int64_t>(kept.size()) >= most) break;
        const Box box = box_of(boxes.const_data_ptr<float>() + (batch * n + i) * 4, is_centered);
        const bool is_free = std::ranges::all_of(
            kept, [&](const Box& other) { return static_cast<double>(overlap(box, other)) <= threshold; });
        if (!is_free) continue;
        kept.push_back(box);
        selected.insert(selected.end(), {batch, kind, i});
      }
    }
  }

  const Tensor result = at::empty({static_cast<std::int64_t>(selected.size() / 3), 3}, at::kLong);
  std::ranges::copy(selected, result.mutable_data_ptr<std::int64_t>());
  call.result(result.to(call.device()));
}

// ---------------------------------------------------------------- regions

struct Plane {
  const float* data;
  std::int64_t height;
  std::int64_t width;
};

// The four neighbours and their weights; a place more than one outside counts as nothing.
struct Sample {
  std::array<std::int64_t, 4> at{};
  std::array<float, 4> weight{};
};

Sample sample_at(const Plane& plane, float y, float x) {
  Sample sample;
  const auto height = static_cast<float>(plane.height);
  const auto width = static_cast<float>(plane.width);
  if (!(y >= -1 && y <= height && x >= -1 && x <= width)) return sample;
  y = std::max(y, 0.0F);
  x = std::max(x, 0.0F);
  const std::int64_t top = std::min(static_cast<std::int64_t>(y), plane.height - 1);
  const std::int64_t left = std::min(static_cast<std::int64_t>(x), plane.width - 1);
  const std::int64_t bottom = std::min(top + 1, plane.height - 1);
  const std::int64_t right = std::min(left + 1, plane.width - 1);
  const float down = top == plane.height - 1 ? 0 : y - static_cast<float>(top);
  const float aside = left == plane.width - 1 ? 0 : x - static_cast<float>(left);
  sample.at = {top * plane.width + left, top * plane.width + right, bottom * plane.width + left,
               bottom * plane.width + right};
  sample.weight = {(1 - down) * (1 - aside), (1 - down) * aside, down * (1 - aside), down * aside};
  return sample;
}

struct Region {
  float top, left, height, width;
};

struct Grid {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t ratio;  ///< samples in each direction of a cell; 0: as many as the cell has pixels
  bool is_max;
};

// One cell: the mean of its samples, or the largest weighted neighbour of any.
float pooled(const Plane& plane, const Region& region, const Grid& grid, std::int64_t row, std::int64_t column) {
  const float cell_height = region.height / static_cast<float>(grid.rows);
  const float cell_width = region.width / static_cast<float>(grid.columns);
  const auto samples = [&](float size) {
    return grid.ratio > 0 ? grid.ratio : std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(size)));
  };
  const std::int64_t down = samples(cell_height);
  const std::int64_t across = samples(cell_width);

  float sum = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < down; ++i) {
    const float y = region.top +
                    cell_height * (static_cast<float>(row) + (static_cast<float>(i) + 0.5F) / static_cast<float>(down));
    for (std::int64_t k = 0; k < across; ++k) {
      const float x = region.left + cell_width * (static_cast<float>(column) +
                                                  (static_cast<float>(k) + 0.5F) / static_cast<float>(across));
      const Sample sample = sample_at(plane, y, x);
      for (std::size_t corner = 0; corner < 4; ++corner) {
        const float value = sample.weight[corner] * plane.data[sample.at[corner]];
        sum += value;
        largest = std::max(largest, value);
      }
    }
  }

  return grid.is_max ? largest : sum / static_cast<float>(down * across);
}

void run_roi_align(Call& call) {
  const Tensor x = plain(call.input(0));
  const Tensor rois = plain(call.input(1));
  const std::vector<std::int64_t> batches = call.ints(2);
  const bool fits = x.dim() == 4 && x.size(2) > 0 && x.size(3) > 0 && rois.dim() == 2 && rois.size(1) == 4 &&
                    static_cast<std::int64_t>(batches.size()) == rois.size(0);
  call.require(fits, "its inputs must be [n, c, h, w], [regions, 4] and [regions]");

  const bool is_half_pixel = call.text("coordinate_transformation_mode",
                                       call.opset() < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const auto scale = static_cast<float>(call.number("spatial_scale", 1.0));
  const float offset = is_half_pixel ? 0.5F : 0.0F;
  const Grid grid{call.integer("output_height", 1), call.integer("output_width", 1), call.integer("sampling_ratio", 0),
                  call.text("mode", "avg") == "max"};

  call.require_room({rois.size(0), x.size(1), grid.rows, grid.columns});
  const Tensor result = at::empty({rois.size(0), x.size(1), grid.rows, grid.columns}, at::kFloat);
  auto* to = result.mutable_data_ptr<float>();
  for (std::int64_t r = 0; r < rois.size(0); ++r) {
    const float* roi = rois.const_data_ptr<float>() + r * 4;
    const std::int64_t batch = call.axis(batches[static_cast<std::size_t>(r)], x.size(0));
    Region region{roi[1] * scale - offset, roi[0] * scale - offset, (roi[3] - roi[1]) * scale,
                  (roi[2] - roi[0]) * scale};
    if (!is_half_pixel) region.height = std::max(region.height, 1.0F), region.width = std::max(region.width, 1.0F);
    for (std::int64_t c = 0; c < x.size(1); ++c) {
      const Plane plane{x.const_data_ptr<float>() + (batch * x.size(1) + c) * x.size(2) * x.size(3), x.size(2),
                        x.size(3)};
      for (std::int64_t i = 0; i < grid.rows * grid.columns; ++i) {
        *to++ = pooled(plane, region, grid, i / grid.columns, i % grid.columns);
      }
    }
  }

  call.result(result.to(call.device(), call.input(0).scalar_type()));
}

// The largest pixel of each cell; a region is [batch, left, top, right, bottom], its ends included.
void run_max_roi_pool(Call& call) {
  const Tensor x = plain(call.input(0));
  const Tensor rois = plain(call.input(1));
  const std::vector<std::int64_t> shape = call.integers("pooled_shape");
  call.require(x.dim() == 4 && rois.dim() == 2 && rois.size(1) == 5 && shape.size() == 2,
               "its inputs must be [n, c, h, w] and [regions, 5]");
  call.require_room({rois.size(0), x.size(1), shape[0], shape[1]});

  const double scale = call.number("spatial_scale", 1.0);
  Tensor result = at::empty({rois.size(0), x.size(1), shape[0], shape[1]}, at::kFloat).zero_();
  for (std::int64_t r = 0; r < rois.size(0); ++r) {
    const float* roi = rois.const_data_ptr<float>() + r * 5;
    const auto scaled = [&](int i) {
      return static_cast<std::int64_t>(std::round(static_cast<double>(roi[i]) * scale));
    };
    const std::int64_t batch = call.axis(static_cast<std::int64_t>(roi[0]), x.size(0));
    const double height =
        static_cast<double>(std::max<std::int64_t>(scaled(4) - scaled(2) + 1, 1)) / static_cast<double>(shape[0]);
    const double width =
        static_cast<double>(std::max<std::int64_t>(scaled(3) - scaled(1) + 1, 1)) / static_cast<double>(shape[1]);

    for (std::int64_t row = 0; row < shape[0]; ++row) {
      for (std::int64_t column = 0; column < shape[1]; ++column) {
        const auto place = [](double at, std::int64_t start, std::int64_t size) {
          return std::clamp<std::int64_t>(static_cast<std::int64_t>(at) + start, 0, size);
        };
        const auto i = static_cast<double>(row);
        const auto k = static_cast<double>(column);
        const std::int64_t top = place(std::floor(i * height), scaled(2), x.size(2));
        const std::int64_t bottom = place(std::ceil((i + 1) * height), scaled(2), x.size(2));
        const std::int64_t left = place(std::floor(k * width), scaled(1), x.size(3));
        const std::int64_t right = place(std::ceil((k + 1) * width), scaled(1), x.size(3));
        if (bottom <= top || right <= left) continue;
        const Tensor cell = x.select(0, batch).slice(1, top, bottom).slice(2, left, right);
        result.select(0, r).select(1, row).select(1, column).copy_(cell.flatten(1).amax(1));
      }
    }
  }

  call.result(result.to(call.device(), call.input(0).scalar_type()));
}

}  // namespace

void populate_detection(OperatorTable& table) {
  table.add("NonMaxSuppression", run_non_max_suppression);
  table.add("RoiAlign", run_roi_align);
  table.add("MaxRoiPool", run_max_roi_pool);
}

}  // namespace exportguard::evaluator
