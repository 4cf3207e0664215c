"""Modules of one's own: compared at sizes that nobody wrote down."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch.export import Dim

import exportguard
from exportguard import ExportOptions, InvalidArgumentError, ValidateOptions, _core, validate_module
from exportguard.command_line import main
from exportguard.validation import validate as validation
from exportguard.validation.own_module import case_of_program, module_case


class Attention(torch.nn.Module):
    """Takes a table and a mask over past and new rows; looks integers up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(9, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, past: dict[str, torch.Tensor]) -> torch.Tensor:
        rows = torch.cat([past["rows"], self.table(ids)], dim=1)
        return (rows * mask[..., None]).cumsum(1)


def attention() -> tuple[torch.nn.Module, dict[str, Any], dict[str, Any]]:
    inputs = {
        "ids": torch.randint(0, 9, (2, 3)),
        "mask": torch.rand(2, 7),
        "past": {"rows": torch.randn(2, 4, 4)},
    }
    shapes = {"ids": {0: "b", 1: "seq"}, "mask": {0: "b", 1: "past+seq"}, "past": {"rows": {0: "b", 1: "past"}}}
    return Attention().eval(), inputs, shapes


@pytest.mark.parametrize("others", [{}, {"rows": {1: "seq"}}], ids=["no part", "one part"])
def test_the_name_of_a_sum_need_not_have_all_of_its_parts(others: dict[str, Any]) -> None:
    """Another size of what is summed is one that the model may raise for, which the report tells."""

    class Sums(torch.nn.Module):
        def forward(self, mask: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return mask.sum(1) * 2 + rows.sum()

    inputs = {"mask": torch.rand(2, 7), "rows": torch.rand(2, 3)}
    report = validate_module(Sums().eval(), inputs, {"mask": {1: "past+seq"}, "rows": others.get("rows")})
    assert report.ok, report.failure
    assert [one.sizes["past+seq"] for one in report.sets][:2] == [7, 8]


def test_the_sizes_of_sums_follow_their_parts_and_integers_can_be_looked_up() -> None:
    report = validate_module(*attention())
    assert report.ok, report.failure
    assert [one.name for one in report.sets] == [
        "traced",
        "other sizes",
        "larger",
        "no past",
        "b 1",
        "seq 1",
        "past 1",
        "all 1",
    ]
    assert report.sets[1].sizes == {"b": 3, "seq": 5, "past": 7}
    assert report.refused == []


class Half(torch.nn.Module):
    """Refuses odd lengths, as models with a pooling of windows do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 2).amax(-1)


def test_sizes_that_the_module_itself_refuses_are_told_and_not_compared() -> None:
    report = validate_module(Half().eval(), (torch.randn(2, 6),), ({0: "b", 1: "n"},))
    assert len(report.refused) >= 1
    assert "RuntimeError" in report.refused[0]
    assert all(one.sizes["n"] % 2 == 0 for one in report.sets)


def test_bounds_of_a_dim_are_kept() -> None:
    case = module_case(torch.nn.Identity().eval(), (torch.randn(4, 2),), ({0: Dim("n", min=3, max=6)},))
    assert {one.sizes["n"] for one in case.sets} == {3, 4, 5, 6}


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x * self.calls


def test_every_call_begins_with_the_buffers_that_were_exported() -> None:
    module = Counter().eval()
    assert validate_module(module, (torch.randn(3),), ({0: "n"},)).ok
    assert module.calls.item() == 0


class Biased(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def test_a_wrong_conversion_is_found_and_two_names_for_one_axis_are_no_failure_of_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    example = (torch.randn(3), torch.randn(3))
    exported = validation.exported_module(
        validation.ExportRequest.of(Wrong(), example, None, dynamic_shapes=None, options=ExportOptions())
    )
    monkeypatch.setattr(validation, "exported_module", lambda request: exported)
    report = validate_module(Biased().eval(), example)
    assert not report.ok
    assert [one.agrees for one in report.sets] == [False]


REFUSED = {
    "no module": (lambda: validate_module(len, (1,)), "module must be a torch.nn.Module"),  # type: ignore[arg-type]
    "in training mode": (lambda: validate_module(torch.nn.Dropout(), (torch.zeros(2),)), "call eval() first"),
    "a tensor": (lambda: validate_module(torch.nn.Identity().eval(), torch.zeros(2)), "a tuple of arguments"),  # type: ignore[arg-type]
    "another argument": (
        lambda: validate_module(torch.nn.Identity().eval(), {"z": 1}),
        "missing a required argument: 'input'",
    ),
    "no file": (lambda: case_of_program("no.py:make"), "there is no file no.py"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_calls_are_named(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert text in str(caught.value)


PROGRAM = """
import torch
from beside import WIDTH

class Model(torch.nn.Module):
    def forward(self, x):
        return x if x.abs().max() < 1 else x / x.abs().max()

def make_model():
    return Model().eval(), (torch.rand(3, WIDTH),), ({0: "rows"},)

def nothing():
    return Model()

def stops():
    raise KeyError("weights")

def ends():
    raise SystemExit(0)

def looks_beside():
    from other import make
    return make()

class Ends(torch.nn.Module):
    def forward(self, x):
        raise SystemExit(0)

def ends_later():
    return Ends().eval(), (torch.rand(3),)

class Multiplies(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(5, 2)

def does_not_fit():
    return Multiplies().eval(), (torch.rand(3, 4),)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 4\n")
    (tmp_path / "other.py").write_text("import torch\ndef make(): return torch.nn.ReLU().eval(), (torch.rand(3),)\n")
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM)
    return path


def test_a_function_in_a_file_is_validated(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = program.with_name("report.json")
    assert main(["validate", f"{program}:make_model", "--json", str(report), "-o", str(program.parent / "out")]) == 0
    assert "mine.py:make_model: 4 comparisons agree, 1 axes kept" in capsys.readouterr().out.splitlines()[-1]
    written = json.loads(report.read_text())
    assert (written["task"], written["ok"], len(written["sets"])) == ("own module", True, 4)
    assert (program.parent / "out" / "Model.onnx").is_file()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("nothing", "must be (module, inputs) or (module, inputs, dynamic_shapes)"),
        ("stops", "raises KeyError: 'weights' (mine.py, line "),
        ("ends", "raises SystemExit: 0 (mine.py, line "),
        ("missing", "has no function 'missing'"),
    ],
)
def test_a_function_that_makes_no_model_is_named(
    program: Path, function: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", f"{program}:{function}"]) == 2
    assert text in capsys.readouterr().err


def test_a_function_imports_what_lies_beside_its_file_also_when_it_is_called(program: Path) -> None:
    before = list(sys.path)
    assert main(["validate", f"{program}:looks_beside", "-q"]) == 0
    assert sys.path == before


@pytest.mark.parametrize("text", ["raise SystemExit(0)", "raise ValueError('no', 1)"])
def test_a_file_that_ends_the_program_or_raises_is_no_success(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ends.py").write_text(f"def make(): pass\n{text}\n")
    assert main(["export", "-m", f"{tmp_path}/ends.py:make", "-o", f"{tmp_path}/out", "-q"]) == 2
    told = capsys.readouterr().err
    assert "ends.py cannot be imported: " in told
    assert "(ends.py, line 2)" in told


@pytest.mark.parametrize("command", [["validate"], ["export", "-o", "out", "-m"]])
def test_a_model_that_ends_the_program_is_no_success(
    command: list[str], program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(program.parent)
    assert main([*command, "mine.py:ends_later", "-q"]) == 1
    assert capsys.readouterr().err == "Error: the model's code calls sys.exit(0); take that out of it\n"
    assert not (program.parent / "out").exists()


def test_what_the_model_itself_refuses_is_told_with_its_line(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", f"{program}:does_not_fit", "-q"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "(the model itself raises it, at " in told
    assert "in Multiplies.forward: return x @ torch.ones(5, 2))" in told


def test_it_is_a_part_of_the_package() -> None:
    assert exportguard.validate_module is validate_module
    assert isinstance(ValidateOptions(), exportguard.ValidateOptions)


class Raises(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not for export") if torch.compiler.is_exporting() else TypeError("no")


class OnlyExportRaises(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            raise ValueError("not for export")
        return x + 1


def test_a_failure_is_sorted_by_the_step_that_could_not_be_done() -> None:
    x = (torch.randn(3),)
    assert validate_module(Raises().eval(), x).outcome == "does not run eagerly"
    assert validate_module(OnlyExportRaises().eval(), x).outcome == "not exported"
    report = validate_module(torch.nn.Identity().eval(), x)
    assert (report.outcome, report.as_dict()["outcome"]) == ("ok", "ok")


def test_a_written_file_tells_the_versions_that_made_it(tmp_path: Path) -> None:
    validate_module(torch.nn.ReLU().eval(), (torch.randn(3),), options=ValidateOptions(folder=tmp_path))
    told = {entry.key: entry.value for entry in onnx.load(str(tmp_path / "ReLU.onnx")).metadata_props}
    assert told["torch.version"] == torch.__version__
    assert told["exportguard.version"] == exportguard.__version__


class Pair:
    """Registered with pytree without keys."""

    def __init__(self, sample: torch.Tensor, scale: torch.Tensor) -> None:
        self.sample, self.scale = sample, scale


class ReturnsAPair(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x * 2, x.mean(0))


@pytest.mark.parametrize("context", [["sample", "scale"], None])
def test_classes_that_are_registered_without_keys_are_compared(context: object) -> None:
    torch.utils._pytree.register_pytree_node(
        Pair, lambda pair: ([pair.sample, pair.scale], context), lambda values, _: Pair(*values)
    )
    try:
        report = validate_module(ReturnsAPair().eval(), (torch.randn(2, 3),), ({0: "batch"},))
    finally:
        torch.utils._pytree._deregister_pytree_node(Pair)
    assert report.ok, report.failure
    assert report.outputs == (["sample", "scale"] if context else ["output_0", "output_1"])


class Returns(torch.nn.Module):
    """What a function returns."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.softmax(1), id="weights that are 1 where there is one row"),
        pytest.param(lambda x: x - x.mean(0), id="zeros where there is one text"),
        pytest.param(lambda x: torch.fft.fft(x), id="complex numbers"),
        pytest.param(lambda x: x.to(torch.float8_e4m3fn), id="numbers of 8 bits"),
        pytest.param(lambda x: (x, torch.fft.rfft(x).conj()), id="conjugates"),
        pytest.param(lambda x: (x, x.sum().item()), id="a number of the data"),
        pytest.param(lambda x: (x, 0.1, x.shape[1], x.shape[1] / 3, x.shape[0] > 2), id="numbers"),
    ],
)
def test_what_is_right_is_told_so(function: Callable[[torch.Tensor], Any]) -> None:
    report = validate_module(Returns(function).eval(), (torch.randn(2, 6),), ({0: "batch", 1: "seq"},))
    assert report.ok, (report.failure, report.sets)


def test_outputs_of_one_value_at_all_sizes_prove_nothing() -> None:
    report = validate_module(Returns(torch.zeros_like).eval(), (torch.randn(2, 6),), ({0: "batch", 1: "seq"},))
    assert not report.ok
    assert "no comparison could tell right from wrong" in report.sets[0].error


def test_sizes_that_the_file_refuses_are_told() -> None:
    module = Returns(lambda x: (x, x + 1 if x.shape[1] > 4 else None)).eval()
    report = validate_module(module, (torch.randn(2, 6),), ({0: "batch", 1: "seq"},))
    assert report.outcome == "axes fixed"
    assert "only sizes with seq > 4" in report.sets[-1].error


def test_an_output_that_is_none_at_other_sizes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "refuse_other_sizes", lambda model, checks, names: 0)
    module = Returns(lambda x: (x, x + 1 if x.shape[1] > 4 else None)).eval()
    report = validate_module(module, (torch.randn(2, 6),), ({0: "batch", 1: "seq"},))
    assert report.sets[-1].error == "output 1 is a NoneType on these inputs, and a tensor when traced"


class LastToken(torch.nn.Module):
    """What stands at a position, which the example has beyond shorter texts."""

    def forward(self, x: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1)[torch.arange(x.shape[0]), last]


def test_positions_are_moved_into_shorter_axes() -> None:
    inputs = torch.randn(2, 6, 3), torch.tensor([5, 4])
    report = validate_module(LastToken().eval(), inputs, dynamic_shapes=({0: "b", 1: "t"}, {0: "b"}))
    assert report.ok
    assert not report.refused
    assert {"t 1", "all 1"} <= {compared.name for compared in report.sets}
