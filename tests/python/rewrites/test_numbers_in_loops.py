"""A Python number of tensor data that is made in front of a loop and used in its steps, in every kind of loop."""

from __future__ import annotations

import itertools

import pytest
import torch
from control_flow_program import up
from random_programs import model_of

from exportguard import to_onnx

NUMBERS = {
    "int": "int(x.sum())",
    "item": "x.sum().long().item()",
    "negative": "-int(x.abs().sum())",
    "quotient": "int(x.abs().sum()) // 3",
    "remainder": "int(x.sum()) % 3 + 1",
    "of a size": "int(x.abs().sum()) + len(x)",
    "maximum": "max(int(x.sum()), 2)",
    "length": "len(x[x[:, 0] > 0.2])",
    "tolist": "x.sum(1).long().tolist()[0]",
}

#: What a step makes of the row, the number `k` and the total.
USES = {
    "factor": "total + row * k",
    "compared": "total + (row if row.sum() * 9 > k else -row)",
    "slice": "total + row[:k].sum() + row[k:].sum()",
    "slices of x": "total + x[:k].sum(0) - x[k:].sum(0)",
    "index": "total * 0.5 + x[k % len(x)]",
    "arithmetic": "total + row * (k * 2 - 3) + k // 2 + k % 5",
    "made": "total + torch.full((4,), k, dtype=torch.float32) + torch.arange(abs(k) + 1).sum()",
    "chosen": "total + row * [1.0, 3.0][k % 2]",
    "loop": "self.loop(total, row, k)",
    "branch": "self.branch(total, row, k)",
    "float": "total + row * float(k) + k / 4",
}

LOOPS = {
    "rows": "for row in x:\n            total = {use}",
    "broken": "for row in x:\n            total = {use}\n            if total.sum() > 900: break",
    "range": "for i in range(1, len(x)):\n            row = x[i]\n            total = {use}",
    "while": "row, i = x[0], 0\n        while i < 3 and x[0, 0] < 99:\n            i += 1\n            total = {use}",
    "listed": "out = []\n        for row in x:\n            out.append({use})\n        total = torch.stack(out).sum(0)",
    "nested": "for row in x:\n            for row in x * 2:\n                total = total * 0.5 + ({use}) * 0.5",
    "in a branch": "if x.sum() > 1:\n            for row in x:\n                total = {use}",
    "many": "for row in x:\n            if row.sum() > 1:\n                total = {use}\n        for row in x:\n"
    "            total = {use}",
}

_PROGRAM = """
import torch

class Model(torch.nn.Module):
    def loop(self, total, row, k):
        for j in range(k):
            total = total * 0.5 + row * j
        return total

    def branch(self, total, row, k):
        if k > 3:
            return total + row * k
        return total - row

    def forward(self, x):
        k = {number}
        total = torch.zeros(4)
        {loop}
        return total
"""


def _programs() -> list[tuple[str, str, str]]:
    """Every pair of a number, a use and a loop: each number with each use, in one loop after the other."""
    loops, uses, numbers = [*LOOPS], [*USES], [*NUMBERS]
    return [(n, u, loops[(i + j) % len(loops)]) for i, n in enumerate(numbers) for j, u in enumerate(uses)]


def test_the_programs_have_every_pair() -> None:
    found = _programs()
    parts = (NUMBERS, USES, LOOPS)
    for one, other in itertools.combinations(range(len(parts)), 2):
        assert {(p[one], p[other]) for p in found} == {*itertools.product(parts[one], parts[other])}


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("number", "use", "loop"), _programs())
def test_the_program_is_that_of_eager_mode(number: str, use: str, loop: str) -> None:
    source = _PROGRAM.format(number=NUMBERS[number], loop=LOOPS[loop].format(use=USES[use]))
    model = model_of(source, f"/numbers/{number} {use} {loop}.py")
    onnx = to_onnx(model, (up(4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows, scale in ((4, 1.0), (1, 1.0), (3, -1.0), (6, 4.0), (2, -5.0), (9, 0.3)):
        (found,) = onnx.run({"x": up(rows, scale)}).values()
        torch.testing.assert_close(found, model(up(rows, scale)), rtol=1e-4, atol=1e-4)


class Suppression(torch.nn.Module):
    def forward(self, x):
        order = x[:, 0].argsort()
        count = 0
        while order.numel() > 0:
            count += 1
            rest = order[1:]
            order = rest[x[rest, 1] > x[order[0], 1]]
        return torch.tensor(count)


def test_steps_over_as_many_rows_as_tensor_data_leaves_are_counted() -> None:
    onnx = to_onnx(Suppression(), (up(4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows, scale in ((4, 1.0), (1, 1.0), (3, -1.0), (6, 4.0)):
        (found,) = onnx.run({"x": up(rows, scale)}).values()
        assert found == Suppression()(up(rows, scale))


#: What no number is, and what Python says of a number that is compared with it.
NO_NUMBERS = ("None", "'a'", "()", "object")


@pytest.mark.parametrize("other", NO_NUMBERS)
@pytest.mark.parametrize("order", ["k == {}", "k != {}", "{} == k", "{} != k"])
def test_a_number_is_compared_with_what_is_no_number(other: str, order: str) -> None:
    body = f"        return x * 2 if {order.format(other)} else x * 3"
    source = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    source += (
        f"        k = 0\n        for row in x:\n            if row.sum() > 0:\n                k = k + 1\n{body}\n"
    )
    model = model_of(source, f"/numbers/{order}{other}.py")
    onnx = to_onnx(model, (up(4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    (found,) = onnx.run({"x": up(3)}).values()
    torch.testing.assert_close(torch.as_tensor(found), model(up(3)))


class Runs(torch.nn.Module):
    """The length of the last run: there is none before the first row."""

    def forward(self, x):
        n, before = 0, None
        for v in (x[:, 0] > 0).tolist():
            n = n + 1 if v == before else 1
            before = v
        return x * n


def test_a_number_is_compared_with_that_of_the_step_before_where_there_may_be_none() -> None:
    onnx = to_onnx(Runs().eval(), (torch.randn(6, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 3, 7, 12):
        x = torch.randn(rows, 4)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(torch.as_tensor(found), Runs()(x))
