"""Operators without a lowering are taken apart by torch's own decomposition, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from exportguard import LoweringError, _core
from exportguard.decompose import expand
from exportguard.operator_trace import trace_operator


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """A namespace `test_decompose` for custom operators."""
    library = torch.library.Library("test_decompose", "DEF")
    yield library
    library._destroy()


def parsed(text: str) -> _core.Model:
    model = _core.Model.parse(text)
    model.verify()
    return model


def test_an_operator_with_a_lowering_stays() -> None:
    model = parsed("graph(%x: f32[batch]):\n  %y: f32[batch] = aten.relu.default(%x)\n  return (%y)")
    before = model.text()
    assert expand(model) == 0
    assert model.text() == before


def test_an_operator_without_a_lowering_becomes_its_parts(library: torch.library.Library) -> None:
    library.define("twice_plus(Tensor x, Tensor y, *, float scale=2.0) -> Tensor")
    library.impl("twice_plus", lambda x, y, *, scale=2.0: x * scale + y, "CompositeImplicitAutograd")
    model = parsed(
        """graph(%x: f32[batch,3], %y: f32[batch,3]):
  %z: f32[batch,3] = test_decompose.twice_plus.default(%x, %y, 3.0)
  return (%z)"""
    )
    assert expand(model) == 1
    assert (
        model.text().strip()
        == """graph(%x: f32[batch,3], %y: f32[batch,3]):
  %mul: f32[batch,3] = aten.mul.Tensor(%x, 3.0)
  %z: f32[batch,3] = aten.add.Tensor(%mul, %y)
  return (%z)"""
    )
    model.verify()


def test_the_parts_have_the_sizes_of_the_place_where_they_stand(library: torch.library.Library) -> None:
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: torch.cat([x, x]) + 1, "CompositeImplicitAutograd")
    model = parsed(
        """graph(%x: f32[batch], %y: f32[past + seq]):
  %a: f32[2*batch] = test_decompose.doubled.default(%x)
  %b: f32[2*past + 2*seq] = test_decompose.doubled.default(%y)
  return (%a, %b)"""
    )
    assert expand(model) == 2
    assert "%cat: f32[2*batch] = aten.cat.default([%x, %x])" in model.text()
    assert "f32[2*past + 2*seq] = aten.cat.default([%y, %y])" in model.text()


def test_equal_calls_are_traced_once() -> None:
    traced: list[str] = []

    def trace(target: str, arguments: list[object]) -> None:
        traced.append(target)

    _core.expand(
        parsed(
            """graph(%x: f32[a,3], %y: f32[b,3], %z: f32[4]):
  %p: f32[a,3] = aten.fft_fftshift.default(%x)
  %q: f32[b,3] = aten.fft_fftshift.default(%y)
  %r: f32[4] = aten.fft_fftshift.default(%z)
  return (%p, %q, %r)"""
        ),
        trace,
    )
    assert traced == ["aten.fft_fftshift.default", "aten.fft_fftshift.default"]


def test_parts_that_have_no_lowering_are_taken_apart_too(library: torch.library.Library) -> None:
    for name in ("outer", "inner"):
        library.define(f"{name}(Tensor x) -> Tensor")
    library.impl("inner", lambda x: x.relu(), "CompositeImplicitAutograd")
    library.impl("outer", lambda x: torch.ops.test_decompose.inner(x) * 2, "CompositeImplicitAutograd")
    model = parsed("graph(%x: f32[n]):\n  %y: f32[n] = test_decompose.outer.default(%x)\n  return (%y)")
    assert expand(model) >= 1
    assert "test_decompose" not in model.text()
    _core.lower(model)


def test_writes_inside_an_operator_are_made_functional(library: torch.library.Library) -> None:
    library.define("first_zero(Tensor x) -> Tensor")

    def first_zero(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0] = 0
        return y

    library.impl("first_zero", first_zero, "CompositeImplicitAutograd")
    model = parsed("graph(%x: f32[n]):\n  %y: f32[n] = test_decompose.first_zero.default(%x)\n  return (%y)")
    expand(model)
    assert "select_scatter" in model.text()
    assert "fill_" not in model.text()


def test_several_results_stay_apart(library: torch.library.Library) -> None:
    library.define("both(Tensor x) -> (Tensor, Tensor)")
    library.impl("both", lambda x: (x + 1, x), "CompositeImplicitAutograd")
    model = parsed("graph(%x: f32[n]):\n  %y: f32[n], %z: f32[n] = test_decompose.both.default(%x)\n  return (%y, %z)")
    expand(model)
    assert "return (%y, %x)" in model.text()


def test_an_operator_that_torch_cannot_take_apart_is_left_to_the_report() -> None:
    model = parsed("graph(%x: f32[n]):\n  %y: f32[n] = aten.no_such_operator.default(%x)\n  return (%y)")
    assert expand(model) == 0
    with pytest.raises(LoweringError, match=r"aten\.no_such_operator\.default \(1x\)"):
        _core.lower(model)


def test_a_decomposition_that_fixes_a_size_is_not_taken(
    library: torch.library.Library, caplog: pytest.LogCaptureFixture
) -> None:
    library.define("as_many(Tensor x) -> Tensor")
    library.impl("as_many", lambda x: x * int(x.shape[0]), "CompositeImplicitAutograd")
    model = parsed("graph(%x: f32[n]):\n  %y: f32[n] = test_decompose.as_many.default(%x)\n  return (%y)")
    with caplog.at_level(logging.INFO, logger="exportguard"):
        assert expand(model) == 0
    assert "fixes a size" in caplog.text


CONDITIONS = {
    "a bound": (lambda x: x * 2 if x.shape[0] > 10 else x, 0),
    "a remainder": (lambda x: x * 2 if x.shape[0] % 2 == 1 else x, 0),
    "a layout": (lambda x: x.contiguous() * 2 if x.shape[0] > 10 else x * 2, 1),
    "what always holds": (lambda x: x * 2 if x.shape[0] * 4 % 2 == 0 else x, 1),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_decomposition_is_taken_if_it_is_right_at_every_size(
    name: str, library: torch.library.Library, caplog: pytest.LogCaptureFixture
) -> None:
    function, count = CONDITIONS[name]
    library.define("by_size(Tensor x) -> Tensor")
    library.impl("by_size", function, "CompositeImplicitAutograd")
    model = parsed("graph(%x: f32[n]):\n  %y: f32[n] = test_decompose.by_size.default(%x)\n  return (%y)")
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        assert expand(model) == count
    assert ("torch's decomposition of test_decompose.by_size.default is made for" in caplog.text) == (count == 0)


def test_enums_reach_the_decomposition_as_torch_has_them() -> None:
    assert trace_operator("aten.nosuch.default", []) is None
    model = parsed(
        """graph(%n: int{n}):
  %y: f32[n] = test_decompose_missing.window.default(%n, dtype:f32, @strided, @cpu)
  return (%y)"""
    )
    seen: list[object] = []

    def trace(target: str, arguments: list[object]) -> None:
        seen.extend(arguments)

    _core.expand(model, trace)
    operand, dtype, layout, device = seen
    assert isinstance(operand, _core.Operand)
    assert (operand.is_scalar, operand.value, operand.dtype) == (True, "d0", torch.int64)
    assert dtype == torch.float32
    assert isinstance(layout, _core.Symbol)
    assert isinstance(device, _core.Symbol)
    assert (layout.name, device.name) == ("strided", "cpu")
