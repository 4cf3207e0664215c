#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/ir/attribute.h"
#include "exportguard/ir/pool.h"
#include "exportguard/ir/tensor.h"
#include "exportguard/ir/types.h"

namespace exportguard::ir {

class Graph;
class Node;
class Value;

/// Gives nodes and values back to the graph that they are part of.
struct ReturnToGraph {
  void operator()(Node* node) const noexcept;
  void operator()(Value* value) const noexcept;
};
using OwnedNode = std::unique_ptr<Node, ReturnToGraph>;
using OwnedValue = std::unique_ptr<Value, ReturnToGraph>;

/// Where a node comes from in the user's model. Interned: compare pointers, never free.
struct Source {
  std::string target;  ///< torch operator, `aten.add.Tensor`
  std::string module;  ///< path in the model, `model.layers.3.mlp`
  std::string type;    ///< class of that module, `LlamaMLP`
  std::string file;    ///< innermost frame of the user's code
  int line = 0;        ///< 1-based; 0 unknown
  std::string code;    ///< that line's text, if known

  /// `model.layers.3.mlp, modeling_llama.py:123`; what is unknown is left out.
  std::string where() const;
  friend auto operator<=>(const Source&, const Source&) = default;
};

/// A `Source` whose text is elsewhere.
struct SourceView {
  std::string_view target;
  std::string_view module;
  std::string_view type;
  std::string_view file;
  int line = 0;
  std::string_view code;
};

/// Returns the one object equal to `source`; it lives until the process ends. Thread-safe.
const Source* intern(const SourceView& source);

/// One operand slot: it links a value to the node that reads it. Users see it through `Value::uses()`.
class Use {
 public:
  Node& user() const { return *user_; }
  std::size_t index() const { return index_; }  ///< operand position in `user()`
  Value* value() const { return value_; }       ///< null for an operand that is left out

  Use(Node& user, std::size_t index, Value* value);
  Use(Use&& other) noexcept;
  Use& operator=(Use&& other) noexcept;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use();

 private:
  friend class Value;
  friend class Node;
  void link(Value* value);
  void unlink() noexcept;

  Node* user_;
  std::size_t index_;
  Value* value_ = nullptr;
  Use* next_ = nullptr;   // the other uses of value_
  Use** prev_ = nullptr;  // whoever points at this one
};

/// A value in static single assignment: a graph input, an initializer, or an output of a node.
class Value {
 public:
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value();

  /// A hint: printing and saving make names unique, keeping those of inputs, outputs and initializers.
  const std::string& name() const { return name_; }
  void set_name(std::string name);  ///< @throws GraphError for an initializer if another one has that name

  const Type& type() const { return type_; }
  void set_type(Type type) { type_ = std::move(type); }
  DType dtype() const { return type_.dtype; }

  Node* producer() const { return producer_; }                 ///< null for inputs and initializers
  std::size_t output_index() const { return index_; }          ///< position among the producer's outputs, or the inputs
  Graph& graph() const;                                        ///< the graph that defines it
  const Tensor* initializer() const { return tensor_.get(); }  ///< null unless an initializer
  bool is_input() const { return producer_ == nullptr && !tensor_; }

  std::size_t use_count() const;  ///< operands that read it, in nested graphs and returns too; linear
  bool is_unused() const { return first_use_ == nullptr; }
  /// The operands that read it; a copy, so that they may be edited meanwhile.
  std::vector<Use*> uses() const;

  /// Every reader of this one reads `other` instead, returns of graphs included.
  void replace_all_uses_with(Value& other);

 private:
  friend class Graph;
  friend class Node;
  friend class Use;
  friend struct ReturnToGraph;
  Value(Graph& graph, Node* producer, std::size_t index, Type type, std::string name);

  Graph* graph_;
  Node* producer_;
  std::size_t index_;
  Type type_;
  std::string name_;
  std::unique_ptr<const Tensor> tensor_;
  Use* first_use_ = nullptr;
};

/// An operation. Its domain tells the level: `""` and `com.microsoft` are ONNX; `aten`, `prims`, `higher_order`,
/// `operator` (Python's arithmetic on SymInts), `torch`, `math` and custom namespaces are torch's, and such a node
/// has `arguments()` beside its operands. Owned by its graph.
class Node {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  const std::string& domain() const { return domain_; }
  const std::string& op() const { return op_; }
  bool is(std::string_view domain, std::string_view op) const { return domain_ == domain && op_ == op; }
  bool is_torch() const { return is_torch_; }
  /// `MatMul`, `com.microsoft::Gelu`, `aten.add.Tensor`.
  std::string qualified_name() const;

  const std::string& name() const { return name_; }  ///< may be empty; printing and saving choose one then
  void set_name(std::string name) { name_ = std::move(name); }

  std::size_t input_count() const { return inputs_.size(); }
  Value* find_input(std::size_t i) const;  ///< null if left out or beyond the last
  Value& input(std::size_t i) const;       ///< @throws GraphError if left out or beyond the last
  void set_input(std::size_t i, Value* value);
  void append_input(Value* value);

  std::size_t output_count() const { return outputs_.size(); }
  Value& output(std::size_t i = 0) const;  ///< @throws GraphError beyond the last
  Value& append_output(Type type, std::string name = {});

  const std::vector<Argument>& arguments() const { return arguments_; }  ///< empty for ONNX nodes
  void set_arguments(std::vector<Argument> arguments) { arguments_ = std::move(arguments); }

  const std::vector<NamedAttribute>& attributes() const { return attributes_; }
  const Attribute* find_attribute(std::string_view name) const;
  const Attribute& attribute(std::string_view name) const;  ///< @throws GraphError if there is none
  void set_attribute(std::string name, Attribute value);    ///< replaces one of the same name
  void remove_attribute(std::string_view name);
  /// The graph attribute of that name. @throws GraphError if there is none.
  Graph& subgraph(std::string_view name) const;
  /// Every graph among the attributes, in order.
  std::vector<Graph*> subgraphs() const;

  const Source* source() const { return source_; }  ///< null if unknown
  void set_source(const Source* source) { source_ = source; }

  Graph& graph() const { return *graph_; }
  Node* next() const;      ///< null at the end
  Node* previous() const;  ///< null at the start
  bool is_erased() const { return erased_; }
  /// Whether this comes before `other` of the same graph; constant time after a linear renumbering.
  bool is_before(const Node& other) const;

 private:
  friend class Graph;
  friend struct ReturnToGraph;
  Node(Graph& graph, std::string domain, std::string op, bool is_torch);
  void erase_operand(std::size_t i);

  Graph* graph_;
  std::string domain_;
  std::string op_;
  std::string name_;
  bool is_torch_;
  bool erased_ = false;
  bool has_subgraphs_ = false;  // or had
  std::vector<Use> inputs_;
  std::vector<OwnedValue> outputs_;
  std::vector<Argument> arguments_;
  std::vector<NamedAttribute> attributes_;
  const Source* source_ = nullptr;
  Node* next_ = nullptr;
  Node* previous_ = nullptr;
  std::size_t order_ = 0;
};

/// Walks the nodes of a graph in order. Stays valid under every edit: the node it stands on may be erased, nodes
/// may be inserted or erased before and after it (inserted behind it: they are visited). Standing on an erased node, it
/// goes on with the node that followed when that one was erased.
class NodeIterator {
 public:
  using value_type = Node;
  using reference = Node&;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::forward_iterator_tag;

  NodeIterator() = default;
  explicit NodeIterator(Node* node) : node_(node) {}
  Node& operator*() const { return *node_; }
  Node* operator->() const { return node_; }
  NodeIterator& operator++();
  NodeIterator operator++(int);
  friend bool operator==(const NodeIterator&, const NodeIterator&) = default;

 private:
  Node* node_ = nullptr;
};

/// What a new node is made of, filled by name.
struct NodeSpec {
  std::string domain;
  std::string op;
  std::vector<Value*> inputs;              ///< null: left out
  std::vector<NamedAttribute> attributes;  ///< moved from
  std::vector<Argument> arguments;         ///< torch-level nodes
  std::vector<Type> outputs = {Type{}};    ///< one type for each output
  bool is_torch = false;
  const Source* source = nullptr;
  std::string name;
};

/// A list of nodes with inputs, outputs and initializers; owns all of them. A nested graph may read values of the
/// graphs around it, as in ONNX.
class Graph {
 public:
  explicit Graph(std::string name = "main");
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// The node that has this graph as an attribute; null for a main graph and a function's body.
  Node* parent() const { return parent_; }

  Value& add_input(std::string name, Type type);
  /// The type comes from the tensor. Names are unique among initializers: a second one of the same name and identity
  /// is the same value. @throws GraphError if the name is taken by another tensor.
  Value& add_initializer(std::string name, Tensor tensor);
  Value* find_initializer(std::string_view name) const;  ///< null if there is none of that name
  std::size_t input_count() const { return inputs_.size(); }
  Value& input(std::size_t i) const;
  /// @throws GraphError while it is read.
  void erase_input(std::size_t i);
  void move_input(std::size_t from, std::size_t to);
  const std::vector<OwnedValue>& inputs() const { return inputs_; }
  const std::vector<OwnedValue>& initializers() const { return initializers_; }
  void erase_unused_initializers();

  std::size_t output_count() const;
  Value* find_output(std::size_t i) const;  ///< null for an output that is None at the torch level
  Value& output(std::size_t i) const;
  std::vector<Value*> outputs() const;
  const std::string& output_name(std::size_t i) const;  ///< the name users see; empty: that of the value
  void add_output(Value* value, std::string name = {});
  void set_output(std::size_t i, Value* value);
  void set_output_name(std::size_t i, std::string name);
  void erase_output(std::size_t i);

  /// The graph owns the node until it is destroyed. @throws GraphError if `where` is not a node of this graph, or an
  /// operand is erased or of a graph that this one cannot see. While this graph is no node's attribute, it may read any
  /// graph outside: it may become a body there.
  Node& append(NodeSpec spec);
  Node& insert_before(Node& where, NodeSpec spec);
  Node& insert_after(Node& where, NodeSpec spec);
  void move_before(Node& node, Node& where);

  /// Takes the node out; references to it stay valid until the graph ends or `sweep`. It and its nested graphs lose
  /// their operands.
  /// @throws GraphError while an output of it is read.
  void erase(Node& node);
  /// Frees what was erased, in nested graphs too. No iterator may stand on an erased node.
  void sweep();
  /// Erases nodes whose outputs nobody reads, in nested graphs too; returns how many. Torch-level nodes with side
  /// effects are for the caller to keep alive (an assertion has no output and is never erased here).
  std::size_t erase_dead_nodes();

  NodeIterator begin() const { return NodeIterator(first_); }
  NodeIterator end() const { return NodeIterator(); }
  Node* first() const { return first_; }
  Node* last() const { return last_; }
  std::size_t node_count() const { return node_count_; }  ///< without nested graphs
  bool is_empty() const { return first_ == nullptr; }

  /// Deep copy; operands that this graph does not define are kept as they are, or mapped by `captured`.
  std::unique_ptr<Graph> clone(const std::map<const Value*, Value*>& captured = {}) const;

  /// Copies the nodes of `other` in front of `where` (or at the end if null), its inputs replaced by `arguments`;
  /// initializers are taken over. Returns what takes the place of its outputs (null for None).
  std::vector<Value*> splice(const Graph& other, std::span<Value* const> arguments, Node* where);

 private:
  friend class Node;
  friend class Value;
  friend struct ReturnToGraph;
  OwnedNode make_node(std::string domain, std::string op, bool is_torch);
  OwnedValue make_value(Node* producer, std::size_t index, Type type, std::string name);
  Node& link(NodeSpec spec, Node* before);
  void link_before(Node& node, Node* before);
  void unlink(Node& node);
  void number(Node& node);
  void renumber() const;
  void require_member(const Node& node) const;
  static void release_operands(Node& node);
  void rename_initializer(Value& value, std::string name);
  Value& take_over(const Value& initializer);

  Pool<Node> node_pool_;
  Pool<Value> value_pool_;
  std::string name_;
  Node* parent_ = nullptr;
  std::vector<OwnedValue> inputs_;
  std::vector<OwnedValue> initializers_;
  std::map<std::string, Value*, std::less<>> initializer_names_;
  std::vector<OwnedNode> owned_;  // every node, erased ones too
  OwnedNode return_;              // its operands are the outputs
  std::vector<std::string> output_names_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  std::size_t node_count_ = 0;
  mutable bool is_numbered_ = true;
};

/// A model-local function (`FunctionProto`): the body's inputs and outputs are the function's.
struct Function {
  std::string domain;
  std::string name;
  std::vector<std::string> attributes;  ///< names of attributes that callers pass
  std::unique_ptr<Graph> body;
  std::map<std::string, std::int64_t> opsets;
};

/// A main graph, local functions, and what an ONNX file says of itself.
struct Model {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::vector<Function> functions;
  std::map<std::string, std::int64_t> opsets;   ///< domain → version; `""` is ONNX's own
  std::map<std::string, std::string> metadata;  ///< `metadata_props`
  std::string producer = "exportguard";
  std::string producer_version;
  std::string domain;         ///< of the model, as its author names it
  std::int64_t version = 0;   ///< of the model
  std::string documentation;  ///< `doc_string` of the model
  std::string graph_documentation;
  std::optional<int> next_symbol;  ///< number of the next `fresh_symbol`; nothing: not looked for yet
};

}  // namespace exportguard::ir
