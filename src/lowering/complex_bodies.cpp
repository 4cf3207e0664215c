#include "lowering/complex_bodies.h"

#include <string>
#include <utility>
#include <vector>

namespace exportguard::lowering {

void separate_body_inputs(ir::Graph& body, ComplexValues& values) {
  for (std::size_t i = 0; i < body.input_count(); ++i) {
    Value& input = body.input(i);
    if (!is_complex(input.dtype())) continue;
    const ir::Type type = real_type(input.type());
    const Parts parts = {&body.add_input(input.name() + ".real", type), &body.add_input(input.name() + ".imag", type)};
    body.move_input(body.input_count() - 2, i + 1);
    body.move_input(body.input_count() - 1, i + 2);
    values.set(input, parts);
  }
}

void erase_body_inputs(ir::Graph& body) {
  for (std::size_t i = body.input_count(); i-- > 0;) {
    if (is_complex(body.input(i).dtype())) body.erase_input(i);
  }
}

void separate_body_outputs(ir::Graph& body, ComplexValues& values) {
  std::vector<std::pair<Value*, std::string>> outputs;
  for (std::size_t i = 0; i < body.output_count(); ++i) {
    Value* output = body.find_output(i);
    const std::string name = body.output_name(i);
    if (output == nullptr || !is_complex(output->dtype())) {
      outputs.emplace_back(output, name);
      continue;
    }
    const Parts parts = values.parts(*output);
    const auto named = [&](const char* part) { return name.empty() ? name : name + part; };
    outputs.emplace_back(parts.real, named(".real"));
    outputs.emplace_back(parts.imaginary, named(".imag"));
  }

  while (body.output_count() > 0) body.erase_output(body.output_count() - 1);
  for (auto& [output, name] : outputs) body.add_output(output, std::move(name));
}

void separate_control(ComplexSite& site) { site.leave_to_bodies(); }

}  // namespace exportguard::lowering
