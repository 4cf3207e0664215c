#pragma once

#include "lowering/complex_parts.h"

/// Bodies of torch's control flow (cond, while_loop, scan, map, …) on complex tensors: the two parts of each input,
/// operand and output stand side by side where the complex one stood.
namespace exportguard::lowering {

/// Puts the parts of every complex input behind it. The input stays for the readers that are to be rewritten.
void separate_body_inputs(ir::Graph& body, ComplexValues& values);
/// Takes the complex inputs away, which nobody reads any more.
void erase_body_inputs(ir::Graph& body);
/// Returns the parts of every complex output in its place.
void separate_body_outputs(ir::Graph& body, ComplexValues& values);
/// The rule of an operator whose bodies have been rewritten: its operands and outputs become parts as theirs did.
void separate_control(ComplexSite& site);

}  // namespace exportguard::lowering
