"""`del`, `a, *b = rows`, `k not in (…)` and `torch.LongTensor([…])` of tensor data and of any number of rows."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, up
from torch.nn import Module

from exportguard import RewriteError, to_onnx

PROGRAMS = Programs()
#: Of several lengths and signs; the first is exported.
_ROWS = ((up(3),), (up(2, -1),), (up(5, 2),), (up(4, -0.3),))


@PROGRAMS.add(_ROWS)
class VariableOfABranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            double = x * 2
            y = double + 1
            del double
        else:
            y = x
        return y


@PROGRAMS.add(_ROWS)
class VariableOfALoop(Module):
    def forward(self, x):
        h = x.sum(0)
        for row in x:
            double = row * 2
            h = h * 0.5 + double
            del double, row
        return h


@PROGRAMS.add(_ROWS)
class VariablesBeforeAReturn(Module):
    def forward(self, x):
        a, b = x + 1, x * 2
        if x.sum() > 0:
            y = a * b
            del a, b
            return y
        del a
        return b


@PROGRAMS.add(_ROWS)
class VariableThatIsAssignedAgain(Module):
    def forward(self, x):
        y = x * 2
        del y
        y = x * 3 if x.sum() > 0 else x
        return y


@PROGRAMS.add(_ROWS)
class FirstAndOthers(Module):
    def forward(self, x):
        first, *others = x
        for row in others:
            first = first * 0.5 + row
        return first


@PROGRAMS.add(_ROWS)
class OthersAndLast(Module):
    def forward(self, x):
        *others, last = x
        return last + sum(others)


@PROGRAMS.add(_ROWS)
class BetweenTwo(Module):
    def forward(self, x):
        first, *between, last = x
        return first - last + len(between)


@PROGRAMS.add(_ROWS)
class SizesApart(Module):
    def forward(self, x):
        rows, *others = x.shape
        return x.reshape(rows, *others) * 2 if x.sum() > 0 else x


@PROGRAMS.add(_ROWS)
class NotAmongNumbers(Module):
    def forward(self, x):
        k = int(x.sum())
        y = x * 2 if k not in (1, 2, 6) else x
        if k in {5, 6, 7} or k in range(-9, -3):
            y = y + 1
        return y - 3 if k in {2: "two", 10: "ten"} else y


@PROGRAMS.add(_ROWS)
class PlaceAmongNumbers(Module):
    def forward(self, x):
        return x * 2 if x[0].argmax() not in (0, 1) else x


@PROGRAMS.add(_ROWS)
class TypedTensors(Module):
    def forward(self, x):
        sizes = torch.LongTensor([x.shape[0], 2, int(x.sum())])
        return sizes, torch.FloatTensor([[x.shape[0], 1.5], [2.0, 3.0]])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda cls: cls.__name__)
def test_what_small_statements_mean(program: type[Module]) -> None:
    model = program().eval()
    onnx = to_onnx(model, program.cases[0], dynamic_shapes=({0: "rows"},), rewrite="auto")  # type: ignore[attr-defined]
    assert all(axis.kept for axis in onnx.axes)
    for (x,) in program.cases:  # type: ignore[attr-defined]
        wanted = model(x)
        for found, expected in zip(
            onnx.run({"x": x}).values(), wanted if isinstance(wanted, tuple) else [wanted], strict=True
        ):
            torch.testing.assert_close(found, expected)


class EntryOfOneBranch(Module):
    def forward(self, x):
        table = {"a": x, "b": x * 2}
        if x.sum() > 0:
            del table["b"]
        return table.get("b", x * 3)


def test_an_entry_that_one_branch_deletes_is_refused() -> None:
    with pytest.raises(RewriteError, match=r"give `table\['b'\]` values of different kinds: nothing and"):
        to_onnx(EntryOfOneBranch(), _ROWS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
