// TopK, Unique.
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

// Of equal elements the one that stands first is taken first: a stable sort.
void run_top_k(Call& call) {
  const Tensor x = ordered(call.input(0));
  const std::int64_t axis = call.axis(call.integer("axis", -1), x.dim());
  const std::int64_t k = call.has(1) ? call.integer(1) : call.integer("k");
  call.require(k >= 0 && k <= x.size(axis), "k is more than there are elements");
  const auto [values, indices] = at::sort(x, true, axis, call.flag("largest", true));
  call.result(from_ordered(values.narrow(axis, 0, k).contiguous(), call.input(0).scalar_type()));
  call.result(indices.narrow(axis, 0, k).contiguous());
}

// Rows along an axis, each once: where each stands first, which one each row is, and how often each occurs.
struct Groups {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> group_of;
  std::vector<std::int64_t> counts;
};

// By comparing rows: `is_less` and equality of the rows of `rows` [n, m].
template <typename T>
Groups group(const Tensor& rows) {
  const T* data = rows.const_data_ptr<T>();
  const std::int64_t width = rows.size(1);
  const auto is_less = [&](std::int64_t a, std::int64_t b) {
    return std::lexicographical_compare(data + a * width, data + (a + 1) * width, data + b * width,
                                        data + (b + 1) * width);
  };

  std::map<std::int64_t, std::int64_t, decltype(is_less)> seen(is_less);
  Groups groups;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const auto [place, is_new] = seen.emplace(i, static_cast<std::int64_t>(groups.first.size()));
    if (is_new) {
      groups.first.push_back(i);
      groups.counts.push_back(0);
    }
    groups.group_of.push_back(place->second);
    ++groups.counts[static_cast<std::size_t>(place->second)];
  }

  return groups;
}

template <typename T>
void sort_groups(const Tensor& rows, Groups& groups) {
  const T* data = rows.const_data_ptr<T>();
  const std::int64_t width = rows.size(1);

  std::vector<std::size_t> order(groups.first.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const T* left = data + groups.first[a] * width;
    const T* right = data + groups.first[b] * width;
    return std::lexicographical_compare(left, left + width, right, right + width);
  });

  Groups sorted;
  std::vector<std::int64_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<std::int64_t>(i);
    sorted.first.push_back(groups.first[order[i]]);
    sorted.counts.push_back(groups.counts[order[i]]);
  }
  for (const std::int64_t old : groups.group_of) sorted.group_of.push_back(place[static_cast<std::size_t>(old)]);
  groups = std::move(sorted);
}

template <typename T>
Groups groups_of(const Tensor& rows, bool is_sorted) {
  Groups groups = group<T>(rows);
  if (is_sorted) sort_groups<T>(rows, groups);
  return groups;
}

// Strings are ordered by their text.
Tensor ordered_numbers(const Call& call, const Tensor& numbers) {
  const Tensor dense = numbers.contiguous();
  const auto* from = dense.const_data_ptr<std::int64_t>();
  std::map<std::string, std::int64_t> ranks;
  for (std::int64_t i = 0; i < dense.numel(); ++i) ranks.emplace(call.strings().text(from[i]), 0);
  std::int64_t next = 0;
  for (auto& [text, rank] : ranks) rank = next++;
  const Tensor result = at::empty(dense.sizes(), at::kLong);
  auto* to = result.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) to[i] = ranks.at(call.strings().text(from[i]));
  return result;
}

Tensor tensor_of(const Call& call, const std::vector<std::int64_t>& numbers) {
  const Tensor result = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::ranges::copy(numbers, result.mutable_data_ptr<std::int64_t>());
  return result.to(call.device());
}

void run_unique(Call& call) {
  const Tensor& x = call.input(0);
  const auto given = call.find_integer("axis");
  const std::int64_t axis = given ? call.axis(*given, x.dim()) : 0;
  const Tensor source = given ? x : x.reshape({-1});
  const std::int64_t count = source.size(axis);
  const Tensor rows = source.movedim(axis, 0).reshape({count, count == 0 ? 0 : source.numel() / count}).cpu();
  const bool is_sorted = call.flag("sorted", true);
  const bool is_text = call.dtype(0) == DType::kString;
  const Tensor numbers = is_text ? ordered_numbers(call, rows) : ordered(rows);
  const bool is_real = at::isFloatingType(numbers.scalar_type());
  const Groups groups = is_real ? groups_of<double>(numbers.to(at::kDouble).contiguous(), is_sorted)
                                : groups_of<std::int64_t>(numbers.to(at::kLong).contiguous(), is_sorted);
  const Tensor first = tensor_of(call, groups.first);
  call.result(moved(source, [&](const Tensor& bits) { return bits.index_select(axis, first); }), call.dtype(0));
  call.result(first);
  call.result(tensor_of(call, groups.group_of));
  call.result(tensor_of(call, groups.counts));
}

}  // namespace

void populate_sorting(OperatorTable& table) {
  table.add("TopK", run_top_k);
  table.add("Unique", run_unique);
}

}  // namespace exportguard::evaluator
