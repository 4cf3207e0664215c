"""`break`, `continue` and `return` on tensor data inside of blocks; comprehensions that are loops; answers of torch."""

# ruff: noqa: B007, RUF005 - the programs are what users write

from __future__ import annotations

import textwrap

import pytest
import torch
from control_flow_program import up
from random_programs import model_of
from torch.nn import Module
from torch.utils import _pytree as pytree

from exportguard import to_onnx


class BreakTryElse(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for row in x:
            try:
                h = h + row
            except ValueError:
                h = h * 0
            else:
                if h.sum() > 3:
                    break
                h = h * 0.9
        return h


class BreakTryBody(Module):
    def forward(self, x):
        h = torch.zeros(4)
        n = 0
        for row in x:
            try:
                if row.sum() > 2:
                    break
                if row[0] < -1:
                    continue
                h = h + row
            finally:
                n += 1
        return h, n


class ReturnInWith(Module):
    def forward(self, x):
        with torch.no_grad():
            s = x.sum()
            if s > 1:
                return x * 2
            if s < -1:
                return x * 3
            s = s + 1
        return x * s


class ReturnInWithLoop(Module):
    def forward(self, x):
        with torch.no_grad():
            for row in x:
                if row.sum() > 1:
                    return row
            y = x.sum(0)
        return y - 1


class TryFinallyElse(Module):
    def forward(self, x):
        h = x.sum(0)
        try:
            h = h * 2
            if h[0] > 1:
                return h
        except RuntimeError:
            h = h * 0
        else:
            if h[1] > 0:
                return h - 1
            h = h + 5
        finally:
            h = h + 100
        return h


class TryElseOnly(Module):
    def forward(self, x):
        h = x.sum(0)
        try:
            h = h * 2
        except RuntimeError:
            return h
        else:
            if h[1] > 0:
                return h - 1
            h = h + 5
        return h * 10


class WithBreakContinue(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for i in range(x.shape[0]):
            with torch.no_grad():
                if x[i].sum() > 2:
                    if x[i, 0] > 1:
                        break
                    h = h - 1
                    continue
                h = h + x[i]
            h = h * 0.5
        return h


class InTensor(Module):
    def forward(self, x):
        y = torch.zeros(10)
        for k in range(10):
            if k in x:
                y[k] = 1
        return y + (1 if 3 not in x else 0)


class InTuple(Module):
    def forward(self, x):
        y = torch.zeros(3)
        for v in x:
            if v in (2, 3):
                y[0] += 1
            elif v not in [5, 6, 7]:
                y[1] += 1
            else:
                y[2] += v
        return y


class KMeansFor(Module):
    def forward(self, x):
        c = torch.stack([x.min(0).values, x.max(0).values])
        prev = None
        for it in range(10):
            a = ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1)
            if prev is not None and torch.equal(a, prev):
                break
            prev = a
            c = torch.stack([x[a == k].mean(0) if (a == k).any() else c[k] for k in range(2)])
        return c, a


class WalrusComp(Module):
    def forward(self, x):
        return torch.stack([y * 2 for row in x if (y := row.sum()) > 0] + [torch.tensor(1.0)])


class WalrusAfter(Module):
    def forward(self, x):
        y = torch.tensor(-1.0)
        z = [y + 1 for row in x if (y := row.sum()) > 0]
        return torch.stack([torch.tensor(0.0)] + z), y


PROGRAMS = (
    *(BreakTryElse, BreakTryBody, ReturnInWith, ReturnInWithLoop, TryFinallyElse, TryElseOnly, WithBreakContinue),
    *(WalrusComp, WalrusAfter),
)


class UntilTheyStay(Module):
    def forward(self, x):
        centers = x[:2] * 1.0
        steps = 0
        while steps < 30:
            steps += 1
            nearest = torch.cdist(x, centers).argmin(1)
            new = centers.clone()
            for k in range(2):
                own = nearest == k
                if own.any():
                    new[k] = x[own].mean(0)
            if torch.allclose(new, centers):
                break
            centers = new
        return centers, steps


def require_equal(model: Module, inputs: list[torch.Tensor]) -> None:
    """Exports a model and compares it with eager mode."""
    onnx = to_onnx(model, (inputs[0],), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in inputs:
        for found, wanted in zip(onnx.run({"x": x}).values(), pytree.tree_leaves(model(x.clone())), strict=True):
            torch.testing.assert_close(found, torch.as_tensor(wanted), check_dtype=False)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_every_way_out_is_right(cls: type[Module]) -> None:
    require_equal(cls(), [up(3), up(1), up(4, -1), up(5, 3), up(2, -4), up(3) - 0.3, torch.zeros(0, 4)])


@pytest.mark.parametrize("cls", [UntilTheyStay, KMeansFor], ids=lambda cls: cls.__name__)
def test_answers_of_torch_are_tests_on_data(cls: type[Module]) -> None:
    points = [torch.sin(torch.arange(n * 2.0)).reshape(n, 2) * 2 for n in (5, 2, 7)]
    require_equal(cls(), points)


@pytest.mark.parametrize("cls", [InTensor, InTuple], ids=lambda cls: cls.__name__)
def test_in_is_a_test_on_data(cls: type[Module]) -> None:
    require_equal(cls(), [torch.tensor(numbers) for numbers in ([1, 2, 3, 5, 9], [3], [7, 7, 2], [0, 4])])


#: Blocks of which every way leaves them, around the statements that return.
BLOCKS = {
    "with": "with torch.no_grad():",
    "two": "with torch.no_grad(), contextlib.nullcontext():",
    "nested": "with torch.no_grad():\n            with contextlib.nullcontext():",
    "swallowing": "with contextlib.suppress(ValueError):",
    "finally": "try:",
}
RETURNS = {
    "two": "if x.sum() > 1: return x * 2\nreturn x - 1",
    "three": "if x.sum() > 1: return x * 2\nif x.sum() < -1: return x * 3\nreturn x",
    "an else": "if x.sum() > 1:\n    return x * 2\nelif x.sum() < -1:\n    return -x\nelse:\n    return x * 0",
    "in a branch": "if x.sum() > 0:\n    if x.sum() > 1: return x * 2\n    return x * 5\nreturn x",
    "pairs": "if x.sum() > 1: return x * 2, 1\nreturn x, 2",
    "behind an error": "if len(x) == 4: raise ValueError\nif x.sum() > 1: return x * 2\nreturn x - 1",
}


@pytest.mark.parametrize("returns", RETURNS)
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_that_every_way_leaves_gives_a_value_on_each(block: str, returns: str) -> None:
    if returns == "behind an error" and block != "swallowing":
        returns = "two"  # the model itself raises
    depth = 16 if block == "nested" else 12
    inner = textwrap.indent(RETURNS[returns], " " * depth)
    behind = {"finally": "        finally:\n            self.depth = 0\n", "swallowing": "        return x + 7\n"}.get(
        block, ""
    )
    source = (
        "import contextlib\nimport torch\n\nclass Model(torch.nn.Module):\n    def inner(self, x):\n"
        f"        {BLOCKS[block]}\n{inner}\n{behind}\n"
        "    def forward(self, x):\n        return self.inner(x)\n"
    )
    model = model_of(source, f"/blocks/{block} {returns}.py")
    require_equal(model, [up(3), up(1), up(4, -1), up(5, 3), up(2, -4), up(3) - 0.3])
