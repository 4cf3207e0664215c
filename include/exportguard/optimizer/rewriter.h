#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exportguard/ir/graph.h"
#include "exportguard/optimizer/facts.h"

namespace exportguard::optimizer {

/// Writes what a pattern makes: new nodes go in front of the node that matched. The optimizer erases what nobody reads
/// afterwards.
class Rewriter {
 public:
  Rewriter(ir::Model& model, const Facts& facts, ir::Node& root) : model_(model), facts_(facts), root_(root) {}

  ir::Model& model() const { return model_; }
  const Facts& facts() const { return facts_; }
  ir::Node& root() const { return root_; }

  /// One node of the ONNX domain. The type is that of its output.
  Value& op(std::string_view op, std::vector<Value*> inputs, ir::AttributeList attributes, ir::Type type);
  std::vector<Value*> op_many(std::string_view op, std::vector<Value*> inputs, ir::AttributeList attributes,
                              std::vector<ir::Type> types);
  /// The same of another domain.
  ir::Node& node(ir::NodeSpec spec);

  /// Constants are shared: the same small one is made once in a model. `name` is for those that have no short text.
  Value& constant(ir::Tensor tensor, std::string_view name = "constant");
  Value& ints(const std::vector<std::int64_t>& values);
  /// An initializer of the outermost graph under that name; one of the same memory is found again, another one gets a
  /// number behind its name.
  Value& weight(const std::string& name, ir::Tensor tensor);
  /// A tensor that stands for an initializer in another layout, under a name made of that one's.
  Value& view_of(const Value& initializer, std::string_view suffix, ir::Tensor tensor);
  /// int64[1] with one size of `value`. It is read off an input of the graph where one has that size.
  Value& size(Value& value, std::size_t axis);
  /// `value` with that shape; each entry must be constant or equal to the size of `value` at the same position.
  Value& reshape(Value& value, const ir::Shape& shape);
  Value& transpose(Value& value, const std::vector<std::int64_t>& permutation);

  /// Every reader of `old` reads `by` from now on. A new value takes over the name.
  void replace(Value& old, Value& by);

  /// A node that was written in another way than by this object.
  void note_made(ir::Node& node) { made_.push_back(&node); }

  const std::vector<ir::Node*>& made() const { return made_; }
  const std::vector<ir::Node*>& changed() const { return changed_; }    ///< readers of what was replaced
  const std::vector<ir::Node*>& replaced() const { return replaced_; }  ///< nodes that gave what was replaced

 private:
  ir::Graph& main_graph() const;

  ir::Model& model_;
  const Facts& facts_;
  ir::Node& root_;
  std::vector<ir::Node*> made_;
  std::vector<ir::Node*> changed_;
  std::vector<ir::Node*> replaced_;
};

}  // namespace exportguard::optimizer
