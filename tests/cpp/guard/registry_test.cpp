#include "exportguard/guard/registry.h"

#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "guard/recorded_change.h"

namespace exportguard::guard {
namespace {

using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

template <class Matcher>
auto throws_guard_error(Matcher text) {
  return ThrowsMessage<GuardError>(text);
}

TEST(Registry, FindsWhatWasAdded) {
  Log log;
  Registry registry;
  registry.add(patch(log, "a"));
  ASSERT_NE(registry.find("a"), nullptr);
  EXPECT_EQ(registry.get("a")->reason, "the test needs it");
  EXPECT_EQ(registry.find("b"), nullptr);
}

TEST(Registry, ThrowsForAnUnknownName) {
  EXPECT_THAT([] { Registry().get("b"); }, throws_guard_error(HasSubstr("there is no patch named 'b'")));
}

TEST(Registry, RefusesASecondClaimOnTheSameTarget) {
  Log log;
  Registry registry;
  registry.add(patch(log, "a"));
  PatchDeclaration second = patch(log, "b");
  second.targets.push_back("module.a");
  EXPECT_THAT([&] { registry.add(second); }, throws_guard_error(HasSubstr("patches 'a' and 'b' both claim module.a")));
  EXPECT_EQ(registry.entries().size(), 1);
}

TEST(Registry, RefusesASecondPatchOfTheSameName) {
  Log log;
  Registry registry;
  registry.add(patch(log, "a"));
  EXPECT_THAT([&] { registry.add(patch(log, "a")); }, throws_guard_error(HasSubstr("'a' is declared twice")));
}

TEST(Registry, RefusesAPatchWithoutATarget) {
  Log log;
  PatchDeclaration declaration = patch(log, "a");
  declaration.targets.clear();
  EXPECT_THAT([&] { Registry().add(declaration); }, throws_guard_error(HasSubstr("patch 'a' names no target")));
}

TEST(Registry, RefusesAPatchWithoutAnInstallFunction) {
  Log log;
  PatchDeclaration declaration = patch(log, "a");
  declaration.install = nullptr;
  EXPECT_THAT([&] { Registry().add(declaration); }, throws_guard_error(HasSubstr("has no install function")));
}

TEST(Registry, FreesTheTargetOfARemovedPatch) {
  Log log;
  Registry registry;
  registry.add(patch(log, "a"));
  EXPECT_TRUE(registry.remove("a"));
  EXPECT_FALSE(registry.remove("a"));
  EXPECT_NO_THROW(registry.add(patch(log, "a")));
}

TEST(PatchKind, IsReadFromItsName) {
  EXPECT_EQ(patch_kind("serializer"), PatchKind::kSerializer);
  EXPECT_EQ(name_of(PatchKind::kStaticCheck), "static_check");
  EXPECT_THAT([] { patch_kind("onnx"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("patch kind must be one of sympy, torch, transformers")));
}

}  // namespace
}  // namespace exportguard::guard
