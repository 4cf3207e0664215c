"""Models that run with torch's kernels: the same as eager and onnxruntime, and errors for what cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import exportguard
from exportguard import _core
from exportguard.errors import ExportGuardError, InvalidArgumentError
from exportguard.runners.evaluator import EvaluatorSession


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.down = torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.norm(self.up(x)))) + x


def session(text: str) -> EvaluatorSession:
    return EvaluatorSession(_core.Model.parse(text))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_converted_model_agrees_with_eager(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Gated().to(dtype).eval()
    x = torch.randn(5, 8).to(dtype)
    model = exportguard.to_onnx(module, (x[:2],), dynamic_shapes=({0: "batch"},))
    loaded = exportguard.load(model.save(tmp_path / "m.onnx", external_data="always"))
    for runnable in (model, loaded):
        (got,) = runnable.run({"x": x}, runner="evaluator").values()
        torch.testing.assert_close(got, module(x), rtol=2e-2 if dtype == torch.bfloat16 else 2e-3, atol=2e-2)
        assert got.dtype == dtype


def test_a_model_is_optimized_between_two_runs() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 8)
    model = exportguard.to_onnx(Gated().eval(), (x,), optimize=False)
    (before,) = model.run({"x": x}, runner="evaluator").values()
    model.optimize()
    (after,) = model.run({"x": x}, runner="evaluator").values()
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_outputs_may_be_changed_without_changing_the_model() -> None:
    text = """opset 22
graph(%x: f32[2], %w: f32[2] = {3, 4}):
  %a = Identity(%x)
  %v = Transpose(%w)
  %y = Add(%x, %w)
  return (%a, %v, %y, %w)"""
    model = session(text)
    x = torch.ones(2)
    for output in model.run({"x": x}):
        output.add_(5)
    assert [output.tolist() for output in model.run({"x": x})] == [[1, 1], [3, 4], [4, 5], [3, 4]]
    assert x.tolist() == [1, 1]


def test_strings_sequences_and_nothing_go_in_and_out() -> None:
    text = """opset 22
graph(%s: string[n], %q: seq(f32[*]), %o: optional(f32[*])):
  %t = StringConcat(%s, %s)
  %r = SequenceErase(%q)
  %h = OptionalHasElement(%o)
  %e = Optional(%o)
  return (%t, %r, %h, %e)"""
    feeds = {"s": _core.Strings(["a", "ä"], [2]), "q": [torch.ones(1), torch.ones(2)], "o": None}
    strings, rest, has, nothing = session(text).run(feeds)
    assert strings.elements == ["aa", "ää"]
    assert [item.tolist() for item in rest] == [[1]]
    assert not has.item()
    assert nothing is None


class ReturnsNone(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None, int]:
        return x * 2, None, 3


def test_what_is_none_is_no_output() -> None:
    model = exportguard.to_onnx(ReturnsNone().eval(), (torch.ones(2),))
    names = ["output_0", "output_2"]
    for runner in ("evaluator", "onnxruntime"):
        got = model.run({"x": torch.ones(2)}, runner=runner)
        assert [*got] == names
        assert [torch.as_tensor(value).tolist() for value in got.values()] == [[2, 2], 3]


def test_a_number_that_equals_its_bound_stays() -> None:
    text = """opset 22
graph(%x: f32[n], %low: f32[], %high: f32[]):
  %y = Clip(%x, %low, %high)
  return (%y)"""
    x = torch.tensor([-0.0, 0.0, float("nan")]).repeat(8)  # several at a time have another kernel
    (y,) = session(text).run({"x": x, "low": torch.tensor(0.0), "high": torch.tensor(-0.0)})
    assert torch.equal(torch.signbit(y[:2]), torch.tensor([True, False]))
    assert torch.equal(torch.signbit(y[-3:-1]), torch.tensor([True, False]))
    assert torch.equal(y.isnan(), x.isnan())


@pytest.mark.parametrize("operator", ["DepthToSpace", "SpaceToDepth"])
def test_blocks_whose_square_overflows_are_refused(operator: str) -> None:
    runner = session(f"opset 22\ngraph(%x: f32[*]):\n  %y = {operator}(%x) {{blocksize={1 << 62}}}\n  return (%y)")
    with pytest.raises(ExportGuardError, match="blocksize must be positive, and no larger"):
        runner.run({"x": torch.empty(0, 0, 0, 0)})


def test_a_size_to_crop_to_is_not_negative() -> None:
    runner = session("opset 22\ngraph(%x: f32[n], %to: i64[1]):\n  %y = CenterCropPad(%x, %to)\n  return (%y)")
    with pytest.raises(ExportGuardError, match="a size must not be negative"):
        runner.run({"x": torch.ones(3), "to": torch.tensor([-(1 << 63)])})


@pytest.mark.parametrize("pads", [[-(1 << 63), 0], [0, -(1 << 63)], [-4, 0]], ids=str)
def test_no_more_is_cut_off_an_axis_than_it_has(pads: list[int]) -> None:
    runner = session("opset 22\ngraph(%x: f32[n], %pads: i64[2]):\n  %y = Pad(%x, %pads)\n  return (%y)")
    with pytest.raises(ExportGuardError, match="more is cut off an axis than it has"):
        runner.run({"x": torch.ones(3), "pads": torch.tensor(pads)})


def test_torch_operators_that_write_are_refused() -> None:
    text = "opset 22\ngraph(%x: f32[2]):\n  %y: f32[2] = aten.add_.Tensor(%x, %x)\n  return (%y)"
    with pytest.raises(ExportGuardError, match=r"no implementation in the evaluator: aten\.add_\.Tensor"):
        session(text)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"device must be one of torch's.*got 'tpu9'"):
        EvaluatorSession(_core.Model.parse("opset 22\ngraph(%x: f32[2]):\n  return (%x)"), "tpu9")


def test_an_input_of_another_kind_is_refused() -> None:
    text = "opset 22\ngraph(%x: f32[2]):\n  %y = Neg(%x)\n  return (%y)"
    with pytest.raises(InvalidArgumentError, match=r"input 'x' must be f32\[2\], got f32\[3\]"):
        session(text).run({"x": torch.ones(3)})
    with pytest.raises(InvalidArgumentError, match="an input must be a tensor"):
        session(text).run({"x": 3})
    with pytest.raises(InvalidArgumentError, match=r"input 'x' must be f32\[2\], got nothing"):
        session(text).run({"x": None})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_runs_on_a_gpu() -> None:
    module = Gated().eval()
    x = torch.randn(5, 8)
    (got,) = exportguard.to_onnx(module, (x,)).run({"x": x}, runner="evaluator", device="cuda").values()
    assert got.is_cuda
    torch.testing.assert_close(got.cpu(), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("script", "rounds", "told"),
    [
        ("hostile_nodes.py", "15", "were refused"),
        ("hostile_graphs.py", "150", " errors"),
        ("hostile_seeds.py", "25", " errors"),
    ],
)
def test_what_is_hostile_gives_errors_and_never_a_crash(script: str, rounds: str, told: str) -> None:
    """In a process of its own, which a crash would end."""
    command = [sys.executable, str(Path(__file__).with_name(script)), "--rounds", rounds]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, f"it ended with {result.returncode}: {result.stdout} {result.stderr[-3000:]}"
    assert told in result.stdout


def test_nothing_times_what_is_infinite_is_nothing() -> None:
    """Of a step beyond the length of a sequence, a peephole that is not there, and squares beyond float32."""
    text = """opset 22
graph(%x: f32[2,1,1], %w: f32[1,4,1], %r: f32[1,4,1], %lens: i32[1], %h: f32[1,1,1], %c: f32[1,1,1], %p: f32[1,2,1],
      %s: f32[2,1,1]):
  %y, %last, %cell = LSTM(%x, %w, %r, _, %lens, %h, %c) {hidden_size=1}
  %v: f32[1,1,1] = Constant() {value=f32[1,1,1]{1}}
  %u = RNN(%s, %v, %v, _, %lens) {hidden_size=1, activations=["ThresholdedRelu"], activation_alpha=[1.0]}
  %n = LRN(%p) {size=1, alpha=1.0}
  return (%y, %cell, %u, %n)"""
    inputs = {
        "x": torch.ones(2, 1, 1),
        "w": torch.zeros(1, 4, 1),
        "r": torch.zeros(1, 4, 1),
        "lens": torch.tensor([1], dtype=torch.int32),
        "h": torch.zeros(1, 1, 1),
        "c": torch.full((1, 1, 1), float("inf")),
        "p": torch.tensor([1e30, 2.0]).reshape(1, 2, 1),
        "s": torch.full((2, 1, 1), float("-inf")),
    }
    model = _core.Model.parse(text)
    y, cell, u, n = (torch.as_tensor(value).flatten() for value in EvaluatorSession(model).run(inputs))
    assert y.tolist() == [0.5, 0.0]
    assert cell.tolist() == [float("inf")]
    assert u.tolist() == [0.0, 0.0]
    torch.testing.assert_close(n, torch.tensor([0.0, 2 / 5**0.75]))
