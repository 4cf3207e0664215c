#pragma once

#include "evaluator/routine.h"

namespace exportguard::evaluator {

/// One run of one routine.
class Machine {
 public:
  struct Setting {
    StringPool& strings;
    const c10::Device& device;
    const Observer& observer;
    const Substitute& substitute;
  };

  Machine(const Routine& routine, const Setting& setting);
  Data run(Data inputs) { return run(routine_.code, std::move(inputs), "the graph"); }

 private:
  Data run(const Code& code, Data inputs, std::string_view what);
  Data run_step(const Code::Step& step);
  Data run_operator(const Code::Step& step, Call& call);
  Data run_body(const Code::Step& step, std::string_view name, Data inputs);
  void observe(const Code::Step& step);
  void substitute(const Code::Step& step);

  const Routine& routine_;
  const Setting& setting_;
  Data values_;
};

}  // namespace exportguard::evaluator
