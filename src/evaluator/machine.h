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

  // The same a step at a time: begin, advance until it is false, end.
  void begin(Data inputs) { take(routine_.code, std::move(inputs), "the graph"); }
  bool advance();
  Data end() { return results_of(routine_.code); }

 private:
  Data run(const Code& code, Data inputs, std::string_view what);
  void take(const Code& code, Data inputs, std::string_view what);
  void execute(const Code::Step& step);
  Data results_of(const Code& code);
  Data run_step(const Code::Step& step);
  Data run_operator(const Code::Step& step, Call& call);
  Data run_body(const Code::Step& step, std::string_view name, Data inputs);
  void observe(const Code::Step& step);
  void substitute(const Code::Step& step);

  const Routine& routine_;
  const Setting& setting_;
  Data values_;
  std::size_t next_ = 0;  ///< step of the routine's own code
};

}  // namespace exportguard::evaluator
