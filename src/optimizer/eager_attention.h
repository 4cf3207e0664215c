#pragma once

#include <optional>
#include <vector>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {

/// What is done to the scores on their way to the softmax: a sum, a choice, or a product with a positive number.
struct Step {
  Value* summand = nullptr;
  bool is_subtracted = false;
  Value* shown = nullptr;    ///< bool: what is false gets `number` in the place of its score
  bool is_inverted = false;  ///< what is true gets it
  double number = 1;         ///< of the choice, or the factor
};

/// Attention written out: softmax(scale · q · kᵀ, with these steps) · v.
struct Eager {
  Value* query = nullptr;
  Value* key = nullptr;                ///< before it was transposed, or what that Transpose reads
  std::vector<std::int64_t> key_axes;  ///< of `key`, in the operator's order
  Value* value = nullptr;
  std::vector<Step> steps;  ///< the first one first
  double scale = 1;
  Value* factor = nullptr;  ///< of the scores, the same for all keys of a query; null if there is none
  double softcap = 0;
};

/// A score below 1e23 is lost in a sum with this, so that a query that is hidden from every key sees all of them alike.
inline constexpr double kHides = -1e30;

/// The Softmax over keys that gives the weights, of three or four axes, to one reader; null if it is something else.
const ir::Node* softmax_over_keys(const Value* weights);

/// Takes scores of three or four axes apart down to the product of queries and keys; nothing if there is none.
std::optional<Eager> eager_of(const Facts& facts, Value& scores, Value& value);

/// Why the operator does not compute it: dtype, scale, shapes, choices; null if it does.
const char* reason_against(const Eager& eager, const Value& result);

/// The keys' shape in the operator's order: [batch, heads, keys, size], or [batch, keys, size].
ir::Shape key_shape(const Eager& eager);

/// What a step adds or asks; the step has one of the two.
inline const Value& mask_of(const Step& step) { return step.shown ? *step.shown : *step.summand; }

// ------------------------------------------------------------------------------------------------ what is written

ir::Type numbers(ir::Shape shape);                     ///< float32
ir::Shape stretched(ir::Shape wide, ir::Shape other);  ///< the shape of what both are stretched to
ir::Shape stretched(const Value& a, const Value& b);
Value& number(Rewriter& rewriter, double x, const char* name);
/// The smallest number is minus infinity to a runtime; this one, next to it, is as small.
Value& above_lowest(Rewriter& rewriter);

/// A choice between the sum, or 0 without one, and the step's number.
Value& chosen(Rewriter& rewriter, const Step& step, Value* sum);
/// The sum with one more summand; the first one is the sum.
Value& added(Rewriter& rewriter, Value* sum, Value& summand, bool is_subtracted);
/// The sum behind that step, whichever it is. A factor needs a sum before it.
Value& with_step(Rewriter& rewriter, const Step& step, Value* sum);

/// What all steps add to scale · q · kᵀ; null if that is nothing.
Value* summed(Rewriter& rewriter, const std::vector<Step>& steps);

/// The operands without a mask: queries, keys and values in the operator's order.
std::vector<Value*> operands_of(Rewriter& rewriter, const Eager& eager);
/// Writes `Attention` in the place of the root.
void write_attention(Rewriter& rewriter, const Eager& eager, const std::vector<Value*>& operands);

}  // namespace exportguard::optimizer
