#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/evaluator/value.h"
#include "exportguard/ir/graph.h"

namespace exportguard::evaluator {

/// A node cannot be run. The text names the node, its place in the user's model, the reason and the node's inputs.
class EvaluationError : public Error {
 public:
  using Error::Error;
  EvaluationError(const std::string& text, const ir::Node& node) : Error(text), node_(&node) {}

  /// That could not be run, in whatever body it stands; null where no node is at fault. It lives as long as the model.
  const ir::Node* node() const { return node_; }

 private:
  const ir::Node* node_ = nullptr;
};

/// Sees each value of a graph as it is made, nested graphs included (there once for each iteration).
using Observer = std::function<void(const ir::Value& value, const Value& content)>;

/// What later nodes read in the place of a value that was just made; nothing: the value itself. The observer has seen
/// it by then.
using Substitute = std::function<std::optional<Value>(const ir::Value& value, const Value& content)>;

struct Options {
  std::string device = "cpu";  ///< where the graph runs, as torch names it: `cpu`, `cuda:0`
  Observer observer;           ///< may be empty; what it throws ends the run
  Substitute substitute;       ///< may be empty, likewise
};

/// A model made ready to run with ATen's kernels: operators of ONNX (opset 18 to 25 and older forms that did not
/// change), those of com.microsoft that an optimizer writes, and torch's own through the dispatcher. Values are freed
/// at their last use. Reduced precision: sums of float16 and bfloat16 are accumulated in float32 and rounded once for
/// each operator, as onnxruntime does. Several threads may run one program.
class Program {
 public:
  /// The model must outlive the program and stay as it is.
  /// @throws EvaluationError naming every operator that has no implementation.
  explicit Program(const ir::Model& model, Options options = {});
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  /// One value for each input of the graph, in order; the outputs in order. Inputs are moved to the device.
  /// @throws InvalidArgument for inputs of another number, dtype or rank than the graph declares; EvaluationError.
  std::vector<Value> run(std::span<const Value> inputs) const;

 private:
  friend class Run;
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// A run of a program that goes on a node at a time, so that somebody may look at another run in between.
class Run {
 public:
  /// The program must outlive the run.
  /// @throws InvalidArgument as `Program::run`.
  Run(const Program& program, std::span<const Value> inputs);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Runs the next node of the main graph; false if there is none. @throws EvaluationError, after which it is over.
  bool advance();
  /// The outputs in order; what is left is run first.
  std::vector<Value> outputs();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs a model once.
std::vector<Value> run(const ir::Model& model, std::span<const Value> inputs, const Options& options = {});

/// The outputs of one ONNX node whose inputs are all constants (initializers, or outputs of Constant nodes); nothing if
/// one is not, if the operator draws random numbers, has graphs or is unknown here, if an output is no tensor, or if it
/// cannot be computed. `opset` is the version of the node's domain; `limit` bounds the bytes of all outputs.
std::optional<std::vector<ir::Tensor>> fold(const ir::Node& node, std::int64_t opset,
                                            std::size_t limit = std::size_t{1} << 30);

}  // namespace exportguard::evaluator
