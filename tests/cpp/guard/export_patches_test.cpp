#include "exportguard/guard/export_patches.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "exportguard/common/errors.h"
#include "exportguard/guard/session.h"
#include "guard/recorded_change.h"

namespace exportguard {
namespace {

using guard::Fit;
using guard::Log;
using guard::Outcome;
using guard::patch;
using guard::PatchDeclaration;
using guard::PatchKind;
using guard::PatchStack;
using guard::recorded;
using guard::Registry;
using guard::Session;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class ExportPatchesTest : public ::testing::Test {
 protected:
  void add(const std::string& name, PatchKind kind = PatchKind::kTorch) { registry_.add(patch(log_, name, kind)); }
  /// A change that comes later, of the top guard unless `frame` says which.
  void later(const std::string& name, std::uint64_t frame = Session::process().top()) {
    Session::process().change_later(frame, [&](PatchStack& stack) { stack.apply(recorded(log_, name)); });
  }
  void TearDown() override { EXPECT_EQ(Session::process().depth(), 0); }

  Log log_;
  Registry registry_;
};

TEST_F(ExportPatchesTest, InstallsInOrderAndRestoresInReverse) {
  add("a");
  add("b");
  {
    ExportPatches guard({}, registry_);
  }
  EXPECT_THAT(log_, ElementsAre("+a", "+b", "-b", "-a"));
}

TEST_F(ExportPatchesTest, LogsNoViolationWhereItStopsAtAStaticAxis) {
  add("logs", PatchKind::kConstraints);
  add("stops", PatchKind::kStaticCheck);
  PatchOptions options;
  options.stop_if_static = 1;
  ExportPatches guard(options, registry_);
  EXPECT_THAT(log_, ElementsAre("+stops"));
  EXPECT_EQ(guard.report().find("logs")->reason, "stop_if_static=1");
}

TEST_F(ExportPatchesTest, RestoresWhenAnExceptionLeavesItsScope) {
  add("a");
  const auto body = [&] {
    ExportPatches guard({}, registry_);
    throw std::runtime_error("export failed");
  };
  EXPECT_THROW(body(), std::runtime_error);
  EXPECT_THAT(log_, ElementsAre("+a", "-a"));
}

TEST_F(ExportPatchesTest, UndoesWhatItDidWhenALaterInstallFails) {
  add("a");
  add("b");
  add("fails to apply");
  EXPECT_THROW(ExportPatches({}, registry_), std::runtime_error);
  EXPECT_THAT(log_, ElementsAre("+a", "+b", "-b", "-a"));
}

TEST_F(ExportPatchesTest, UndoesTheFirstChangesOfAPatchThatFailsMidway) {
  PatchDeclaration declaration = patch(log_, "several");
  declaration.install = [&](PatchStack& stack) {
    stack.apply(recorded(log_, "first"));
    stack.apply(recorded(log_, "fails to apply"));
  };
  registry_.add(declaration);
  EXPECT_THROW(ExportPatches({}, registry_), std::runtime_error);
  EXPECT_THAT(log_, ElementsAre("+first", "-first"));
}

TEST_F(ExportPatchesTest, UndoesWhatItDidWhenAProbeFails) {
  add("a");
  PatchDeclaration declaration = patch(log_, "b");
  declaration.probe = []() -> guard::Verdict { throw std::runtime_error("probe"); };
  registry_.add(declaration);
  EXPECT_THROW(ExportPatches({}, registry_), std::runtime_error);
  EXPECT_THAT(log_, ElementsAre("+a", "-a"));
}

TEST_F(ExportPatchesTest, SkipsWhatAProbeFindsUnneededAndSaysWhy) {
  PatchDeclaration declaration = patch(log_, "a");
  declaration.probe = [] { return guard::Verdict{Fit::kNotNeeded, "fixed in torch 2.13"}; };
  registry_.add(declaration);
  ExportPatches guard({}, registry_);
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(guard.report().find("a")->outcome, Outcome::kSkipped);
  EXPECT_EQ(guard.report().find("a")->reason, "not needed: fixed in torch 2.13");
}

TEST_F(ExportPatchesTest, SkipsAKindThatIsSwitchedOff) {
  add("a", PatchKind::kTransformers);
  ExportPatches guard({.patch_transformers = false}, registry_);
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(guard.report().find("a")->reason, "patch_transformers=False");
}

TEST_F(ExportPatchesTest, InstallsTheSerializersAloneWithoutPatches) {
  add("a");
  add("cache", PatchKind::kSerializer);
  ExportPatches guard({.patch = false}, registry_);
  EXPECT_THAT(log_, ElementsAre("+cache"));
  EXPECT_EQ(guard.report().find("a")->reason, "patch=False");
}

TEST_F(ExportPatchesTest, InstallsTheStaticCheckOnlyOnRequest) {
  add("check", PatchKind::kStaticCheck);
  {
    EXPECT_EQ(ExportPatches({}, registry_).report().find("check")->reason, "stop_if_static=0");
  }
  {
    EXPECT_EQ(ExportPatches({.stop_if_static = 1}, registry_).report().find("check")->outcome, Outcome::kInstalled);
  }
}

TEST_F(ExportPatchesTest, InstallsACustomPatchInPlaceOfTheKnownOneOfTheSameTarget) {
  add("a");
  PatchDeclaration mine = patch(log_, "mine", PatchKind::kCustom);
  mine.targets = {"module.a"};
  {
    ExportPatches guard({.custom_patches = {mine}}, registry_);
    EXPECT_EQ(guard.report().find("a")->reason, "replaced by the custom patch 'mine'");
  }
  EXPECT_THAT(log_, ElementsAre("+mine", "-mine"));
}

TEST_F(ExportPatchesTest, RefusesTwoCustomPatchesOfTheSameTarget) {
  PatchDeclaration second = patch(log_, "b", PatchKind::kCustom);
  second.targets = {"module.a"};
  const PatchOptions options{.custom_patches = {patch(log_, "a", PatchKind::kCustom), second}};
  EXPECT_THAT([&] { ExportPatches(options, registry_); }, ThrowsMessage<GuardError>(HasSubstr("both claim module.a")));
}

TEST_F(ExportPatchesTest, LeavesToTheOuterGuardWhatItInstalled) {
  add("a");
  {
    ExportPatches outer({}, registry_);
    {
      ExportPatches inner({}, registry_);
      EXPECT_EQ(inner.report().find("a")->outcome, Outcome::kAlreadyInstalled);
      EXPECT_EQ(Session::process().depth(), 2);
    }
    EXPECT_THAT(log_, ElementsAre("+a"));
  }
  EXPECT_THAT(log_, ElementsAre("+a", "-a"));
}

TEST_F(ExportPatchesTest, KeepsTheOrderOfUndoingWhenTheOuterGuardEndsFirst) {
  add("a");
  auto outer = std::make_unique<ExportPatches>(PatchOptions{}, registry_);
  auto inner = std::make_unique<ExportPatches>(
      PatchOptions{.custom_patches = {patch(log_, "mine", PatchKind::kCustom)}}, registry_);
  outer.reset();
  EXPECT_THAT(log_, ElementsAre("+a", "+mine"));
  inner.reset();
  EXPECT_THAT(log_, ElementsAre("+a", "+mine", "-mine", "-a"));
}

TEST_F(ExportPatchesTest, RefusesASecondThreadWhileAGuardIsOpen) {
  add("a");
  ExportPatches guard({}, registry_);
  std::thread([&] {
    EXPECT_THAT([&] { ExportPatches({}, registry_); },
                ThrowsMessage<GuardError>(HasSubstr("end that guard first, or export in one thread")));
  }).join();
  EXPECT_THAT(log_, ElementsAre("+a"));
}

TEST_F(ExportPatchesTest, RefusesToBeClosedByAnotherThreadAndStaysOpen) {
  add("a");
  ExportPatches guard({}, registry_);
  std::thread([&] {
    EXPECT_THAT([&] { guard.close(); }, ThrowsMessage<GuardError>(HasSubstr("cannot close the guard from thread")));
  }).join();
  EXPECT_TRUE(guard.is_open());
}

TEST_F(ExportPatchesTest, RestoresWhenItIsDestroyedOnAnotherThread) {
  add("a");
  auto guard = std::make_unique<ExportPatches>(PatchOptions{}, registry_);
  std::thread([&] { guard.reset(); }).join();
  EXPECT_THAT(log_, ElementsAre("+a", "-a"));
  EXPECT_NO_THROW(ExportPatches({}, registry_));
}

TEST_F(ExportPatchesTest, LetsAnotherThreadOpenAGuardOnceItEnded) {
  add("a");
  {
    ExportPatches guard({}, registry_);
  }
  std::thread([&] { EXPECT_NO_THROW(ExportPatches({}, registry_)); }).join();
}

TEST_F(ExportPatchesTest, ListsWhatCouldNotBeRestoredAndRestoresTheRest) {
  add("a");
  add("fails to undo");
  ExportPatches guard({}, registry_);
  EXPECT_THAT([&] { guard.close(); },
              ThrowsMessage<GuardError>(
                  HasSubstr("1 of the guard's changes could not be restored: fails to undo: it is gone")));
  EXPECT_EQ(log_.back(), "-a");
  EXPECT_FALSE(guard.is_open());
}

TEST_F(ExportPatchesTest, ClosesOnce) {
  add("a");
  ExportPatches guard({}, registry_);
  guard.close();
  guard.close();
  EXPECT_THAT(log_, ElementsAre("+a", "-a"));
}

TEST_F(ExportPatchesTest, SaysThatNoPatchIsDeclared) {
  EXPECT_THAT([&] { ExportPatches({}, registry_); },
              ThrowsMessage<GuardError>(HasSubstr("start exportguard::python::Interpreter")));
}

TEST_F(ExportPatchesTest, ReportsEveryPatchOnALineOfItsOwn) {
  add("a");
  add("b", PatchKind::kDiffusers);
  ExportPatches guard({}, registry_);
  EXPECT_EQ(guard.report().text(),
            "a  torch         installed          the test needs it\n"
            "b  diffusers     skipped            patch_diffusers=False\n");
}

TEST_F(ExportPatchesTest, TellsWhatAnInstallCameTo) {
  PatchDeclaration declaration = patch(log_, "a");
  declaration.targets = {};
  declaration.searches = "module";
  declaration.told = [] { return guard::Told{Outcome::kWaiting, {"module.f"}, "met nowhere"}; };
  registry_.add(declaration);
  ExportPatches guard({}, registry_);
  const guard::ReportLine& line = *guard.report().find("a");
  EXPECT_EQ(line.outcome, Outcome::kWaiting);
  EXPECT_THAT(line.targets, ElementsAre("module.f"));
  EXPECT_EQ(guard.report().text(), "a  torch         waiting            met nowhere\n");
}

// ---------------------------------------------------------------------------------------------------- later changes

TEST_F(ExportPatchesTest, UndoesLaterChangesWithTheGuardThatTheyAreOf) {
  add("a");
  {
    ExportPatches guard({}, registry_);
    later("late");
  }
  EXPECT_THAT(log_, ElementsAre("+a", "+late", "-late", "-a"));
}

TEST_F(ExportPatchesTest, MakesLaterChangesAgainThatOutliveAnInnerGuard) {
  add("a");
  {
    ExportPatches outer({}, registry_);
    const std::uint64_t frame = Session::process().top();
    {
      ExportPatches inner({.custom_patches = {patch(log_, "mine", PatchKind::kCustom)}}, registry_);
      later("late", frame);
      later("later", frame);
    }
    EXPECT_THAT(log_, ElementsAre("+a", "+mine", "+late", "+later", "-later", "-late", "-mine", "+late", "+later"));
    log_.clear();
  }
  EXPECT_THAT(log_, ElementsAre("-later", "-late", "-a"));
}

TEST_F(ExportPatchesTest, UndoesTheFirstLaterChangesOfAnInstallThatFailsMidway) {
  add("a");
  ExportPatches guard({}, registry_);
  const auto install = [&](PatchStack& stack) {
    stack.apply(recorded(log_, "first"));
    stack.apply(recorded(log_, "fails to apply"));
  };
  EXPECT_THROW(Session::process().change_later(Session::process().top(), install), std::runtime_error);
  EXPECT_THAT(log_, ElementsAre("+a", "+first", "-first"));
}

TEST_F(ExportPatchesTest, AmendsTheReportOfTheGuardThatWaited) {
  add("a");
  ExportPatches outer({}, registry_);
  const std::uint64_t frame = Session::process().top();
  ExportPatches inner({}, registry_);
  Session::process().amend(frame, "a", {Outcome::kInstalled, {"module.late"}, "it was imported"});
  EXPECT_THAT(outer.report().find("a")->targets, ElementsAre("module.late"));
  EXPECT_EQ(outer.report().find("a")->reason, "it was imported");
  EXPECT_EQ(inner.report().find("a")->reason, "by a guard around this one");
}

TEST_F(ExportPatchesTest, RefusesLaterChangesOfAnotherThreadAndOfAGuardThatEnded) {
  add("a");
  auto guard = std::make_unique<ExportPatches>(PatchOptions{}, registry_);
  const std::uint64_t frame = Session::process().top();
  std::thread([&] {
    EXPECT_FALSE(Session::process().is_ours(frame));
    EXPECT_THAT([&] { later("late", frame); },
                ThrowsMessage<GuardError>(HasSubstr("import it in the thread of the guard")));
  }).join();
  EXPECT_TRUE(Session::process().is_ours(frame));
  guard.reset();
  EXPECT_FALSE(Session::process().is_ours(frame));
  const ExportPatches other({}, registry_);
  EXPECT_THAT([&] { later("late", frame); }, ThrowsMessage<GuardError>(HasSubstr("has ended")));
}

/// Fails if two threads are in it at once; its undo takes a while.
class Exclusive final : public guard::Change {
 public:
  explicit Exclusive(std::atomic<int>& inside, std::atomic<int>& made) : inside_(inside), made_(made) {}
  void apply() override { ++made_; }
  void undo() override {
    EXPECT_EQ(++inside_, 1) << "two threads undo at once";
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    --inside_;
    --made_;
  }
  std::string target() const override { return "exclusive"; }

 private:
  std::atomic<int>& inside_;
  std::atomic<int>& made_;
};

TEST_F(ExportPatchesTest, LetsOneThreadUndoWhereTwoEndNestedGuards) {
  std::atomic<int> inside = 0;
  std::atomic<int> made = 0;
  const auto exclusive = [&](const std::string& name) {
    PatchDeclaration declaration = patch(log_, name, PatchKind::kCustom);
    declaration.install = [&](PatchStack& stack) {
      for (int i = 0; i < 5; ++i) stack.apply(std::make_unique<Exclusive>(inside, made));
    };
    return declaration;
  };
  add("a");
  for (int round = 0; round < 200; ++round) {
    auto outer = std::make_unique<ExportPatches>(PatchOptions{.custom_patches = {exclusive("outer")}}, registry_);
    auto inner = std::make_unique<ExportPatches>(PatchOptions{.custom_patches = {exclusive("inner")}}, registry_);
    std::thread other([&] { outer.reset(); });
    inner.reset();
    other.join();
    EXPECT_EQ(made, 0);
    EXPECT_EQ(Session::process().depth(), 0);
  }
}

}  // namespace
}  // namespace exportguard
