#pragma once

#include "evaluator/datum.h"

namespace exportguard::evaluator {

struct ConversionOptions {
  bool saturate = true;           ///< float8 and smaller: the largest number instead of infinity or NaN
  std::string round_mode = "up";  ///< to f8e8m0: up, down or nearest
};

/// Numbers as another dtype, as ONNX's Cast: to integers towards zero (those of two and four bits wrap), to float8 and
/// smaller to the nearest (even) number. Neither dtype is that of strings.
Datum converted(const Datum& datum, DType to, const ConversionOptions& options = {});

/// The numbers that a tensor of any dtype but strings holds, as a dtype that torch computes with.
at::Tensor readable(const Datum& datum);

}  // namespace exportguard::evaluator
