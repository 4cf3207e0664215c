#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/iteration.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

// Control flow of exported programs. The importer keeps the bodies as graph attributes and None at their positions. A
// body reads what is outside of it through its inputs alone; in ONNX it reads the values of the graph around it.

namespace exportguard::lowering {
namespace {

using ir::Argument;

constexpr std::string_view kSizedAnew = "exportguard.sized_anew.default";
constexpr std::string_view kTakenFor = "exportguard.taken_for.default";

/// An argument as a value; null for None. Strings and other settings are no values.
Value* find_value(LoweringContext& ctx, const Argument& argument) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) return &ctx.node().input(operand->index);
  if (const auto* number = argument.get_if<std::int64_t>()) return ctx.constant(*number, DType::kInt64);
  if (const auto* number = argument.get_if<double>()) return ctx.constant(*number, DType::kFloat64);
  if (const auto* flag = argument.get_if<bool>()) return ctx.constant(*flag, DType::kBool);
  return nullptr;
}

/// Argument `i`, a list of tensors and numbers, as values.
std::vector<Value*> operands(LoweringContext& ctx, std::size_t i) {
  std::vector<Value*> values;
  if (i >= ctx.node().arguments().size()) return values;
  const auto* list = ctx.node().arguments()[i].get_if<Argument::List>();
  ctx.require(list != nullptr, fmt::format("argument {} must be a list of operands", i));
  for (const Argument& item : *list) values.push_back(find_value(ctx, item));
  return values;
}

std::vector<Value*> joined(std::vector<Value*> a, const std::vector<Value*>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Value* as_condition(LoweringContext& ctx, Value* value) {
  Value* flag = ctx.cast(value, DType::kBool);
  return ctx.rank(flag) == 0 ? flag : ctx.reshape(flag, {});
}

// ------------------------------------------------------------------------------------------------ bodies

/// The graph attribute of an ONNX node just made.
ir::Graph& body_of(const Value* output, std::string_view attribute) { return output->producer()->subgraph(attribute); }

std::unique_ptr<ir::Graph> empty_graph(std::string_view name) { return std::make_unique<ir::Graph>(std::string(name)); }

/// The results of an ONNX node that stands for the torch-level node: they have torch's types.
void take_types(LoweringContext& ctx, const std::vector<Value*>& outputs, const std::vector<std::size_t>& positions) {
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i]->set_type(ctx.output_type(positions[i]));
}

/// Positions of the outputs that are not None in the body.
std::vector<std::size_t> output_positions(const ir::Graph& body) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < body.output_count(); ++i) {
    if (body.find_output(i) != nullptr) positions.push_back(i);
  }
  return positions;
}

/// One result for each output of the torch-level node; null where the body has None.
void finish(LoweringContext& ctx, const std::vector<Value*>& outputs, const std::vector<std::size_t>& positions) {
  take_types(ctx, outputs, positions);
  std::vector<Value*> results(ctx.node().output_count());
  for (std::size_t i = 0; i < outputs.size(); ++i) results.at(positions[i]) = outputs[i];
  ctx.results(results);
}

// ------------------------------------------------------------------------------------------------ cond

void fill_branch(LoweringContext& ctx, ir::Graph& graph, const ir::Graph& branch,
                 const std::vector<Value*>& arguments) {
  const LoweringContext::Inside inside(ctx, graph);
  std::vector<Value*> values = ctx.inlined(branch, arguments);
  std::erase(values, nullptr);
  for (std::size_t i = 0; const std::size_t position : output_positions(branch)) {
    values[i] = ctx.cast(values[i], ctx.output_dtype(position));
    ++i;
  }
  return_from(ctx, graph, values);
}

void lower_cond(LoweringContext& ctx) {
  const ir::Graph& on_true = ctx.body("true_fn");
  const ir::Graph& on_false = ctx.body("false_fn");
  const std::vector<Value*> arguments = operands(ctx, 3);
  if (!ctx.is_value(0)) return ctx.results(ctx.inlined(ctx.flag(0) ? on_true : on_false, arguments));
  const std::vector<std::size_t> positions = output_positions(on_true);
  ctx.require(positions == output_positions(on_false), "both branches must return None at the same positions");
  if (positions.empty()) return finish(ctx, {}, {});  // nothing comes out of it
  const std::vector<Value*> outputs =
      ctx.op_many("If", {as_condition(ctx, ctx.input(0))}, positions.size(),
                  {{"then_branch", empty_graph("then")}, {"else_branch", empty_graph("else")}});
  fill_branch(ctx, body_of(outputs.front(), "then_branch"), on_true, arguments);
  fill_branch(ctx, body_of(outputs.front(), "else_branch"), on_false, arguments);
  finish(ctx, outputs, positions);
}

// ------------------------------------------------------------------------------------------------ loops

/// Inputs of a body under construction that stand for the first inputs of the torch-level body.
std::vector<Value*> add_inputs(ir::Graph& graph, const ir::Graph& body, std::size_t count) {
  std::vector<Value*> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(&graph.add_input(body.input(i).name(), body.input(i).type()));
  return values;
}

/// Whether steps give a state other sizes, see rewrites/resizing.py: torch's type of it is that of no step.
bool is_resized(const ir::Graph& step, std::size_t state) {
  return std::ranges::any_of(step.input(state).uses(), [](const ir::Use* use) {
    const std::string name = use->user().qualified_name();
    return name == kSizedAnew || name == kTakenFor;
  });
}

/// The type with sizes of which nothing is known, but for those that are numbers.
ir::Type of_any_size(LoweringContext& ctx, ir::Type type) {
  if (!type.shape) return type;
  for (ir::Dim& size : *type.shape) {
    if (!size.is_constant()) size = ctx.fresh_size();
  }
  return type;
}

void forget_sizes_of_steps(LoweringContext& ctx, const ir::Graph& step, const std::vector<Value*>& states) {
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (is_resized(step, i)) states[i]->set_type(of_any_size(ctx, step.input(i).type()));
  }
}

void rename(ir::Graph& graph, const std::map<std::string, SymExpr>& names) {
  for (ir::Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      ir::Type type = node.output(i).type();
      if (type.shape) {
        for (ir::Dim& size : *type.shape) size = size.substitute(names);
      }
      if (type.value) type.value = type.value->substitute(names);
      node.output(i).set_type(std::move(type));
    }
    for (ir::Graph* nested : node.subgraphs()) rename(*nested, names);
  }
}

void add_symbols(const ir::Graph& graph, std::set<std::string>& symbols) {
  const auto add = [&](const SymExpr& expression) {
    for (std::string& symbol : expression.symbols()) symbols.insert(std::move(symbol));
  };
  for (const ir::Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const ir::Type& type = node.output(i).type();
      if (type.shape) std::ranges::for_each(*type.shape, add);
      if (type.value) add(*type.value);
    }
    for (const ir::Graph* nested : node.subgraphs()) add_symbols(*nested, symbols);
  }
}

/// A copy whose own sizes, those that tensor data makes in it, have other names: it is written twice, and a size of the
/// one is none of the other.
std::unique_ptr<ir::Graph> of_own_sizes(LoweringContext& ctx, const ir::Graph& graph) {
  std::unique_ptr<ir::Graph> copy = graph.clone();
  std::set<std::string> symbols;
  add_symbols(graph, symbols);
  std::map<std::string, SymExpr> names;
  for (const std::string& symbol : symbols) {
    if (ctx.find_dim_value(SymExpr::symbol(symbol)) == nullptr) names.emplace(symbol, ctx.fresh_size());
  }
  rename(*copy, names);
  return copy;
}

std::vector<std::size_t> all_positions(std::size_t count) {
  std::vector<std::size_t> positions(count);
  for (std::size_t i = 0; i < count; ++i) positions[i] = i;
  return positions;
}

/// Each value in the dtype of the body's input that it is handed to.
std::vector<Value*> cast_to_inputs(LoweringContext& ctx, std::vector<Value*> values, const ir::Graph& body) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = ctx.cast(values[i], body.input(i).dtype());
  return values;
}

void fill_while(LoweringContext& ctx, ir::Graph& graph, std::size_t carried, const std::vector<Value*>& captured) {
  const ir::Graph& step = ctx.body("body_fn");
  graph.add_input("iteration", ir::Type::tensor(DType::kInt64, ir::Shape{}));
  graph.add_input("continues", ir::Type::tensor(DType::kBool, ir::Shape{}));
  const std::vector<Value*> state = add_inputs(graph, step, carried);
  forget_sizes_of_steps(ctx, step, state);
  const LoweringContext::Inside inside(ctx, graph);
  const std::vector<Value*> next = cast_to_inputs(ctx, ctx.inlined(step, joined(state, captured)), step);
  Value* continues = ctx.inlined(ctx.body("cond_fn"), joined(next, captured)).at(0);
  return_from(ctx, graph, joined({as_condition(ctx, continues)}, next));
}

void lower_while_loop(LoweringContext& ctx) {
  const std::vector<Value*> initial = cast_to_inputs(ctx, operands(ctx, 2), ctx.body("body_fn"));
  const std::vector<Value*> captured = operands(ctx, 3);
  if (initial.empty()) return finish(ctx, {}, {});  // nothing comes out of it
  const std::unique_ptr<ir::Graph> first_test = of_own_sizes(ctx, ctx.body("cond_fn"));
  Value* first = ctx.inlined(*first_test, joined(initial, captured)).at(0);
  const std::vector<Value*> outputs = ctx.op_many("Loop", joined({nullptr, as_condition(ctx, first)}, initial),
                                                  initial.size(), {{"body", empty_graph("body")}});
  fill_while(ctx, body_of(outputs.front(), "body"), initial.size(), captured);
  take_types(ctx, outputs, all_positions(outputs.size()));
  forget_sizes_of_steps(ctx, ctx.body("body_fn"), outputs);
  ctx.results(outputs);
}

/// exportguard::sized_anew(x, axes): x, whose sizes are told from here on.
void lower_sized_anew(LoweringContext& ctx) { ctx.result(ctx.op("Identity", {ctx.input(0)})); }

/// exportguard::taken_for(x, other): x, not with the sizes that torch says.
void lower_taken_for(LoweringContext& ctx) {
  ctx.node().output().set_type(ctx.input(0)->type());
  ctx.result(ctx.input(0));
}

/// exportguard::broadcast_anew(tensors): each in the sizes that all have together, which a run tells. Expand goes both
/// ways: an axis of size 1 of either is that of the other.
void lower_broadcast_anew(LoweringContext& ctx) {
  const std::vector<Value*> tensors = ctx.inputs(0);
  std::vector<Value*> together;
  for (Value* tensor : tensors) {
    Value* made = tensor;
    for (Value* other : tensors) {
      if (other != tensor) made = ctx.op("Expand", {made, ctx.shape_of(other)});
    }
    together.push_back(made);
  }
  ctx.results(together);
}

/// What a Scan runs over: state handed from step to step, and tensors cut along their first axis.
struct ScanOperands {
  std::vector<Value*> state;
  std::vector<Value*> cut;
  std::vector<Value*> captured;
  bool collects_state = false;  ///< what a turn makes of the state is an element of the outputs too
};

std::vector<Value*> make_scan(LoweringContext& ctx, const ScanOperands& operands, std::size_t outputs) {
  ctx.require(!operands.cut.empty(), "there must be a tensor to run over");
  return ctx.op_many(
      "Scan", joined(operands.state, operands.cut), outputs,
      {{"body", empty_graph("body")}, {"num_scan_inputs", static_cast<std::int64_t>(operands.cut.size())}});
}

/// What a turn makes of its state and its slices; the state comes out in the dtypes in which it went in.
std::vector<Value*> turned(LoweringContext& ctx, const ir::Graph& step, const std::vector<Value*>& inputs,
                           const ScanOperands& given) {
  std::vector<Value*> results = ctx.inlined(step, joined(inputs, given.captured));
  std::erase(results, nullptr);
  for (std::size_t i = 0; i < given.state.size(); ++i) results[i] = ctx.cast(results[i], step.input(i).dtype());
  return given.collects_state ? joined(results, results) : results;
}

std::vector<Value*> made_by_scan(LoweringContext& ctx, const ir::Graph& step, const ScanOperands& given,
                                 std::size_t count) {
  const std::vector<Value*> outputs = make_scan(ctx, given, count);
  ir::Graph& graph = body_of(outputs.front(), "body");
  const std::vector<Value*> inputs = add_inputs(graph, step, given.state.size() + given.cut.size());
  const LoweringContext::Inside inside(ctx, graph);
  return_from(ctx, graph, turned(ctx, step, inputs, given));
  return outputs;
}

/// The same by Loop, whose turns take their slices themselves.
std::vector<Value*> made_by_loop(LoweringContext& ctx, const ir::Graph& step, const ScanOperands& given,
                                 std::size_t count) {
  const std::vector<Value*> outputs =
      ctx.op_many("Loop", joined({ctx.dim_scalar(given.cut.front(), 0), ctx.constant(true, DType::kBool)}, given.state),
                  count, {{"body", empty_graph("body")}});
  ir::Graph& graph = body_of(outputs.front(), "body");
  Value& turn = graph.add_input("iteration", ir::Type::tensor(DType::kInt64, ir::Shape{}));
  graph.add_input("continues", ir::Type::tensor(DType::kBool, ir::Shape{}));
  std::vector<Value*> inputs = add_inputs(graph, step, given.state.size());
  const LoweringContext::Inside inside(ctx, graph);
  for (std::size_t i = 0; i < given.cut.size(); ++i) {
    Value* slice = ctx.gather(given.cut[i], &turn, 0);
    slice->set_type(step.input(given.state.size() + i).type());
    inputs.push_back(slice);
  }
  const std::vector<Value*> results = turned(ctx, step, inputs, given);
  return_from(ctx, graph, joined({ctx.constant(true, DType::kBool)}, results));
  return outputs;
}

/// What a Loop collects in no turn at all has 0 where the size of an element is not written in the file; this gives it
/// the sizes that torch says, where the inputs tell them.
Value* of_full_size(LoweringContext& ctx, Value* collected, const ir::Type& type) {
  if (!type.shape) return collected;
  const auto is_known = [](const ir::Dim& size) { return size.constant().has_value(); };
  if (std::all_of(type.shape->begin() + 1, type.shape->end(), is_known)) return collected;
  std::vector<Size> sizes;
  for (const ir::Dim& size : *type.shape) {
    Value* value = ctx.find_dim_value(size);
    if (value == nullptr) return collected;
    sizes.emplace_back(value);
  }
  return ctx.reshape(collected, sizes);
}

/// The torch-level body's inputs are the state, one slice of each tensor, and what is captured. A Scan of no slice
/// fails in some runtimes; there a Loop goes through what may have none.
/// @param collected types of the outputs behind the state
std::vector<Value*> made(LoweringContext& ctx, const ir::Graph& step, const ScanOperands& given,
                         const std::vector<ir::Type>& collected) {
  const std::size_t carried = given.state.size();
  const bool may_be_empty = ctx.shape(given.cut.front()).at(0).constant().value_or(0) == 0;
  const bool is_loop = may_be_empty && departs(ctx, Departure::kScanOfNothing);
  std::vector<Value*> outputs = (is_loop ? made_by_loop : made_by_scan)(ctx, step, given, carried + collected.size());
  for (std::size_t i = 0; is_loop && i < collected.size(); ++i) {
    outputs[carried + i] = of_full_size(ctx, outputs[carried + i], collected[i]);
  }
  return outputs;
}

void lower_as_scan(LoweringContext& ctx, const ir::Graph& step, const ScanOperands& given) {
  ctx.require(!given.cut.empty(), "there must be a tensor to run over");
  const std::vector<std::size_t> positions = output_positions(step);
  if (positions.empty()) return finish(ctx, {}, {});  // nothing comes out of it
  std::vector<ir::Type> collected;
  for (std::size_t i = given.state.size(); i < positions.size(); ++i)
    collected.push_back(ctx.output_type(positions[i]));
  const std::vector<Value*> outputs = made(ctx, step, given, collected);
  finish(ctx, outputs, positions);
}

void lower_scan(LoweringContext& ctx) {
  const ir::Graph& step = ctx.body("combine_fn");
  const std::vector<Value*> initial = cast_to_inputs(ctx, operands(ctx, 1), step);
  lower_as_scan(ctx, step, {initial, operands(ctx, 2), operands(ctx, 3)});
}

/// The body of an operator that has one.
const ir::Graph& sole_body(LoweringContext& ctx) {
  const std::vector<ir::Graph*> bodies = ctx.node().subgraphs();
  ctx.require(bodies.size() == 1, fmt::format("the operator must have one body, got {}", bodies.size()));
  return *bodies.front();
}

void lower_map(LoweringContext& ctx) { lower_as_scan(ctx, sole_body(ctx), {{}, operands(ctx, 1), operands(ctx, 2)}); }

/// Running combination: the first slice as it is, then each slice combined with what came before.
void lower_associative_scan(LoweringContext& ctx) {
  const ir::Graph& combine = ctx.body("combine_fn");
  const std::vector<Value*> whole = operands(ctx, 1);
  ctx.require(!whole.empty(), "there must be a tensor to run over");
  const std::vector<Value*> captured = operands(ctx, 2);

  ScanOperands given{.captured = captured, .collects_state = true};
  std::vector<ir::Type> rest_types;
  for (Value* x : whole) {
    given.state.push_back(ctx.gather(x, ctx.constant(0, DType::kInt64), 0));
    given.cut.push_back(ctx.slice(x, 0, 1, kEnd));
    rest_types.push_back(given.cut.back()->type());
  }
  const std::vector<Value*> outputs = made(ctx, combine, given, rest_types);

  std::vector<Value*> running;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Value* rest = outputs[whole.size() + i];
    rest->set_type(rest_types[i]);
    running.push_back(ctx.concat({ctx.unsqueeze(given.state[i], {0}), rest}, 0));
  }
  ctx.results(running);
}

// ------------------------------------------------------------------------------------------------ wrappers

void collect_values(LoweringContext& ctx, const Argument& argument, std::vector<Value*>& values) {
  if (const auto* list = argument.get_if<Argument::List>()) {
    for (const Argument& item : *list) collect_values(ctx, item, values);
  } else if (Value* value = find_value(ctx, argument)) {
    values.push_back(value);
  }
}

/// Operators that run their body as it is, under a setting that means nothing in ONNX. The operands follow the body,
/// each by itself or as a list; what else follows is a setting.
void lower_wrapper(LoweringContext& ctx) {
  const ir::Graph& body = sole_body(ctx);
  const auto& arguments = ctx.node().arguments();
  const auto at_body = std::ranges::find_if(arguments, [](const Argument& a) { return a.is_none(); });
  std::vector<Value*> values;
  for (auto argument = at_body; argument != arguments.end(); ++argument) collect_values(ctx, *argument, values);
  ctx.require(values.size() >= body.input_count(),
              fmt::format("the body takes {} operands, got {}", body.input_count(), values.size()));
  values.resize(body.input_count());
  ctx.results(ctx.inlined(body, values));
}

/// The body of an enabled autocast computes in other dtypes than its operators say.
void lower_autocast(LoweringContext& ctx) {
  ctx.require(!ctx.flag(2),
              "torch.autocast is enabled in the model; export it without, in the dtype that it shall have");
  const ir::Graph& body = sole_body(ctx);
  const auto& arguments = ctx.node().arguments();
  std::vector<Value*> values;
  for (std::size_t i = 5; i < arguments.size(); ++i) collect_values(ctx, arguments[i], values);
  ctx.results(ctx.inlined(body, values));
}

}  // namespace

void populate_higher_order(LoweringTable& table) {
  table.add("higher_order.cond", lower_cond);
  table.add("higher_order.while_loop", lower_while_loop);
  table.add(kSizedAnew, lower_sized_anew);
  table.add(kTakenFor, lower_taken_for);
  table.add("exportguard.broadcast_anew.default", lower_broadcast_anew);
  table.add("higher_order.scan", lower_scan);
  table.add({"higher_order.map_impl", "higher_order.map"}, lower_map);
  table.add("higher_order.associative_scan", lower_associative_scan);
  table.add({"higher_order.wrap_with_set_grad_enabled", "higher_order.invoke_subgraph", "higher_order.hints_wrapper",
             "higher_order.wrap", "higher_order.strict_mode", "higher_order.tag_activation_checkpoint",
             "higher_order.wrap_activation_checkpoint"},
            lower_wrapper);
  table.add("higher_order.wrap_with_autocast", lower_autocast);
}

}  // namespace exportguard::lowering
