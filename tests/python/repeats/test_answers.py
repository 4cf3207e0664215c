"""How the results of an operator call look is asked of torch's fake kernels once in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exportguard import ExportOptions, torch_export_patches
from exportguard.repeats.answers import Answers
from exportguard.request import ExportRequest
from exportguard.tracing import exported_module

aten = torch.ops.aten


class Asked:
    """Fake kernels behind `Answers`, and how often they were asked."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.answers, self.count = Answers(), 0

    def fake(self, *sizes: int, **options: Any) -> FakeTensor:
        return self.mode.from_tensor(torch.zeros(*sizes, **options))

    def __call__(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        def ask() -> Any:
            self.count += 1
            with self.mode:
                return func(*args, **kwargs)

        return self.answers.of(self.mode, (func, args, kwargs), ask)


@pytest.fixture
def asked() -> Iterator[Asked]:
    with torch.no_grad():
        yield Asked()


def test_an_equal_call_is_not_asked_again_and_returns_another_tensor(asked: Asked) -> None:
    one, other = asked(aten.special_i0e.default, asked.fake(3, 4)), asked(aten.special_i0e.default, asked.fake(3, 4))
    assert asked.count == 1
    assert one.shape == other.shape == (3, 4)
    assert one.untyped_storage()._cdata != other.untyped_storage()._cdata
    assert other.untyped_storage().nbytes() == one.untyped_storage().nbytes()
    assert other._base is None
    assert not other.requires_grad


def test_every_result_of_a_call_is_known(asked: Asked) -> None:
    x, weight = asked.fake(3, 4), asked.fake(4)
    for _ in range(3):
        result, mean, _ = asked(aten.native_layer_norm.default, x, [4], weight, weight, 1e-5)
        assert (result.shape, mean.shape) == ((3, 4), (3, 1))
    assert asked.count == 2  # in the first, torch finds that the size of the weight is 4, so the second is another one


CALLS: dict[str, Callable[[Asked], list[tuple[Any, ...]]]] = {
    "numbers of other classes": lambda a: [
        (aten.xlogy.Scalar_Other, a.fake(3, dtype=torch.int64), n) for n in (1, 1.0, True)
    ],
    "other sizes": lambda a: [(aten.special_i0e.default, a.fake(n)) for n in (3, 4)],
    "other dtypes": lambda a: [
        (aten.special_i0e.default, a.fake(3, dtype=kind)) for kind in (torch.float32, torch.float64)
    ],
    "other strides": lambda a: [(aten.special_i0e.default, x) for x in (a.fake(3, 4), a.fake(4, 3).t())],
    "a view": lambda a: [(aten.diagonal.default, a.fake(3, 3))] * 2,
    "what may be a view": lambda a: [(aten.reshape.default, a.fake(4), [2, 2])] * 2,
    "a write": lambda a: [(aten.add_.Tensor, a.fake(4), 1)] * 2,
    "a size that depends on data": lambda a: [(aten.nonzero.default, a.fake(4))] * 2,
    "a factory": lambda a: [(aten.zeros_like.default, a.fake(4))] * 2,
    "gradients": lambda a: [(aten.special_i0e.default, a.fake(4, requires_grad=grad)) for grad in (False, True)],
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", CALLS)
def test_another_call_is_asked(name: str, asked: Asked) -> None:
    calls = CALLS[name](asked)
    results = [asked(*call) for call in calls]
    assert asked.count == len(calls)
    for call, result in zip(calls, results, strict=True):
        with asked.mode:
            wanted = call[0](*call[1:])
        assert result.dtype == wanted.dtype
        assert result.dim() == wanted.dim()
        assert result.stride() == wanted.stride()


def test_another_mode_of_fake_tensors_is_asked(asked: Asked) -> None:
    asked(aten.special_i0e.default, asked.fake(3))
    asked.mode = FakeTensorMode()
    x = asked.fake(3)
    assert asked(aten.special_i0e.default, x).fake_mode is x.fake_mode
    assert asked.count == 2


def test_another_default_dtype_is_asked(asked: Asked) -> None:
    x = asked.fake(3, dtype=torch.int64)
    assert asked(aten.mul.Tensor, x, 0.5).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert asked(aten.mul.Tensor, x, 0.5).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


class Chain(nn.Module):
    """Calls that look alike, none of them in blocks that repeat."""

    def forward(self, x: Tensor) -> Tensor:
        y = x @ x.mT
        z = torch.special.i0e(y)
        z = torch.special.i0e(z)
        z.add_(y)
        kept = z[0]
        z = torch.special.i0e(z)
        z.mul_(2)
        return z + kept


def test_a_call_that_was_known_has_a_node_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Any] = []
    of = Answers.of

    def counting(self: Answers, mode: Any, call: Any, ask: Any) -> Any:
        known.append(call[0])

        def asking() -> Any:
            known.pop()
            return ask()

        return of(self, mode, call, asking)

    monkeypatch.setattr(Answers, "of", counting)
    batch = torch.export.Dim("batch")
    with torch.no_grad(), torch_export_patches():
        program = torch.export.export(Chain(), (torch.randn(2, 3, 3),), dynamic_shapes=({0: batch},))
    assert known.count(aten.special_i0e.default) == 2
    lines = [node.meta["stack_trace"] for node in program.graph.nodes if node.target is aten.special_i0e.default]
    assert len(set(lines)) == 3


def test_the_program_is_that_of_asking_always() -> None:
    x = torch.randn(2, 3, 3)
    for repeats in ("trace once", "verify"):
        options = ExportOptions(repeats=repeats)  # type: ignore[arg-type]
        request = ExportRequest.of(Chain(), (x,), None, dynamic_shapes=({0: "batch"},), options=options)
        program = exported_module(request).expanded()
        more = torch.randn(5, 3, 3)
        torch.testing.assert_close(program.module()(more), Chain()(more))
