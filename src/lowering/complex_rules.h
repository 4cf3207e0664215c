#pragma once

#include "lowering/complex_parts.h"

/// Rules for complex tensors that many operators share; each family claims its operators with `add_complex`.
namespace exportguard::lowering {

void separate_each(ComplexSite& site);      ///< moves elements: each part goes its way
void separate_sum(ComplexSite& site);       ///< adds or joins: a real operand adds nothing to the imaginary part
void separate_product(ComplexSite& site);   ///< a product of elements or matrices
void separate_creation(ComplexSite& site);  ///< `full` and the like: a real number leaves the imaginary part zero
void separate_padding(ComplexSite& site);   ///< a number fills the margins
void separate_truth(ComplexSite& site);     ///< asks which elements are not zero
void separate_size(ComplexSite& site);      ///< asks for sizes
/// From real to complex, from complex to real (which drops the imaginary part), or between complex dtypes.
void separate_cast(ComplexSite& site);
/// A row of the table computes it: see `ComplexSite::leave_to_row`.
void separate_in_row(ComplexSite& site);

}  // namespace exportguard::lowering
