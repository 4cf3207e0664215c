"""`to_onnx`: from a module or a program to a model object, and what is wrong with its arguments."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import exportguard
from called import Called
from exportguard import ExportError, ExportOptions, FileError, InvalidArgumentError, LoweringError, OnnxModel, to_onnx
from exportguard.export_errors import explained_export
from exportguard.opsets import MAX_OPSET, MIN_OPSET, default_opset
from exportguard.reading import returned_leaves
from exportguard.request import ExportRequest
from exportguard.runners.onnxruntime import OrtSession
from exportguard.tracing import exported_module


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
        y = self.linear(x).relu()
        return y if scale is None else y * scale


X = torch.randn(3, 4)
DYNAMIC = {"x": {0: "batch"}}


@pytest.fixture(scope="module")
def module() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def converted(module: Model) -> OnnxModel:
    return to_onnx(module, (X,), dynamic_shapes=DYNAMIC)


def test_inputs_and_outputs_have_the_names_and_axes_that_the_user_gave(converted: OnnxModel) -> None:
    assert [(value.name, value.dtype, value.shape) for value in converted.inputs] == [("x", "f32", ("batch", 4))]
    assert [(value.dtype, value.shape) for value in converted.outputs] == [("f32", ("batch", 2))]


def test_the_axes_that_were_asked_for_are_reported(converted: OnnxModel) -> None:
    assert [(axis.input, axis.axis, axis.asked, axis.kept) for axis in converted.axes] == [("x", 0, "batch", True)]


def test_it_runs_on_another_size_than_the_traced_one(module: Model, converted: OnnxModel) -> None:
    x = torch.randn(7, 4)
    (y,) = converted.run({"x": x}).values()
    torch.testing.assert_close(y, module(x))


def test_it_passes_the_checker(converted: OnnxModel) -> None:
    converted.check(full=True)


def test_its_text_names_the_source_of_each_node(converted: OnnxModel) -> None:
    assert "Relu" in converted.text()
    assert "test_export.py" in converted.text(sources=True)


def test_it_is_saved_as_an_onnx_file(converted: OnnxModel, tmp_path: Path) -> None:
    path = converted.save(tmp_path / "model.onnx")
    loaded = onnx.load(path)
    assert [value.name for value in loaded.graph.input] == ["x"]
    assert loaded.opset_import[0].version == converted.opset == default_opset()


def test_large_weights_go_to_a_file_of_their_own_when_asked(converted: OnnxModel, tmp_path: Path) -> None:
    large = to_onnx(torch.nn.Linear(64, 64), (torch.zeros(2, 64),))
    large.save(tmp_path / "model.onnx", external_data="always")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]


def test_an_output_is_written_at_once(module: Model, tmp_path: Path) -> None:
    to_onnx(module, (X,), output=tmp_path / "model.onnx")
    onnx.checker.check_model(str(tmp_path / "model.onnx"))


def test_its_bytes_are_a_model(converted: OnnxModel) -> None:
    assert onnx.load_from_string(converted.to_bytes()).graph.node


def test_an_exported_program_is_converted_as_it_is(module: Model) -> None:
    program = torch.export.export(module, (X,), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}})
    model = to_onnx(program, dynamic_shapes=DYNAMIC)
    assert model.inputs[0].shape == ("batch", 4)
    torch.testing.assert_close(next(iter(model.run({"x": torch.ones(9, 4)}).values())), module(torch.ones(9, 4)))


def test_named_arguments_may_come_in_any_order(module: Model) -> None:
    model = to_onnx(module, (), {"scale": torch.tensor(2.0), "x": X}, dynamic_shapes=DYNAMIC)
    assert [value.name for value in model.inputs] == ["x", "scale"]


def test_a_number_is_a_constant_of_the_model(module: Model) -> None:
    model = to_onnx(module, (X, 3.0))
    torch.testing.assert_close(next(iter(model.run({"x": X}).values())), module(X, 3.0))


def test_inputs_and_outputs_can_be_named(module: Model) -> None:
    options = ExportOptions(input_names=["pixels"], output_names=["scores"])
    model = to_onnx(module, (X,), options=options)
    assert [model.inputs[0].name, model.outputs[0].name] == ["pixels", "scores"]


def test_too_few_names_are_refused_with_the_values_they_are_for(module: Model) -> None:
    with pytest.raises(InvalidArgumentError, match=r"input_names has 1 names for 2 values \(x, scale\)"):
        to_onnx(module, (X, torch.tensor(2.0)), options=ExportOptions(input_names=["pixels"]))


def test_it_exports_without_a_guard(module: Model) -> None:
    assert to_onnx(module, (X,), dynamic_shapes=DYNAMIC, options=ExportOptions(guard=None)).axes[0].kept


@pytest.mark.parametrize("opset", [MIN_OPSET, 21, MAX_OPSET])
def test_every_opset_is_written(module: Model, opset: int) -> None:
    model = to_onnx(module, (X,), opset=opset)
    assert onnx.load_from_string(model.to_bytes()).opset_import[0].version == opset


OPSETS = {
    12: "opset must be between 18 and 25, got 12; pass opset=18 or more",
    26: "opset must be between 18 and 25, got 26; pass None",
    "18": "opset must be between 18 and 25, got '18'; pass None",
}


@pytest.mark.parametrize(("opset", "text"), OPSETS.items(), ids=map(repr, OPSETS))
def test_an_opset_out_of_bounds_is_refused(module: Model, opset: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        to_onnx(module, (X,), opset=opset)
    assert str(caught.value) == text


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be a torch\.nn\.Module or an ExportedProgram, got function"):
        to_onnx(lambda x: x, (X,))  # type: ignore[arg-type]


def test_arguments_that_are_no_tuple_are_refused(module: Model) -> None:
    with pytest.raises(InvalidArgumentError, match=r"args must be a tuple of arguments, got Tensor; pass \(x,\)"):
        to_onnx(module, X)  # type: ignore[arg-type]


def test_wrong_dynamic_shapes_name_input_and_axis(module: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="names axis 5 of x, which has rank 2"):
        to_onnx(module, (X,), dynamic_shapes={"x": {5: "batch"}})


def test_a_folder_that_does_not_exist_is_found_out_before_the_export(module: Model, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        to_onnx(module, (X,), output=tmp_path / "missing" / "model.onnx")
    assert str(caught.value) == (
        f"cannot write {tmp_path}/missing/model.onnx: the folder {tmp_path}/missing does not exist; create it first"
    )


def test_a_folder_is_no_output(module: Model, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="it is a folder; pass the name of a file in it"):
        to_onnx(module, (X,), output=tmp_path)


def test_a_folder_without_permission_is_no_place_for_the_output(
    module: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root, who may write anywhere, runs the tests too
    with pytest.raises(FileError, match="no permission to write"):
        to_onnx(module, (X,), output=tmp_path / "model.onnx")


def opaque(name: str) -> Any:
    """A custom operator that nothing but its eager kernel is known of."""
    schema = "(Tensor x) -> Tensor"
    operator = torch.library.custom_op(f"exportguard_tests::{name}", torch.clone, mutates_args=(), schema=schema)
    operator.register_fake(torch.empty_like)
    return operator


class Opaque(torch.nn.Module):
    first, second = opaque("first"), opaque("second")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) + self.second(x).sum()


def test_operators_without_a_lowering_are_listed_together_with_their_lines() -> None:
    with pytest.raises(LoweringError) as caught:
        to_onnx(Opaque().eval(), (X,))
    assert str(caught.value).startswith("2 operators without a lowering:")
    assert str(caught.value).count("test_export.py:") == 2


def test_a_dtype_that_onnx_does_not_have_is_refused(module: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="torch dtype ComplexHalf has no ONNX counterpart"):
        to_onnx(torch.nn.Identity().eval(), (torch.zeros(2, dtype=torch.complex32),))


def test_what_was_computed_before_an_export_is_differentiated_behind_it() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    x = torch.randn(3, 4)
    loss = module(x).sum()
    versions = [buffer._version for buffer in module.buffers()]
    to_onnx(module, (x,), dynamic_shapes=({0: "batch"},))
    assert [buffer._version for buffer in module.buffers()] == versions
    loss.backward()
    assert module[0].weight.grad is not None


def test_the_model_that_is_exported_is_left_as_it_was(module: Model) -> None:
    before = {name: value.clone() for name, value in module.state_dict().items()}
    to_onnx(module, (X,), dynamic_shapes=DYNAMIC)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert isinstance(module.linear.weight, torch.nn.Parameter)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("seen", file=sys.stderr)
        return x * 2 if x.sum() > 0 else x - 1


class BranchesBehindBlocks(torch.nn.Module):
    """What was replayed is traced before an export is given up, which prints as often as it is tried."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in "123")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return Branches()(x)


@pytest.mark.parametrize("rewrite", ["auto", ()])
@pytest.mark.parametrize("model", [Branches, BranchesBehindBlocks])
def test_stderr_has_what_the_model_prints_and_no_graph_of_torch(
    model: type[torch.nn.Module], rewrite: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.nullcontext() if rewrite else pytest.raises(ExportError):
        to_onnx(model().eval(), (X,), rewrite=rewrite)
    printed = capsys.readouterr().err
    assert "seen\n" in printed
    assert "torch.ops.aten" not in printed


def test_the_default_opset_is_one_that_onnxruntime_runs() -> None:
    assert MIN_OPSET <= default_opset() <= MAX_OPSET


def test_every_public_name_is_there() -> None:
    assert all(hasattr(exportguard, name) for name in exportguard.__all__)


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        if total > 0:
            return x
        return -x


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4)


class Raising(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such mode")


@pytest.mark.parametrize(
    ("module", "shapes", "line", "reason", "remedy"),
    [
        (Branching(), None, "in Branching.forward: if total > 0:", "data-dependent expression", 'rewrite="auto"'),
        (
            Shifted(),
            {"x": {0: "a"}},
            "in Shifted.forward: return x + torch.ones(4)",
            "must match",
            "the inputs are wrong",
        ),
        (Raising(), None, "in Raising.forward: raise KeyError", "KeyError: 'no such mode'", "the inputs are wrong"),
    ],
    ids=["test on values", "sizes that do not fit", "error of the model"],
)
def test_a_stopped_export_names_the_line_and_the_remedy(
    module: torch.nn.Module, shapes: Any, line: str, reason: str, remedy: str
) -> None:
    with pytest.raises(ExportError) as caught:
        to_onnx(module.eval(), (torch.ones(3, 3),), dynamic_shapes=shapes)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"torch.export stopped at {__file__}:")
    assert line in first
    assert reason in "\n".join(rest)
    assert remedy in rest[-1]
    assert caught.value.__cause__ is not None


class WithConstants(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, 3, None, (0.5, True), "text", x * 2


def test_numbers_that_the_model_returns_are_outputs_and_other_constants_are_not() -> None:
    exported = exported_module(
        ExportRequest.of(WithConstants(), (torch.ones(2),), {}, dynamic_shapes=None, options=ExportOptions())
    )
    assert returned_leaves(exported.program) == [True, True, False, True, True, False, True]
    names = ["plus", "three", "half", "flag", "twice"]
    model = to_onnx(WithConstants(), (torch.ones(2),), options=ExportOptions(output_names=names))
    session = OrtSession(model.to_bytes())
    assert session.output_names == names
    assert [value.tolist() for value in session.run({session.input_names[0]: torch.ones(2)})[1:4]] == [3, 0.5, True]


def test_errors_that_are_each_others_cause_are_told_too() -> None:
    """None of them came through a line of the model, so all are looked at."""
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__ = second, first
    stopped = explained_export()
    stopped.__enter__()
    with pytest.raises(ExportError, match="ValueError: first"):
        stopped.__exit__(ValueError, first, None)


class Handling(torch.nn.Module):
    """Makes another error of what its computation raises."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor], cause: bool) -> None:
        super().__init__()
        self.compute, self.cause = compute, cause

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.compute(x)
        except Exception as error:
            if self.cause:
                raise MemoryError("the batch is too large") from error
            raise MemoryError("the batch is too large")  # noqa: B904  # as people write it


def by_length(x: torch.Tensor) -> torch.Tensor:
    return x[: int(x.sum())] * 2 if x.sum() > 0 else x


def by_sparse(x: torch.Tensor) -> torch.Tensor:
    return x + x.to_sparse().coalesce().values().sum()


def by_refusal(x: torch.Tensor) -> torch.Tensor:
    raise ExportError("it is not for export")


@pytest.mark.parametrize("cause", [True, False])
@pytest.mark.parametrize(
    ("compute", "place", "said"),
    [
        (by_length, "in by_length: return x[: int(x.sum())]", "depends on the values of a tensor"),
        (by_sparse, "in by_sparse: return x + x.to_sparse()", "makes no sparse tensor"),
        (by_refusal, "it is not for export", "it is not for export"),
    ],
)
def test_an_error_names_what_a_handler_of_the_model_hides(
    compute: Callable[[torch.Tensor], torch.Tensor], place: str, said: str, cause: bool
) -> None:
    with pytest.raises(ExportError) as refusal:
        to_onnx(Handling(compute, cause).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))
    text = str(refusal.value)
    assert place in text
    assert said in text
    assert "which the model raises again as MemoryError: the batch is too large" in text


def test_an_error_that_the_caller_of_an_export_handles_is_none_of_it() -> None:
    """Whoever exports in another way where one fails is told of the second one."""
    try:
        bool(torch.zeros(2, 3))
    except RuntimeError:
        with pytest.raises(ExportError) as refusal:
            to_onnx(Called(by_sparse).eval(), (torch.ones(3, 4),))
    assert "ambiguous" not in str(refusal.value)
    assert "which the model raises again" not in str(refusal.value)


def test_a_model_with_a_handler_around_a_test_on_data_is_rewritten() -> None:
    model = Handling(doubled_where_positive, True).eval()
    made = to_onnx(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (torch.ones(2, 4), -torch.ones(5, 4)):
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


def doubled_where_positive(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_what_no_rewriting_is_for_has_its_own_remedy(rewrite: Any) -> None:
    class Unknown:
        pass

    def forward(x: torch.Tensor) -> Any:
        return Unknown()

    with pytest.raises(ExportError, match="register_class_serialization") as refusal:
        to_onnx(Called(forward).eval(), (torch.ones(3, 4),), rewrite=rewrite)
    assert "torch.cond" not in str(refusal.value)


def test_nothing_is_logged_of_suggestions_that_torch_does_not_find(caplog: pytest.LogCaptureFixture) -> None:
    """Of a part that may be empty it has conditions that it cannot put into one, and tells so with a traceback."""
    model = Called(lambda x: x[:, 5:].cumsum(1)).eval()
    to_onnx(model, (torch.rand(3, 7),), dynamic_shapes=({0: "rows", 1: "columns"},))
    assert [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"] == []


def test_a_part_that_was_traced_by_torchscript_is_exported_as_it_was_traced() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU()).eval()
    model = torch.nn.Sequential(torch.jit.trace(layers, torch.randn(2, 8)), torch.nn.Linear(8, 3)).eval()
    file = to_onnx(model, (torch.randn(2, 8),), dynamic_shapes=({0: "batch"},), rewrite="auto")
    x = torch.randn(5, 8)
    (got,) = file.run({"input": x}).values()
    torch.testing.assert_close(got, model(x))
