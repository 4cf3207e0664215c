#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exportguard/ir/graph.h"

/// What every reader of a program needs that is no matter of its nodes: the signature, the names that users know, and
/// weights that share memory. Whoever reads torch.export's objects, or a file of them, fills in a `Signature`.
namespace exportguard::importer {

/// One line of a program's signature, by torch's names.
struct InputSpec {
  std::string placeholder;
  std::string kind;    ///< `USER_INPUT`, `PARAMETER`, `BUFFER`, …
  std::string target;  ///< full name of the parameter or buffer
  bool is_persistent = true;

  bool is_user_input() const { return kind == "USER_INPUT"; }
};

struct OutputSpec {
  std::string kind;    ///< `USER_OUTPUT`, `BUFFER_MUTATION`, …
  std::string target;  ///< of a mutation: the buffer, or the placeholder of the input
};

struct Signature {
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
};

/// Names of the user's inputs and outputs in the program's flat order, constants and None included; nothing: torch's.
struct ProgramNames {
  std::optional<std::vector<std::string>> inputs;
  std::optional<std::vector<std::string>> outputs;
};

/// The initializers of a graph under construction: one for each piece of memory, each under a name that is free.
class Weights {
 public:
  explicit Weights(ir::Graph& main) : main_(&main) {}

  ir::Graph& main() const { return *main_; }
  void reserve(const std::string& name) { taken_.insert(name); }
  /// The initializer of the tensor's memory, or a new one under `name` or the next free one like it.
  ir::Value& shared(const std::string& name, const ir::Tensor& tensor);
  ir::Value& add(const std::string& name, ir::Tensor tensor);  ///< a new one

 private:
  std::string free_name(const std::string& name);

  ir::Graph* main_;
  std::unordered_map<std::string, ir::Value*> by_identity_;
  std::unordered_set<std::string> taken_;
};

/// Which tensors of a program an input's target names.
enum class Store { kState, kConstants };

/// A program's signature with the names that its values get.
class Program {
 public:
  Program(Signature signature, ProgramNames names);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Names of inputs and outputs, which initializers give way to.
  void reserve_names(Weights& weights) const;

  /// @throws ImportError for a placeholder that is not in the signature.
  const InputSpec& input(const std::string& placeholder) const;
  /// The name of the next of the user's inputs. @throws InvalidArgument if there are too few names.
  std::string next_input_name(const std::string& placeholder);
  /// Where the tensor of a parameter, buffer or constant lies. @throws ImportError for what is no tensor.
  static Store store_of(const InputSpec& spec);

  /// What stands for a result, given its number and the name of the constant that it may have to become.
  using ResultOf = std::function<ir::Value*(std::size_t index, const std::string& constant)>;
  /// The user's outputs in order, then those that torch added for tensors that the program writes.
  /// @throws ImportError if the program does not return what the signature says.
  void add_outputs(ir::Graph& graph, std::size_t results, const ResultOf& result);

 private:
  std::string next_output_name();
  std::string mutated_name(const OutputSpec& spec) const;

  Signature signature_;
  ProgramNames names_;
  std::unordered_map<std::string_view, const InputSpec*> by_placeholder_;
  std::size_t user_inputs_ = 0;
  std::size_t user_outputs_ = 0;
};

}  // namespace exportguard::importer
