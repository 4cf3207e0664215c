#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace exportguard::evaluator {

class Call;

/// Runs one node: reads it through the call and puts every output with `call.result(...)`, in order.
using Operator = void (*)(Call&);

/// Which function runs which operator, by qualified name: `MatMul`, `com.microsoft::Gelu`.
class OperatorTable {
 public:
  /// @throws InvalidArgument if the operator has a row already.
  void add(std::string_view name, Operator run);
  void add(std::initializer_list<std::string_view> names, Operator run);
  Operator find(std::string_view name) const;  ///< null without a row

  /// The table with every unit of `src/evaluator/ops`; built once.
  static const OperatorTable& builtin();

 private:
  std::unordered_map<std::string, Operator> rows_;
};

}  // namespace exportguard::evaluator
