"""Modules of one's own: compared at sizes that nobody wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch.export import Dim

import exportguard
from exportguard import ExportOptions, InvalidArgumentError, ValidateOptions, validate_module
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
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 4\n")
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
        ("stops", "raises KeyError: 'weights'"),
        ("missing", "has no function 'missing'"),
    ],
)
def test_a_function_that_makes_no_model_is_named(
    program: Path, function: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", f"{program}:{function}"]) == 2
    assert text in capsys.readouterr().err


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
