#pragma once

#include <string_view>

#include "exportguard/optimizer/rewriter.h"

/// How many keys `GroupQueryAttention` (com.microsoft) reads, told by numbers and not by sizes: in a file that stops
/// where the numbers do not tell it.
namespace exportguard::optimizer {

/// `number`, int64 of rank 0, in a file that stops unless `place` is 0. The runtime's error has the name of the node.
Value& number_if_first(Rewriter& rewriter, Value& number, Value& place, std::string_view name);

/// The same in a file that stops unless all of `flags` are true, a tensor of bools with a known rank.
Value& number_if_all(Rewriter& rewriter, Value& number, Value& flags, std::string_view name);

/// The operands that tell the number: for each sample that of the last key, and that of all keys, both int32.
struct NumbersOfKeys {
  Value* lasts = nullptr;
  Value* total = nullptr;
};

/// The operands for samples of one number of keys, int64 of rank 0, as many samples as `query` has.
NumbersOfKeys numbers_of_keys(Rewriter& rewriter, Value& total, Value& query);

/// The number from which such operands were made; null if they were not, and may differ from sample to sample.
Value* number_of_keys(const Value* lasts, const Value* total);

}  // namespace exportguard::optimizer
