#pragma once

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "exportguard/common/dtypes.h"
#include "exportguard/ir/tensor.h"
#include "exportguard/ir/types.h"

namespace exportguard::ir {

class Graph;

/// Value of an attribute of an ONNX node (`AttributeProto`). Bodies of If, Loop, Scan and of torch's higher-order
/// operators are attributes too.
using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>, Tensor, Type, std::unique_ptr<Graph>>;

/// `{"axis", -1}`.
using NamedAttribute = std::pair<std::string, Attribute>;

/// Attributes as a call writes them, `{{"axis", -1}, {"keepdims", 0}}`. Takes move-only values (graphs) out of the
/// braces, which a `std::vector` cannot.
class AttributeList {
 public:
  struct Entry {
    template <typename T>
    Entry(std::string_view entry_name, T&& entry_value) : name(entry_name), value(std::forward<T>(entry_value)) {}
    std::string name;
    mutable Attribute value;  // moved out of the initializer list, whose elements are const
  };

  AttributeList() = default;
  AttributeList(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) items_.emplace_back(entry.name, std::move(entry.value));
  }
  AttributeList(std::vector<NamedAttribute> items) : items_(std::move(items)) {}  // NOLINT: the same thing, spelled out

  std::vector<NamedAttribute> take() && { return std::move(items_); }

 private:
  std::vector<NamedAttribute> items_;
};

/// An argument of a torch-level node, in the position of its schema.
struct Argument {
  struct None {
    friend bool operator==(None, None) = default;
  };
  /// The operand `node.input(index)`.
  struct Operand {
    std::size_t index;
    friend bool operator==(Operand, Operand) = default;
  };
  /// A torch enum or device by its torch name without `torch.`: `contiguous_format`, `strided`, `cpu`, `inf`.
  struct Symbol {
    std::string name;
    friend bool operator==(const Symbol&, const Symbol&) = default;
  };
  using List = std::vector<Argument>;

  std::variant<None, Operand, bool, std::int64_t, double, std::complex<double>, std::string, DType, Symbol, List> value;

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value);
  }
  bool is_none() const { return std::holds_alternative<None>(value); }
  friend bool operator==(const Argument&, const Argument&) = default;
};

}  // namespace exportguard::ir
