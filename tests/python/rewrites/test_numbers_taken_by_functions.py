"""Numbers of tensor data where torch or Python read their values: `torch.tensor`, `F.pad`, `len`, cached functions."""

from __future__ import annotations

import contextlib

import pytest
import torch
from drawn_programs import model_with, require_right

from exportguard import ExportGuardError, to_onnx

_HEAD = """
import functools

import torch


@functools.lru_cache(maxsize=8)
def times(t, n):
    return t * n


class Positive:
    def __init__(self):
        self.count = 0

    def put(self, number):
        if number > 0:
            self.count += 1

    def __len__(self):
        return self.count


class Model(torch.nn.Module):
    def forward(self, x):
"""

RIGHT = {
    "a tensor of tensors": "return torch.tensor([0.5, x[0, 0], x[-1, 1]])",
    "a tensor of tensors of integers": "return torch.tensor([[x[0, 0], x[0, 1].long()], [1, 2.5]])",
    "a tensor of pairs": """
        pairs = []
        for i in range(x.shape[0]):
            a, b = divmod(int(x[i].abs().sum() * 3), 2)
            pairs.append([a, b])
        return torch.tensor(pairs)
    """,
    "a tensor of pairs of two kinds": """
        pairs = []
        for i, row in enumerate(x):
            pairs.append((i, float(row.sum())))
        return torch.tensor(pairs)
    """,
    "a tensor of a tensor is another one": """
        if x.sum() > 0:
            x = x * 2
        y, z = torch.tensor(x), torch.as_tensor(x * 1)
        y += 1
        z += x.shape[0]
        return x + y
    """,
    "numbers as a tensor": "return torch.as_tensor([x[0, 0], 2.0]) + x.new_tensor([x.sum(), x.shape[0]])",
    "padding": "return torch.nn.functional.pad(x, (1, 2, -1, 1), value=x.mean().item())",
    "padding by place": 'return torch.nn.functional.pad(x.long(), (0, 1), "constant", int(x.sum()))',
    "a length": """
        positive = Positive()
        for row in x:
            positive.put(row[0])
        return x.sum() / len(positive) if len(positive) > 1 else x.sum()
    """,
    "a length as a truth": """
        positive = Positive()
        for row in x:
            positive.put(row[0])
        if positive:
            return x.sum() * len(positive)
        return x.sum() - 1
    """,
    "a shape of a number": """
        kept = x[x[:, 0] > 0]
        count = None
        if count is None:
            count = int(kept.abs().max()) + 1 if kept.numel() > 0 else 0
        return kept.new_ones(kept.shape[:0] + (count,) + kept.shape[1:])
    """,
    "a shape of two numbers": """
        if x.sum() > 0:
            n = int(x.abs().max()) + 1
            return x.new_ones((n,) + x.shape[1:] + (1,)) + n
        return x.new_zeros(x.shape + (1,))
    """,
    "a tuple that is no shape": """
        parts = (x,) + tuple(x[:, i] for i in range(2))
        parts = parts + (x.sum(),) + ("a",)
        return parts[0] + parts[3] * len(parts[4])
    """,
    "a cached function of two tensors": """
        if x.sum() > 0:
            x = x + 1
        return times(x, x.shape[0]) - times(x * 3, x.shape[0])
    """,
}


def _model(name: str, body: str) -> torch.nn.Module:
    return model_with(f"/taken/{name}.py", body, _HEAD)


@pytest.mark.parametrize("name", RIGHT)
def test_a_number_is_taken_as_in_eager_mode(name: str) -> None:
    require_right(_model(name, RIGHT[name]))


#: Lists that may stay empty, and how torch.tensor is called.
LISTS = ("i", "(i, i + 1)", "row[0].long()", "float(row[0])", "(float(row[0]), 2.0)", "int(row[0])", "row[0] > 1")
CALLS = (
    "torch.tensor(found)",
    "torch.tensor(found, dtype=torch.int32)",
    "torch.LongTensor(found)",
    "torch.tensor([found])",
    "torch.as_tensor(found)",
    "x.new_tensor(found)",
)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("element", LISTS)
def test_a_list_without_elements_is_as_in_eager_mode_or_ends_the_run(element: str, call: str) -> None:
    body = f"""
        found = []
        for i, row in enumerate(x):
            if row.sum() > 0:
                found.append({element})
        return {call}
    """
    model = _model("no elements", body)
    onnx = to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (torch.randn(5, 2), torch.ones(1, 2), -torch.ones(4, 2)):
        wanted, answers = model(x), []
        with contextlib.nullcontext() if wanted.numel() else contextlib.suppress(RuntimeError):
            answers = [*onnx.run({"x": x}).values()]
        for answer in answers:
            torch.testing.assert_close(answer, wanted)


REFUSED = {
    "a step": (
        "y = torch.ones(len(x))\nfor p in range(2, len(x)):\n    y[p * p :: p] = 0.0\nreturn y",
        r"a slice has a step.*% step == 0",
    ),
    "a float among integers": (
        "return torch.nn.functional.pad(x.long(), (0, 1), value=x.mean().item())",
        r"F\.pad fills a tensor of integers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_graph_takes_is_told(name: str) -> None:
    body, told = REFUSED[name]
    with pytest.raises(ExportGuardError, match=rf"(?s)line \d+.*{told}"):
        to_onnx(_model(name, body), (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")
