#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/datum.h"
#include "exportguard/ir/graph.h"

namespace exportguard::evaluator {

using Data = std::vector<Datum>;

/// Runs the graph attribute of that name of the node being run.
using BodyRunner = std::function<Data(std::string_view name, Data inputs)>;

/// One run of one node: what an operator reads, and where it puts its outputs. Inputs are shared with others and never
/// written to.
class Call {
 public:
  struct Surroundings {
    std::int64_t opset;  ///< version of the node's domain
    StringPool& strings;
    const c10::Device& device;
    BodyRunner run_body;
  };

  Call(const ir::Node& node, std::span<const Datum* const> inputs, const Surroundings& around)
      : node_(node), inputs_(inputs), around_(around) {}

  const ir::Node& node() const { return node_; }
  std::int64_t opset() const { return around_.opset; }
  const c10::Device& device() const { return around_.device; }
  StringPool& strings() const { return around_.strings; }
  /// @throws EvaluationError, which says what the node is and what it was given.
  [[noreturn]] void fail(const std::string& reason) const;

  // ---------------------------------------------------------------- inputs

  std::size_t input_count() const { return inputs_.size(); }
  bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr && !inputs_[i]->is_none(); }
  const Datum& datum(std::size_t i) const;       ///< fails if left out
  const at::Tensor& input(std::size_t i) const;  ///< as it is stored; fails unless a tensor
  DType dtype(std::size_t i) const { return (void)input(i), datum(i).dtype; }
  std::optional<at::Tensor> find(std::size_t i) const;      ///< nothing if left out
  std::vector<std::int64_t> ints(std::size_t i) const;      ///< elements of a tensor of integers
  std::int64_t integer(std::size_t i) const;                ///< the one element
  double number(std::size_t i) const;                       ///< the one element
  const std::vector<Datum>& sequence(std::size_t i) const;  ///< fails unless a sequence

  // ---------------------------------------------------------------- attributes

  bool has(std::string_view name) const { return node_.find_attribute(name) != nullptr; }
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  std::int64_t integer(std::string_view name) const;  ///< fails without
  std::optional<std::int64_t> find_integer(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  bool flag(std::string_view name, bool otherwise = false) const { return integer(name, otherwise ? 1 : 0) != 0; }
  std::string text(std::string_view name, std::string_view otherwise) const;
  std::vector<std::int64_t> integers(std::string_view name, std::vector<std::int64_t> otherwise = {}) const;
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  /// The integers of attribute `name`, or else of input `i`: operators moved them from one to the other.
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view name, std::size_t i) const;

  // ---------------------------------------------------------------- outputs

  std::size_t output_count() const { return node_.output_count(); }
  bool wants(std::size_t i) const { return i < node_.output_count() && !node_.output(i).is_unused(); }
  void result(at::Tensor tensor);               ///< the next output, of the tensor's own dtype
  void result(at::Tensor tensor, DType dtype);  ///< stored as another dtype
  void result(Datum datum) { outputs_.push_back(std::move(datum)); }
  Data take_results() { return std::move(outputs_); }

  Data run_body(std::string_view name, Data inputs) const { return around_.run_body(name, std::move(inputs)); }

  // ---------------------------------------------------------------- checks

  /// `axis` counted from the front. Fails if there is no such axis among `rank`.
  std::int64_t axis(std::int64_t axis, std::int64_t rank) const;
  std::vector<std::int64_t> axes(std::vector<std::int64_t> axes, std::int64_t rank) const;
  /// Fails if a tensor of these sizes cannot be held by this machine.
  void require_room(at::IntArrayRef sizes) const;
  void require(bool condition, const char* what) const {
    if (!condition) fail(what);
  }

 private:
  template <typename T>
  const T* find_attribute(std::string_view name) const;

  const ir::Node& node_;
  std::span<const Datum* const> inputs_;
  const Surroundings& around_;
  Data outputs_;
};

/// `f32[2,3]`, `seq(2)`, `nothing`; for errors.
std::string describe(const Datum* datum);

}  // namespace exportguard::evaluator
