#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::serialization {

namespace pb = ONNX_NAMESPACE;

class GraphReader;

/// Attributes that a call passes to the body of a function, by name.
using Bindings = std::map<std::string, const pb::AttributeProto*>;

/// Local functions as they are called. The IR has no attribute that refers to one of the call: a function with
/// attributes becomes one function for each set of values that it is called with.
class FunctionReader {
 public:
  /// @throws FileError for two functions of one name.
  FunctionReader(const pb::ModelProto& model, GraphReader& graphs);

  /// The name that a call has in the IR; empty if `node` calls no local function.
  /// @throws FileError if the function calls itself, or if there are too many ways in which functions are called.
  std::string find_call(const pb::NodeProto& node, const Bindings& outer);

  /// The functions that were called, and of the others those without attributes.
  std::vector<ir::Function> take(const pb::ModelProto& model);

 private:
  static std::string key(const std::string& domain, const std::string& name, const std::string& overload);
  Bindings bind(const pb::FunctionProto& function, const pb::NodeProto& call, const Bindings& outer) const;
  std::string instance(const pb::FunctionProto& function, const Bindings& bindings);
  void read(const pb::FunctionProto& function, const std::string& name, const Bindings& bindings);

  GraphReader& graphs_;
  std::map<std::string, const pb::FunctionProto*> protos_;
  std::map<std::string, std::string> instances_;  // by function and values, what they are called
  std::map<std::string, std::size_t> counts_;     // instances of a function
  std::set<const pb::FunctionProto*> open_;       // being read
  std::vector<ir::Function> functions_;
};

}  // namespace exportguard::serialization
