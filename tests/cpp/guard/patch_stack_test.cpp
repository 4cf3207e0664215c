#include "exportguard/guard/patch_stack.h"

#include <gmock/gmock.h>

#include "guard/recorded_change.h"

namespace exportguard::guard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PatchStack, UndoesInReverseOrder) {
  Log log;
  PatchStack stack;
  stack.apply(recorded(log, "a"));
  stack.apply(recorded(log, "b"));
  EXPECT_THAT(stack.unwind_to(0), IsEmpty());
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-b", "-a"));
}

TEST(PatchStack, UnwindsOnlyWhatIsAboveTheMark) {
  Log log;
  PatchStack stack;
  stack.apply(recorded(log, "a"));
  stack.apply(recorded(log, "b"));
  stack.unwind_to(1);
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-b"));
  EXPECT_EQ(stack.size(), 1);
}

TEST(PatchStack, DoesNotKeepAChangeThatFailedToApply) {
  Log log;
  PatchStack stack;
  EXPECT_THROW(stack.apply(recorded(log, "fails to apply")), std::runtime_error);
  EXPECT_EQ(stack.size(), 0);
}

TEST(PatchStack, GoesOnAfterAChangeThatCannotBeUndoneAndSaysWhich) {
  Log log;
  PatchStack stack;
  stack.apply(recorded(log, "a"));
  stack.apply(recorded(log, "fails to undo"));
  stack.apply(recorded(log, "c"));
  EXPECT_THAT(stack.unwind_to(0), ElementsAre("fails to undo: it is gone"));
  EXPECT_THAT(log, ElementsAre("+a", "+fails to undo", "+c", "-c", "-a"));
}

TEST(PatchStack, UndoesEverythingWhenItEnds) {
  Log log;
  {
    PatchStack stack;
    stack.apply(recorded(log, "a"));
  }
  EXPECT_THAT(log, ElementsAre("+a", "-a"));
}

}  // namespace
}  // namespace exportguard::guard
