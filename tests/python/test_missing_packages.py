"""Without a package that need not be installed: everything else works, and what needs it says so in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Runs the program in the file that its second argument names; the packages in the first one are not found.
_WITHOUT = """
import runpy
import sys
from importlib.machinery import PathFinder

class Without:
    hidden = set(sys.argv[1].split(","))

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in cls.hidden else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return () if context.name in cls.hidden else PathFinder.find_distributions(context)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: Optional ones; torch is the only one that a bare environment has beside the declared dependencies.
OPTIONAL = (
    "transformers,onnxruntime,onnxruntime_genai,onnx,onnxscript,diffusers,distributed,ray,hypothesis,scipy,tokenizers"
)

_GUARD = """
import exportguard, torch

class Clamped(torch.nn.Module):
    def forward(self, x):
        return x if x.abs().max() < 1 else x / x.abs().max()

model = exportguard.to_onnx(Clamped().eval(), (torch.rand(3),), rewrite="auto", dynamic_shapes=({0: "n"},))
x = torch.tensor([1.0, -4.0])
found = model.run({"x": x}, runner="evaluator")
assert torch.equal(next(iter(found.values())), x / 4)
with exportguard.torch_export_patches() as prepare:
    torch.export.export(torch.nn.Linear(2, 2), prepare((torch.zeros(1, 2),)))
assert not {"transformers", "onnxruntime", "onnx"} & set(sys.modules) if (sys := __import__("sys")) else True
"""

_COMMAND = "import sys; from exportguard.command_line import main; sys.exit(main(sys.argv[1:]))"


def without(hidden: str, program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-c", _WITHOUT, hidden, str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


def test_the_package_alone_exports_guards_and_runs(tmp_path: Path) -> None:
    # A folder of this name must not be taken for a part of a package that is not there.
    (tmp_path / "models").mkdir()
    result = without(OPTIONAL, _GUARD, folder=tmp_path)
    assert result.returncode == 0, result.stderr


_COMMANDS = """
from exportguard.command_line import main

codes = [main(line.split()) for line in ("--help", "--version", "validate --help", "export --help", "patches")]
assert codes == [0] * 5, codes
"""


def test_commands_answer_in_a_bare_environment(tmp_path: Path) -> None:
    result = without(OPTIONAL, _COMMANDS, folder=tmp_path)
    assert result.returncode == 0, result.stderr


NEEDED = {
    "transformers": (
        ["validate", "-m", "llama"],
        "this needs transformers, which is not installed: pip install transformers",
    ),
    "onnxruntime": (
        ["validate", "-m", "bert"],
        "this needs onnxruntime, which is not installed: pip install onnxruntime",
    ),
    "torch": (["validate", "-m", "llama"], "torch is not installed: pip install torch"),
    "distributed": (["sweep", "-o", "out", "--shipped", "--executor", "dask://a:1"], "distributed"),
}


@pytest.mark.parametrize("package", NEEDED)
def test_what_needs_a_package_names_it_in_one_line(package: str, tmp_path: Path) -> None:
    arguments, text = NEEDED[package]
    result = without(package, _COMMAND, *arguments, "--quiet", folder=tmp_path)
    assert result.returncode in (1, 2)
    assert text in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_name_that_needs_a_package_is_refused_with_what_to_install(tmp_path: Path) -> None:
    program = "import exportguard, torch; exportguard.make_dynamic_cache([(torch.zeros(1, 1, 1, 1),) * 2])"
    result = without("transformers", program, folder=tmp_path)
    assert "PackageError: this needs transformers, which is not installed: pip install transformers" in result.stderr


def test_the_first_example_of_the_readme_runs_with_transformers_alone(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    hidden = OPTIONAL.replace("transformers,", "").replace(",tokenizers", "")
    result = without(hidden, blocks[0], folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "llama.onnx").is_file()
