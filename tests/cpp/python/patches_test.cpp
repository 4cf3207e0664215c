#include "exportguard/python/patches.h"

#include <unistd.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "exportguard/common/errors.h"
#include "exportguard/guard/export_patches.h"
#include "python/python_test.h"

namespace exportguard::python {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kUsersCode = R"(
import torch

class Signed(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x
)";

class PatchesFromPython : public PythonTest {
 protected:
  PatchesFromPython()
      : folder_(std::filesystem::path(::testing::TempDir()) / ("exportguard_patches_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "users_signed.py") << kUsersCode;
    exec(("import sys; sys.path.insert(0, '" + folder_.string() + "'); import torch, users_signed; folder = '" +
          folder_.string() + "'")
             .c_str());
  }
  ~PatchesFromPython() override {
    exec("sys.path.remove(folder); del sys.modules['users_signed']");
    std::filesystem::remove_all(folder_);
  }

  static void export_signed() { exec("program = torch.export.export(users_signed.Signed(), (torch.ones(3),))"); }
  static std::string of_minus_one() { return text("program.module()(-torch.ones(3)).tolist()"); }

  const std::filesystem::path folder_;
};

TEST_F(PatchesFromPython, AnExportUnderAGuardOfCppRewritesWhatItStopsAtAndWritesTheSources) {
  EXPECT_THROW(export_signed(), py::error_already_set);
  const std::string code = text("id(users_signed.Signed.forward.__code__)");
  const std::filesystem::path dumped = folder_ / "sources";
  {
    const ExportPatches guard({.dump_rewriting = dumped.string(), .rewrite = rewrites("'auto'")});
    export_signed();
  }
  EXPECT_EQ(of_minus_one(), "[1.0, 1.0, 1.0]");
  EXPECT_EQ(text("id(users_signed.Signed.forward.__code__)"), code);
  EXPECT_TRUE(std::filesystem::exists(dumped / "users_signed.Signed.forward.diff"));
}

TEST_F(PatchesFromPython, ASavedFileIsACustomPatch) {
  exec(R"(
from exportguard import export_with_rewriting
export_with_rewriting(users_signed.Signed(), (torch.ones(3),)).save(folder + '/rewritten.py')
)");
  {
    const ExportPatches guard({.custom_patches = custom_patches("[folder + '/rewritten.py']")});
    export_signed();
  }
  EXPECT_EQ(of_minus_one(), "[1.0, 1.0, 1.0]");
}

TEST_F(PatchesFromPython, WhatNamesNoPatchIsAnErrorWithPythonsText) {
  EXPECT_THAT([] { rewrites("3"); }, ThrowsMessage<Error>(HasSubstr("rewrite must be 'auto', a module or a list")));
  EXPECT_THAT([] { custom_patches("['missing.py']"); }, ThrowsMessage<Error>(HasSubstr("there is no file missing.py")));
}

}  // namespace
}  // namespace exportguard::python
