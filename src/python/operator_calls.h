#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/bindings.h"

namespace exportguard::python {

/// A value of a list of calls: an input, or what a call made, numbered in this order from 0.
struct ValueNumber {
  std::size_t number;
};

/// Operator calls that are made one after the other, again and again with other inputs, and never leave C++ between
/// them. What is constant in their arguments is read once.
class [[gnu::visibility("hidden")]] OperatorCalls {
 public:
  explicit OperatorCalls(std::size_t inputs);
  ~OperatorCalls();
  OperatorCalls(OperatorCalls&&) noexcept;
  OperatorCalls& operator=(OperatorCalls&&) noexcept;

  /// Appends a call of an operator of torch's dispatcher; its arguments have `ValueNumber` for values. The number of
  /// its result, which is one value also where the operator returns several.
  /// @throws std::invalid_argument if there is no such operator, or an argument cannot be read
  std::size_t add(const std::string& name, const std::string& overload, const py::tuple& args, const py::dict& kwargs);

  /// Appends the choice of one of several results, or of one entry of a list; its number.
  std::size_t pick(ValueNumber value, std::size_t item);

  /// Says which values are wanted; nothing may be appended afterwards.
  void want(const std::vector<std::size_t>& values);

  /// Says which sizes a tensor is to have that is a value, or one of several results of a value: numbers, and below 0
  /// the places in the table of a run, of which -1 is the first.
  void expect(std::size_t value, std::size_t item, std::vector<std::int64_t> sizes);

  /// The wanted values, for inputs that are tensors or numbers.
  /// @throws whatever a kernel throws
  py::list run(const py::sequence& inputs) const;

  /// The same; nothing if a tensor has other sizes than are expected, with a table in which -1 stands for any size.
  /// @throws whatever a kernel throws
  std::optional<py::list> run_as_expected(const py::sequence& inputs, const std::vector<std::int64_t>& table) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

void bind_operator_calls(py::module_& m);  ///< `OperatorCalls` and `ValueNumber`

}  // namespace exportguard::python
