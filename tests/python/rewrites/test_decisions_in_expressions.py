"""Decisions within expressions: names bound behind `and`, `next` with a default, classes with their own `__bool__`, and
ways out of loops that share a line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from control_flow_program import SIGNS, Programs, up

from exportguard import RewriteError, to_onnx

RIGHT = Programs()
REFUSED = Programs()


@RIGHT.add()
class BindsANameBehindAnd(torch.nn.Module):
    def forward(self, x):
        if (s := x.sum()) > 1 and (m := x.max()) < 3 * s:
            return s + m
        return s


@RIGHT.add()
class BindsNamesInElif(torch.nn.Module):
    def forward(self, x):
        if (s := x.sum()) > 1 and (m := x.max()) < 3 * s:
            y = s + m
        elif s < -1 or (q := x.min()) < -1.2:
            y = s * 2
        else:
            y = q
        return y


@RIGHT.add()
class BindsANameBehindNot(torch.nn.Module):
    def forward(self, x):
        if not ((s := x.sum()) > 1 and (m := x.max()) < 3 * s):
            return x * s
        return x * m


@RIGHT.add()
class BindsANameInAWhile(torch.nn.Module):
    def forward(self, x):
        n = 0
        while n < 4 and (s := x.abs().sum()) > 1:
            x = x / s
            n += 1
        return x * n


@RIGHT.add()
class TheFirstPosition(torch.nn.Module):
    def forward(self, x):
        return x * next((i for i, row in enumerate(x) if row.sum() > 1), -1)


@RIGHT.add()
class TheFirstRow(torch.nn.Module):
    def forward(self, x):
        row = next((a - b for a, b in zip(x, x.flip(0), strict=True) if (a - b).sum() > 0.3), x[0])
        return x + row


@RIGHT.add()
class TheFirstColumn(torch.nn.Module):
    def forward(self, x):
        return x * next((k for k in range(3) if x[:, k].sum() > 0), 7)


@RIGHT.add()
class AnyOfAll(torch.nn.Module):
    def forward(self, x):
        return x + 1 if any(all(value > -1 for value in row) for row in x) else x


@RIGHT.add()
class ExchangesNumbersOfAList(torch.nn.Module):
    def forward(self, x):
        x = x.double()
        numbers, above = x.mean(0).tolist(), (x.mean(0) > 0).tolist()
        x += 10
        if numbers[0] > numbers[1]:
            numbers[0], numbers[1] = numbers[1], numbers[0]
        return torch.tensor([*numbers, sum(above), max(numbers)]) + x[0, 0].float()


@RIGHT.add()
class DividesASize(torch.nn.Module):
    def forward(self, x):
        quotient, rest = divmod(len(x), 3)
        return x * quotient + rest if x.sum() > 0 else x - rest


class Score:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value > 0)

    def __add__(self, other: Score) -> Score:
        return Score(self.value + other.value)

    def __call__(self, x: Any) -> Any:
        return x * self.value


@RIGHT.add()
class AsksAnObject(torch.nn.Module):
    def forward(self, x):
        score = Score(x.sum())
        return score(x) if score else x - 1


@RIGHT.add()
class OneOfTwoObjects(torch.nn.Module):
    def forward(self, x):
        a, b = Score(x[:, 0].sum()), Score(x[:, 1].sum())
        c, d = a or b, a and b
        return c(x) + d(x) if not (a and b) else c(x)


@RIGHT.add()
class WhileAnObjectSaysNo(torch.nn.Module):
    def forward(self, x):
        score = Score(x.sum().clamp(min=-3))
        while not score:
            score = score + Score(torch.tensor(0.7))
            x = x + 1
        return x


@RIGHT.add()
class ReturnsFromBothLoops(torch.nn.Module):
    def forward(self, x):
        for row in x:
            for value in row:
                if value > 1.5:
                    return row
                if value < -1.5:
                    break
            else:
                continue
            if row.sum() > 2:
                return row * 2
            break
        else:
            return x[0] - 1
        return x[0]


@RIGHT.add()
class ReturnsFromALoopInAWhile(torch.nn.Module):
    def forward(self, x):
        n = 0
        while x.sum() > n:
            for row in x:
                if row[0] > 1:
                    return row
                if row[1] > 0:
                    break
            else:
                return x[0] * 2
            n += 1
            if n > 3:
                break
        else:
            if x.max() > 1:
                return x[0] * 3
        return x[0]


@RIGHT.add()
class ReturnsEarlyBeforeAnElse(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 4:
            return x[0] * 3
        for i in range(4):
            if x.max() > i:
                continue
            for j in range(3):
                if x.min() < -j:
                    break
            else:
                if x.mean() > 0:
                    return x[0] - 1
                break
        else:
            return x[0] + 1
        return x[0]


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_a_decision_is_that_of_eager_mode(program: type[torch.nn.Module]) -> None:
    model = program().eval()
    onnx = to_onnx(model, SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    for (x,) in (*SIGNS, (up(6, 0.5),), (up(1),), (torch.randn(4, 4, generator=torch.Generator().manual_seed(3)) * 2,)):
        torch.testing.assert_close(onnx.run({"x": x})[onnx.outputs[0].name], model(x))


@REFUSED.add()
class ComparesTuples(torch.nn.Module):
    def forward(self, x):
        return x * 2 if (int(x[0].argmax()), float(x.sum())) > (1, 0.0) else x


@REFUSED.add()
class KeepsASet(torch.nn.Module):
    def forward(self, x):
        seen, again = set(), 0
        for value in x[0].long().tolist():
            again += value in seen
            seen |= {value}
        return x * again


@pytest.mark.parametrize("program", REFUSED, ids=lambda cls: cls.__name__)
def test_what_python_decides_is_refused_in_words_of_the_model(program: type[torch.nn.Module]) -> None:
    with pytest.raises(RewriteError, match=r"Python itself decides on tensor data here|is a key of a dict, an element"):
        to_onnx(program().eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
