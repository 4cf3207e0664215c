"""Lists of tensors of several sizes that loops fill: joined, padded, gone through and indexed as in eager mode.

`python tests/python/rewrites/test_packed_lists.py --count 200` makes and checks as many programs and prints what is
wrong.
"""

from __future__ import annotations

import random

import pytest
import torch
from drawn_programs import Share, check_by_hand, outcome_of, wrong_of
from random_programs import model_of

from exportguard import ExportGuardError, to_onnx

#: The sizes of the input, first those that are exported.
SHAPES = ((2, 5, 3), (1, 4, 3), (3, 2, 3), (4, 7, 3), (2, 1, 3), (5, 9, 3))

_LOOPS = {
    "for i in range(x.shape[0]):": "row, k = x[i], ks[i]",
    "for i, row in enumerate(x):": "k = ks[i]",
    "for i, (row, k) in enumerate(zip(x, ks)):": "pass",
    "for i, k in enumerate(ks.tolist()):": "row = x[i]",
}
_ELEMENTS = (
    *("row[:k]", "row[:k] * 2", "row[k:]", "row[row[:, 0] > 0]", "row[-1:].expand(k, -1)", "row[:k].flip(0)"),
    *("torch.repeat_interleave(row, torch.clamp(k + 0 * row[:, 0], 0, 2).long(), dim=0)", "row[:k].cumsum(0) + i"),
    "torch.cat([row[:k], row[:1]])",
)
_OTHERS = ("row[:k, 0]", "torch.arange(k) + i", "row.T[:, :k]", "row[None, :k]")
_APPENDED = (
    *("outs.append({e})", "outs.append({e})", "outs += [{e}]", "outs.append({e}); outs.append(row[:1])"),
    *("if k > 1:\n                outs.append({e})", "if row.sum() > 0:\n                outs.append({e} + 1)"),
)
_JOINED = (
    *("torch.cat(outs, {axis})", "torch.cat(outs[::-1], {axis})", "torch.cat(outs[1:] + outs[:1], {axis})"),
    *("torch.stack([out.sum() for out in outs])", "sum(out.sum() * out.numel() for out in outs)", "outs[-1].sum() + 1"),
    *("sum(out.shape[{axis}] ** 2 for out in outs) + x", "outs[0] * 2", "max(out.shape[{axis}] for out in outs) + x"),
)
_PADDED = (
    *("pad_sequence(outs)", "pad_sequence(outs, batch_first=True, padding_value=-1.5)"),
    *("rnn.pad_sequence(outs, True, 0.0, 'left')", "torch.nn.utils.rnn.pad_sequence(outs).shape[0] + x"),
)

_PROGRAM = """
import torch
from torch.nn.utils import rnn
from torch.nn.utils.rnn import pad_sequence


class Model(torch.nn.Module):
    def forward(self, x):
        ks = (x[:, :, 0] > 0.3).sum(1)
        outs = {start}
        {loop}
            {row}
            {appended}
        return {returned}
"""


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    is_plain = draw.random() < 0.7
    element = draw.choice(_ELEMENTS if is_plain else _OTHERS)
    appended = draw.choice(_APPENDED if is_plain else _APPENDED[:3]).format(e=element)
    axis = 0 if is_plain or ("T" not in element and "None" not in element) else 1
    returned = draw.choice((*_JOINED, *(_PADDED if not axis else ())))
    loop = draw.choice([*_LOOPS])
    return _PROGRAM.format(
        start=draw.choice(("[]", "[]", "[x[0]]")) if is_plain else "[]",
        loop=loop,
        row=_LOOPS[loop],
        appended=appended,
        returned=returned.format(axis=axis),
    )


def outcome(seed: int) -> str:
    """Whether a program is right, refused, or one that eager mode does not take; else what is wrong."""
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for shape in SHAPES]
    return outcome_of(f"/packed/{seed}.py", source_of(seed), inputs, {0: "b", 1: "n"})


_MODEL = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x):
        ks = (x[:, :, 0] > 0).sum(1).clamp(min=1)
        {}
"""

#: Lists as models have them, by what is done with them.
_LISTS = {
    "the regulator of lengths of FastSpeech 2": """
        outs = []
        for row, k in zip(x, ks):
            steps = []
            for i, vector in enumerate(row):
                steps.append(vector.expand(max(int(k), 0), -1))
            outs.append(torch.cat(steps, 0))
        longest = max([outs[i].size(0) for i in range(len(outs))])
        padded = list()
        for i, out in enumerate(outs):
            padded.append(F.pad(out, (0, 0, 0, longest - out.size(0)), "constant", 0.0))
        return torch.stack(padded)
    """,
    "what a queue holds, in parts": """
        parts = []
        while x.shape[1] > 0:
            k = min(3, x.shape[1])
            parts.append(x[:, :k] * k)
            x = x[:, k:]
        return torch.cat(parts, 1)
    """,
    "two lists of a dictionary": """
        found = {"on": [], "off": []}
        for row in x:
            mask = row[:, 0] > 0
            found["on"].append(row[mask])
            found["off"].append(row[~mask])
        return torch.cat(found["off"] + found["on"])
    """,
    "windows that are whole": """
        parts = []
        for i in range(x.shape[1] - 1):
            parts.append(x[:, i : i + 2])
        return torch.stack(parts, 1).flatten(1, 2) + torch.cat(parts, 1)
    """,
}


@pytest.mark.parametrize("text", _LISTS.values(), ids=_LISTS)
def test_a_list_as_models_have_it_is_right(text: str) -> None:
    model = model_of(_MODEL.format(text.strip()), "/packed/lists.py")
    onnx = to_onnx(model, (torch.randn(SHAPES[0]),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    for shape in [(b, max(n, 2), width) for b, n, width in SHAPES]:
        x = torch.randn(shape)
        assert wrong_of(onnx, {"x": x}, model(x)) == ""


def test_elements_of_several_sizes_are_not_stacked() -> None:
    text = (
        "parts = [row[:k] for row, k in zip(x, ks)]\n        return torch.stack(parts).sum() + torch.cat(parts).sum()"
    )
    model = model_of(_MODEL.format(text), "/packed/stack.py")
    x = torch.randn(3, 4, 3)
    x[:, :2, 0], x[:, 2:, 0] = 1.0, -1.0
    onnx = to_onnx(model, (x,), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    assert wrong_of(onnx, {"x": x}, model(x)) == ""
    x[0, 1, 0], x[1, 2, 0] = -1.0, 1.0  # one, three and two rows: as many as three times two
    with pytest.raises(RuntimeError):
        model(x)
    with pytest.raises(RuntimeError):
        onnx.run({"x": x})


def test_a_list_does_not_leave_the_branch_that_fills_it() -> None:
    text = """
        parts = []
        if x.sum() > 0:
            for row, k in zip(x, ks):
                parts.append(row[:k])
        return torch.cat([x[0], *parts])
    """
    model = model_of(_MODEL.format(text.strip()), "/packed/branch.py")
    with pytest.raises(ExportGuardError, match=r"branch\.py:\d+"):
        to_onnx(model, (torch.randn(SHAPES[0]),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")


def test_a_while_does_not_read_the_list_that_it_packs() -> None:
    text = """
        parts = []
        while len(parts) < 3 and x.shape[1] > 1:
            parts.append(x * 2)
            x = x[:, 1:]
        return torch.cat(parts, 1)
    """
    model = model_of(_MODEL.format(text.strip()), "/packed/length.py")
    with pytest.raises(ExportGuardError, match="reads a list that it appends to"):
        to_onnx(model, (torch.randn(SHAPES[0]),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")


#: One of 40 programs of a bigger grid, eight of them at a time.
_SHARE = Share(count=640, every=40, at_once=4, right=2)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_packed_lists_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
