#include "exportguard/guard/export_patches.h"

#include <gmock/gmock.h>

#include <memory>
#include <thread>

#include "exportguard/common/errors.h"
#include "exportguard/guard/session.h"
#include "python/declared_patch.h"
#include "python/python_test.h"

namespace exportguard::python {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ExportPatchesInPython : public PythonTest {
 protected:
  ExportPatchesInPython() {
    exec(R"(
import torch
import torch.utils._pytree as pytree
from transformers import DynamicCache
from exportguard import torch_export_patches
from exportguard.patches import Patch
)");
  }
  void TearDown() override { EXPECT_EQ(guard::Session::process().depth(), 0); }
};

std::vector<std::string> summary(const guard::Report& report) {
  std::vector<std::string> lines;
  for (const guard::ReportLine& line : report.lines)
    lines.push_back(line.name + "|" + std::string(name_of(line.outcome)) + "|" + line.reason);
  return lines;
}

TEST_F(ExportPatchesInPython, InstallExactlyWhatPythonInstalls) {
  exec(R"(
with torch_export_patches() as guard:
    lines = ['|'.join([line.name, line.outcome, line.reason]) for line in guard.report]
)");
  const ExportPatches patches;
  EXPECT_EQ(summary(patches.report()), py::cast<std::vector<std::string>>(eval("lines")));
}

TEST_F(ExportPatchesInPython, RegisterTheCachesAndPutEverythingBack) {
  const py::dict before = eval("dict(pytree.SUPPORTED_NODES)");
  {
    const ExportPatches patches;
    EXPECT_EQ(text("DynamicCache in pytree.SUPPORTED_NODES"), "True");
  }
  EXPECT_TRUE(before.equal(eval("pytree.SUPPORTED_NODES")));
}

TEST_F(ExportPatchesInPython, GuardAnExportFromCpp) {
  exec(R"(
class Model(torch.nn.Module):
    def forward(self, cache):
        return [layer.keys.sum(2) for layer in cache.layers]
cache = DynamicCache()
cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
)");
  {
    const ExportPatches patches({.patch_torch = false});
    exec("program = torch.export.export(Model(), (cache,), dynamic_shapes=([{2: torch.export.Dim.DYNAMIC}, None],))");
  }
  EXPECT_EQ(text("[node.name for node in program.graph.find_nodes(op='placeholder')]"),
            "['cache_0_key', 'cache_0_value']");
}

TEST_F(ExportPatchesInPython, LeaveToAPythonGuardWhatItInstalled) {
  exec("outer = torch_export_patches()\nouter.__enter__()");
  {
    const ExportPatches patches;
    for (const guard::ReportLine& line : patches.report().lines) EXPECT_NE(line.outcome, guard::Outcome::kInstalled);
    EXPECT_EQ(guard::Session::process().depth(), 2);
  }
  EXPECT_EQ(text("DynamicCache in pytree.SUPPORTED_NODES"), "True");
  exec("outer.__exit__(None, None, None)");
  EXPECT_EQ(text("DynamicCache in pytree.SUPPORTED_NODES"), "False");
}

TEST_F(ExportPatchesInPython, TakeCustomPatchesThatPythonDeclares) {
  exec(R"(
class Target:
    def f(self): return 'original'
custom = Patch(name='custom', kind='custom', target='__main__.Target.f', reason='a test', replace=lambda f: lambda self: 'patched')
)");
  {
    const ExportPatches patches({.custom_patches = {declaration_of(eval("custom"))}});
    EXPECT_EQ(text("Target().f()"), "patched");
  }
  EXPECT_EQ(text("Target().f()"), "original");
}

TEST_F(ExportPatchesInPython, TurnAFailingPatchIntoAGuardErrorWithItsNameAndPythonsText) {
  exec(R"(
def fail(changes):
    raise OSError('disk on fire')
failing = Patch(name='failing', kind='custom', target='a.b', reason='a test', apply=fail)
)");
  const PatchOptions options{.custom_patches = {declaration_of(eval("failing"))}};
  EXPECT_THAT([&] { ExportPatches patches(options); },
              ThrowsMessage<GuardError>(AllOf(HasSubstr("cannot install patch 'failing'"), HasSubstr("disk on fire"))));
  EXPECT_EQ(text("DynamicCache in pytree.SUPPORTED_NODES"), "False");
}

TEST_F(ExportPatchesInPython, EndOnAThreadWithoutTheGil) {
  auto patches = std::make_unique<ExportPatches>();
  {
    const py::gil_scoped_release released;
    std::thread([&] { patches.reset(); }).join();
  }
  EXPECT_EQ(text("DynamicCache in pytree.SUPPORTED_NODES"), "False");
}

}  // namespace
}  // namespace exportguard::python
