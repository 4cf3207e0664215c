#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evaluator/call.h"
#include "evaluator/table.h"
#include "exportguard/evaluator/evaluator.h"
#include "exportguard/ir/graph.h"

namespace exportguard::evaluator {

struct Routine;

/// A graph made ready: its nodes as steps over numbered slots. Nested graphs share the slots of those around them.
struct Code {
  struct Step {
    const ir::Node* node = nullptr;
    Operator run = nullptr;  ///< null for a call of a local function
    const Routine* function = nullptr;
    std::int64_t opset = 0;
    std::vector<int> inputs;  ///< -1: left out
    std::vector<int> outputs;
    std::vector<int> dead;  ///< slots that nobody reads after this step
    std::map<std::string, Code, std::less<>> bodies;
  };

  std::vector<int> inputs;
  std::vector<int> outputs;  ///< -1: None
  std::vector<int> own;      ///< inputs and outputs that the graph defines itself: free after each run of a body
  std::vector<Step> steps;
};

/// A main graph or a local function, whose values live in a frame of its own.
struct Routine {
  Code code;
  int slot_count = 0;
  std::vector<std::pair<int, Datum>> constants;
  std::vector<const ir::Value*> values;  ///< by slot
};

/// All routines of a model.
class Routines {
 public:
  /// @throws EvaluationError naming every operator without an implementation.
  Routines(const ir::Model& model, const c10::Device& device);

  const Routine& main() const { return *main_; }
  const StringPool& strings() const { return strings_; }

 private:
  friend class RoutineBuilder;
  StringPool strings_;
  std::unique_ptr<Routine> main_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Routine>> functions_;
};

}  // namespace exportguard::evaluator
