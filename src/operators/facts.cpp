#include "operators/facts.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <map>
#include <set>

#include "operators/schemas.h"

namespace exportguard::operators {
namespace {

using c10::FunctionSchema;

struct Operator {
  const std::string& domain;
  const std::string& op;
};

// The schemas of these do not say that the result may be the argument itself.
const std::set<std::string_view>& silent_views() {
  static const std::set<std::string_view> names = {
      "alpha_dropout", "atleast_1d", "atleast_2d",      "atleast_3d",
      "dropout",       "type_as",    "feature_dropout", "feature_alpha_dropout"};
  return names;
}

const std::set<std::string_view>& views_or_copies() {
  static const std::set<std::string_view> names = {"contiguous", "flatten", "ravel", "reshape", "reshape_as", "to"};
  return names;
}

const std::set<std::string_view>& shape_changes() {
  static const std::set<std::string_view> names = {"as_strided_", "detach_", "requires_grad_", "squeeze_",  "swapaxes_",
                                                   "swapdims_",   "t_",      "transpose_",     "unsqueeze_"};
  return names;
}

/// Counterparts whose name does not follow from that of the operator.
const std::map<std::string_view, std::string_view>& irregular_counterparts() {
  static const std::map<std::string_view, std::string_view> names = {
      {"__iand__.Scalar", "bitwise_and.Scalar"},
      {"__iand__.Tensor", "bitwise_and.Tensor"},
      {"__ior__.Scalar", "bitwise_or.Scalar"},
      {"__ior__.Tensor", "bitwise_or.Tensor"},
      {"__ixor__.Scalar", "bitwise_xor.Scalar"},
      {"__ixor__.Tensor", "bitwise_xor.Tensor"},
      {"__ilshift__.Scalar", "__lshift__.Scalar"},
      {"__ilshift__.Tensor", "__lshift__.Tensor"},
      {"__irshift__.Scalar", "__rshift__.Scalar"},
      {"__irshift__.Tensor", "__rshift__.Tensor"},
      {"_index_put_impl_.default", "index_put.default"},
      {"_native_batch_norm_legit.default", "_native_batch_norm_legit_functional.default"},
      {"_batch_norm_with_update.default", "_batch_norm_with_update_functional.default"},
      {"bernoulli_.float", "bernoulli.p"},
      {"normal_.default", "normal_functional.default"},
      {"rrelu_with_noise_.default", "rrelu_with_noise_functional.default"},
  };
  return names;
}

bool is_shared(const c10::Argument& argument) { return argument.alias_info() && !argument.alias_info()->isWrite(); }

/// Overloads of every operator, by `aten::add`. The dispatcher has no such look-up; it is filled once.
const std::multimap<std::string, std::string>& all_overloads() {
  static const auto overloads = [] {
    std::multimap<std::string, std::string> found;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      found.emplace(name.name, name.overload_name);
    }
    return found;
  }();
  return overloads;
}

/// Whether `candidate` writes nothing and takes the arguments of `schema` except those that `schema` writes and
/// `candidate` does not take (`out=`).
bool takes_the_same(const FunctionSchema& candidate, const FunctionSchema& schema, bool without_written) {
  std::vector<std::string> wanted;
  for (const c10::Argument& argument : schema.arguments()) {
    if (!(without_written && is_written(argument))) wanted.push_back(argument.name());
  }
  if (candidate.arguments().size() != wanted.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const c10::Argument& argument = candidate.arguments()[i];
    const auto position = schema.argumentIndexWithName(wanted[i]);
    if (is_written(argument) || argument.name() != wanted[i]) return false;
    if (*argument.type() != *schema.arguments()[*position].type()) return false;
  }
  return true;
}

std::string spelled(std::string_view base, std::string_view overload) {
  return std::string(base) + "." + (overload.empty() ? "default" : std::string(overload));
}

std::optional<Counterpart> counterpart(const std::string& op, const FunctionSchema& schema) {
  return Counterpart{op, schema.arguments().size(), schema.returns().size()};
}

/// Among the overloads of `base`, the one that takes what `schema` takes.
std::optional<Counterpart> search_overloads(const std::string& domain, std::string_view base,
                                            const FunctionSchema& schema, bool without_written) {
  const auto [begin, end] = all_overloads().equal_range(domain + "::" + std::string(base));
  for (auto row = begin; row != end; ++row) {
    const std::string op = spelled(base, row->second);
    const FunctionSchema* candidate = find_schema(domain, op);
    if (candidate && takes_the_same(*candidate, schema, without_written)) return counterpart(op, *candidate);
  }
  return std::nullopt;
}

bool is_out_variant(const FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::ranges::any_of(arguments, [](const c10::Argument& a) { return is_written(a) && a.kwarg_only(); });
}

std::optional<Counterpart> find_counterpart(const Operator& node, const FunctionSchema& schema) {
  const std::string& op = node.op;
  if (const auto row = irregular_counterparts().find(op); row != irregular_counterparts().end()) {
    const FunctionSchema* found = find_schema(node.domain, row->second);
    return found ? counterpart(std::string(row->second), *found) : std::nullopt;
  }
  const std::string_view base = base_name(op);
  if (is_out_variant(schema)) return search_overloads(node.domain, base, schema, true);
  if (!base.ends_with('_') || base.ends_with("__")) return std::nullopt;
  const std::string_view stripped = base.substr(0, base.size() - 1);
  const std::string same_overload = spelled(stripped, overload_name(op));
  if (const FunctionSchema* found = find_schema(node.domain, same_overload)) return counterpart(same_overload, *found);
  return search_overloads(node.domain, stripped, schema, false);
}

std::optional<std::size_t> written_argument_of(const c10::Argument& result, const FunctionSchema& schema) {
  if (!is_written(result)) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_written(argument) && argument.alias_info()->beforeSets() == result.alias_info()->beforeSets()) return i;
  }
  return std::nullopt;
}

OperatorFacts facts_of_write(const Operator& node, const FunctionSchema& schema) {
  OperatorFacts facts;
  facts.effect = shape_changes().contains(base_name(node.op)) ? Effect::kReshapeSelf : Effect::kWrite;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i])) facts.written.push_back(i);
  }
  for (const c10::Argument& result : schema.returns()) facts.returns.push_back(written_argument_of(result, schema));
  facts.functional = find_counterpart(node, schema);
  if (is_out_variant(schema)) facts.dropped = facts.written;
  return facts;
}

OperatorFacts facts_of_view(const Operator& node, const FunctionSchema& schema) {
  OperatorFacts facts;
  const std::string_view base = base_name(node.op);
  const auto argument = std::ranges::find_if(schema.arguments(), is_shared);
  if (argument != schema.arguments().end() && std::ranges::any_of(schema.returns(), is_shared)) {
    facts.effect = views_or_copies().contains(base) ? Effect::kMaybeView : Effect::kView;
    facts.viewed = static_cast<std::size_t>(argument - schema.arguments().begin());
  } else if (node.domain == "aten" && silent_views().contains(base)) {
    facts.effect = Effect::kMaybeView;
  }
  return facts;
}

OperatorFacts look_up(const Operator& op) {
  const FunctionSchema* schema = find_schema(op.domain, op.op);
  if (schema == nullptr) return {};
  return writes(*schema) ? facts_of_write(op, *schema) : facts_of_view(op, *schema);
}

}  // namespace

OperatorFacts facts_of(const std::string& domain, const std::string& op) { return look_up({domain, op}); }

const OperatorFacts& OperatorTable::of(const ir::Node& node) {
  const auto [row, is_new] = facts_.try_emplace(node.qualified_name());
  if (is_new) row->second = look_up({node.domain(), node.op()});
  return row->second;
}

}  // namespace exportguard::operators
