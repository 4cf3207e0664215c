#include "serialization/function_reader.h"

#include <fmt/format.h>

#include "exportguard/common/errors.h"
#include "serialization/graph_reader.h"

namespace exportguard::serialization {
namespace {

constexpr std::size_t kMostInstances = 10'000;

std::string signature(const Bindings& bindings) {
  std::string text;
  for (const auto& [name, attribute] : bindings) {
    pb::AttributeProto plain(*attribute);
    plain.clear_doc_string();
    plain.set_name(name);
    text += plain.SerializeAsString();
  }
  return text;
}

}  // namespace

FunctionReader::FunctionReader(const pb::ModelProto& model, GraphReader& graphs) : graphs_(graphs) {
  for (const pb::FunctionProto& function : model.functions()) {
    const bool is_new = protos_.emplace(key(function.domain(), function.name(), function.overload()), &function).second;
    if (!is_new) throw FileError(fmt::format("two functions are called {}::{}", function.domain(), function.name()));
  }
}

std::string FunctionReader::key(const std::string& domain, const std::string& name, const std::string& overload) {
  return fmt::format("{}\n{}\n{}", plain_domain(domain), name, overload);
}

std::string FunctionReader::find_call(const pb::NodeProto& node, const Bindings& outer) {
  const auto found = protos_.find(key(node.domain(), node.op_type(), node.overload()));
  return found == protos_.end() ? std::string() : instance(*found->second, bind(*found->second, node, outer));
}

// What the call leaves out has the function's default; what has none is left out in the body as well.
Bindings FunctionReader::bind(const pb::FunctionProto& function, const pb::NodeProto& call,
                              const Bindings& outer) const {
  Bindings bindings;
  for (const pb::AttributeProto& attribute : function.attribute_proto()) bindings[attribute.name()] = &attribute;
  for (const pb::AttributeProto& attribute : call.attribute()) {
    const pb::AttributeProto* value = find_bound(attribute, outer);
    if (value == nullptr) continue;
    if (value->has_g()) {
      throw FileError(fmt::format("function {}::{} is given a graph as attribute '{}', which cannot be read",
                                  function.domain(), function.name(), attribute.name()));
    }
    bindings[attribute.name()] = value;
  }
  return bindings;
}

std::string FunctionReader::instance(const pb::FunctionProto& function, const Bindings& bindings) {
  const std::string base = key(function.domain(), function.name(), function.overload());
  const std::string whole = base + '\n' + signature(bindings);
  if (const auto known = instances_.find(whole); known != instances_.end()) return known->second;
  if (!open_.insert(&function).second) {
    throw FileError(fmt::format("function {}::{} calls itself", function.domain(), function.name()));
  }
  if (instances_.size() >= kMostInstances) {
    throw FileError(fmt::format("functions are called with more than {} sets of attributes", kMostInstances));
  }

  std::string name = function.overload().empty() ? function.name() : function.name() + '_' + function.overload();
  if (const std::size_t earlier = counts_[base]++; earlier > 0) name += fmt::format("_{}", earlier);
  read(function, name, bindings);
  open_.erase(&function);
  instances_.emplace(whole, name);
  return name;
}

void FunctionReader::read(const pb::FunctionProto& function, const std::string& name, const Bindings& bindings) {
  ir::Function read{
      .domain = plain_domain(function.domain()), .name = name, .attributes = {}, .body = {}, .opsets = {}};
  for (const auto& opset : function.opset_import()) read.opsets[plain_domain(opset.domain())] = opset.version();
  read.body = graphs_.read(function, bindings);
  functions_.push_back(std::move(read));
}

std::vector<ir::Function> FunctionReader::take(const pb::ModelProto& model) {
  for (const pb::FunctionProto& function : model.functions()) {
    const bool was_called = counts_.contains(key(function.domain(), function.name(), function.overload()));
    if (!was_called && function.attribute().empty()) instance(function, bind(function, {}, {}));
  }
  return std::move(functions_);
}

}  // namespace exportguard::serialization
