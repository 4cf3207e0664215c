#include "python/converters.h"

#include <exportguard/ir/places.h>
#include <exportguard/lowering/context.h>
#include <fmt/format.h>
#include <pybind11/stl.h>

#include <memory>

#include "python/graph_scope.h"
#include "python/literals.h"

namespace exportguard::python {
namespace {

using ir::Argument;
using lowering::LoweringContext;

/// The node that the context stands in front of.
ir::Node& place_of(const ir::Node& node) {
  ir::Node* previous = node.previous();
  return previous ? *previous->next() : *node.graph().first();
}

/// One call of a converter.
class Conversion {
 public:
  explicit Conversion(LoweringContext& ctx) : ctx_(ctx), construction_(std::make_shared<Construction>()) {
    construction_->model = &ctx.model();
  }
  ~Conversion() { construction_->is_over = true; }
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

  std::vector<ir::Value*> run(const py::object& function) {
    py::list arguments;
    for (std::size_t i = 0; i < ctx_.argument_count(); ++i) arguments.append(to_python(ctx_.argument(i)));
    return results(function(scope_over(ctx_, &place_of(ctx_.node()), construction_), arguments));
  }

 private:
  py::object to_python(const Argument& argument) {
    if (const auto* operand = argument.get_if<Argument::Operand>()) {
      return py::cast(ValueHandle{construction_, &ctx_.node().input(operand->index)});
    }
    const auto* list = argument.get_if<Argument::List>();
    if (list == nullptr) return literal_to_python(argument);
    py::list items;
    for (const Argument& item : *list) items.append(to_python(item));
    return items;
  }

  std::vector<ir::Value*> results(const py::object& returned) {
    const bool is_many = py::isinstance<py::list>(returned) || py::isinstance<py::tuple>(returned);
    const py::sequence given = is_many ? py::sequence(returned) : py::sequence(py::make_tuple(returned));
    const std::size_t wanted = ctx_.node().output_count();
    if (given.size() != wanted) {
      ctx_.fail(fmt::format("the converter must return {} values, got {}", wanted, given.size()));
    }
    std::vector<ir::Value*> values;
    for (std::size_t i = 0; i < wanted; ++i) values.push_back(result(given[i], i));
    return values;
  }

  ir::Value* result(const py::object& given, std::size_t i) {
    if (given.is_none()) return nullptr;
    if (!py::isinstance<ValueHandle>(given)) {
      ctx_.fail(fmt::format("result {} of the converter must be a value of the graph, got {}", i,
                            py::repr(given).cast<std::string>()));
    }
    const auto& handle = given.cast<const ValueHandle&>();
    if (handle.construction != construction_) ctx_.fail(fmt::format("result {} is of another graph", i));
    require_shape(handle.value->type(), ctx_.output_type(i), i);
    return handle.value;
  }

  /// A number is no size that changes; other expressions may be equal without looking so.
  static bool may_be_equal(const ir::Dim& a, const ir::Dim& b) {
    if (a.is_constant() && b.is_constant()) return a == b;
    if (!a.is_constant() && !b.is_constant()) return true;
    const auto symbol = (a.is_constant() ? b : a).symbol_name();
    return !symbol || symbol->starts_with("_d");  // a symbol of the inference may be any size
  }

  /// torch knows the shape of each output; what is known of the result must not contradict it.
  void require_shape(const ir::Type& made, const ir::Type& expected, std::size_t i) {
    if (!made.shape || !expected.shape) return;
    bool fits = made.shape->size() == expected.shape->size();
    for (std::size_t axis = 0; fits && axis < made.shape->size(); ++axis) {
      fits = may_be_equal((*made.shape)[axis], (*expected.shape)[axis]);
    }
    if (!fits) {
      ctx_.fail(fmt::format("result {} of the converter must be {}, got {}", i, expected.str(), made.str()));
    }
  }

  LoweringContext& ctx_;
  std::shared_ptr<Construction> construction_;
};

void convert(const py::object& function, LoweringContext& ctx) {
  const py::gil_scoped_acquire gil;
  try {
    ctx.results(Conversion(ctx).run(function));
  } catch (py::error_already_set& error) {
    error.value().attr("add_note")(
        fmt::format("while {} was converted", ir::placed(ctx.node().qualified_name(), ctx.source())));
    throw;
  }
}

}  // namespace

lowering::LoweringTable table_with(lowering::LoweringTable table, const std::map<std::string, py::object>& converters) {
  for (const auto& [target, function] : converters) {
    table.replace(target, [function = function](LoweringContext& ctx) { convert(function, ctx); });
  }
  return table;
}

}  // namespace exportguard::python
