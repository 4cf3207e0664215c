"""What a model leaves in buffers and inputs at some sizes alone is another way, as what it returns is."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from random_programs import model_of

from exportguard import AxisError, to_onnx
from exportguard.axes.left_behind import Places, left_otherwise

#: What is written, with `{size}` and `{factor}` of one way or both; `p` is a buffer or an input.
WRITES = {
    "at some sizes": "if {size}:\n            {p} += x.mean(0)",
    "otherwise at some sizes": "{p} *= 3 if {size} else 2",
    "into a part": "{p}[: 2 if {size} else 1] = 0.5",
    "by data": "if {size} and x.sum() > 0:\n            {p} -= 1",
    "past autograd": "if {size}:\n            {p}.data.mul_(4)",
    "twice": "{p} += 1\n        if {size}:\n            {p} -= 1.5",
}

PLACES = {"a buffer": "self.held", "an input": "y", "an input in a list": "more[0]"}

SIZES = ("x.shape[0] > 4", "x.shape[0] % 3 == 1")

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.arange(4.0))

    def forward(self, x, y, more):
        {writes}
        return x * 2
"""


def _model(writes: str, place: str) -> torch.nn.Module:
    size = SIZES[(list(WRITES).index(writes) + list(PLACES).index(place)) % 2]
    source = _PROGRAM.format(writes=WRITES[writes].format(p=PLACES[place], size=size))
    return model_of(source, f"/left/{writes} {place}.py").eval()


def _given(rows: int, factor: float = 1) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    return factor * (torch.rand(rows, 4) + 0.1), torch.ones(4), [torch.ones(4)]


_AXES = ({0: "rows"}, {}, [{}])


@pytest.mark.parametrize(
    ("writes", "place"),
    [
        *zip(WRITES, itertools.cycle(PLACES), strict=False),
        *zip(WRITES, itertools.islice(itertools.cycle(PLACES), 1, None), strict=False),
    ],
)
def test_what_is_left_at_other_sizes_is_as_in_eager(writes: str, place: str) -> None:
    model = _model(writes, place)
    if writes != "by data":
        with pytest.raises(AxisError, match="something else than the model"):
            to_onnx(model, _given(2), dynamic_shapes=_AXES)
        assert to_onnx(model, _given(2), dynamic_shapes=_AXES, mutated_outputs=False)
    onnx = to_onnx(model, _given(2), dynamic_shapes=_AXES, rewrite="auto")
    for rows, factor in itertools.product((1, 2, 3, 4, 5, 7, 8), (1, -1)):
        x, y, more = _given(rows, factor)
        names = [value.name for value in onnx.inputs]
        found = onnx.run(dict(zip(names, (x, y, *more), strict=False)))
        own = _model(writes, place)
        expected = own(x, y, more)
        left = {"self.held": own.held, "y": y, "more[0]": more[0]}[PLACES[place]]
        result, *written = found.values()
        torch.testing.assert_close(result, expected)
        assert all(name.endswith("_mutated") for name in list(found)[1:])
        for value in written:
            torch.testing.assert_close(value, left)


class KeepsATable(torch.nn.BatchNorm1d):
    """As modules of installed packages do, which keep in a buffer what they would compute again."""

    __module__ = torch.nn.BatchNorm1d.__module__

    def __init__(self) -> None:
        super().__init__(4)
        self.register_buffer("table", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            self.table = torch.full((2,), float(x.shape[0]))
        return super().forward(x) * 2


class KeepsItOnItsOwn(KeepsATable):
    __module__ = __name__


@pytest.mark.parametrize("kind", [KeepsATable, KeepsItOnItsOwn])
def test_what_modules_of_packages_keep_for_themselves_is_no_result(kind: type[torch.nn.Module]) -> None:
    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = kind()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    def export() -> None:
        to_onnx(Around().eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))

    if kind is KeepsATable:
        export()
        return
    with pytest.raises(AxisError, match="something else than the model"):
        export()


class Grows(torch.nn.Module):
    """A table that is made anew where it is too short."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            self.table = torch.arange(float(x.shape[0]))
        return x * 2


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_what_a_buffer_cannot_hold_is_told_and_no_difference(rewrite: object, caplog: pytest.LogCaptureFixture) -> None:
    model = Grows().eval()
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "exportguard"):
            to_onnx(model, (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},), rewrite=rewrite)
        told = [record for record in caplog.records if "gives the buffer table other sizes" in record.getMessage()]
        assert len(told) == 1


def test_places_tell_writes_and_other_tensors() -> None:
    first, second, given = torch.zeros(2), torch.zeros(2), torch.zeros(3)
    places = Places({"first": first, "second": second}, [given, 5])
    assert places.written({"first": first, "second": second}) == {}
    given[1:] += 1
    written = places.written({"first": first, "second": torch.ones(2), "new": torch.ones(1)})
    assert written.keys() == {"second", 0}
    given += 1  # what was told is a copy
    torch.testing.assert_close(written[0], torch.tensor([0.0, 1.0, 1.0]))
    assert places.written({}, lambda key, tensor: tensor is first).keys() == {"first", 0}


def test_where_a_call_does_not_write_there_is_what_was_there() -> None:
    before = {"a": torch.zeros(2), "b": None, 0: torch.ones(2)}
    changed, same = {"a": torch.ones(2)}, {"a": torch.zeros(2)}
    assert left_otherwise(changed, {}, before.get, ["a"]) == "the buffer a"
    assert left_otherwise(same, {}, before.get, ["a"]) == ""
    assert left_otherwise({}, {0: torch.zeros(2)}, before.get, [0]) == "input 0"
    assert left_otherwise({}, {"b": torch.zeros(2)}, before.get, ["b"]) == ""
