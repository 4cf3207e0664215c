"""A model that does something else when it is called again is refused: a file keeps no state between calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exportguard import ExportError, ExportGuardError, to_onnx


class Counting(torch.nn.Module):
    """Multiplies with the number of the call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[int] = []
        self.table: dict[str, float] = {}

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Appending(Counting):
    def forward(self, x):
        self.seen.append(1)
        return x + len(self.seen)


class Filling(Counting):
    def forward(self, x):
        scale = self.table.get("scale", 1.0)
        self.table["scale"] = 0.5
        return x * scale


class Stopping(Counting):
    def forward(self, x):
        if self.calls:
            raise ValueError("once only")
        self.calls = 1
        return x * 2


class CountingFromTheThird(Counting):
    def forward(self, x):
        self.calls += 1
        return x * max(self.calls, 2)


class KeepingTheLongest(Counting):
    """What it remembers is of the sizes of calls before."""

    def forward(self, x):
        self.calls = max(self.calls, len(x))
        return x * self.calls


class KeepingTheFirst(Counting):
    def forward(self, x):
        return x * self.table.setdefault("scale", float(len(x)))


class Telling(Counting):
    """What it counts decides nothing."""

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        return x * 2


class Remembering(Counting):
    """Computes once what it would compute again."""

    def forward(self, x):
        if "scale" not in self.table:
            self.table["scale"] = 3.0
        return x * self.table["scale"]


class Buffered(Counting):
    """A buffer that forward writes into is an output of a program."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.total += x.sum(0)
        return x + self.total


@pytest.mark.parametrize("shapes", [None, ({0: "rows"},)], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", [Counting, Appending, Filling, Stopping])
def test_what_does_something_else_is_refused(kind: type[Counting], shapes: Any) -> None:
    model = kind().eval()
    with pytest.raises(ExportError, match=r"forward changes what it holds \(.*\), and does something else"):
        to_onnx(model, (torch.randn(3, 4),), dynamic_shapes=shapes)
    assert (model.calls, model.seen, model.table) == (0, [], {})


@pytest.mark.parametrize("rewrite", [None, "auto"], ids=str)
@pytest.mark.parametrize("kind", [CountingFromTheThird, KeepingTheLongest, KeepingTheFirst])
def test_what_does_something_else_behind_several_calls_is_refused(kind: type[Counting], rewrite: str | None) -> None:
    model = kind().eval()
    with pytest.raises(ExportGuardError, match=r"does something else when it is called again|fixed to 3"):
        to_onnx(model, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), rewrite=rewrite)
    assert (model.calls, model.seen, model.table) == (0, [], {})


@pytest.mark.parametrize("kind", [Telling, Remembering, Buffered])
def test_what_does_the_same_is_exported(kind: type[Counting]) -> None:
    onnx = to_onnx(kind().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},))
    x = torch.randn(5, 4)
    got, *_ = onnx.run({"x": x}).values()
    torch.testing.assert_close(got, kind().eval()(x))
