"""Indices that mix the number of a step with tensors, lists, masks, slices, `...` and `None`: right, or refused.

`python tests/python/rewrites/test_indices_of_loops.py --count 500` makes and checks as many and prints what is wrong.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import pytest
import torch
from drawn_programs import Share, check_by_hand, outcome_of, wrong_of
from random_programs import model_of

from exportguard import ExportGuardError, to_onnx

#: The sizes of the axes of the input, first those that are exported; the loop of a program goes along `t`.
SIZES = tuple({"t": t, "b": b} for t, b in ((4, 3), (2, 5), (1, 2), (7, 3), (3, 2), (4, 3), (5, 1)))

#: Loops, and whether `j + 1` is in bounds in all of their steps.
_LOOPS = {
    "for j in range(n):": False,
    "for j in range(n - 1):": True,
    "for j in range(1, n):": False,
    "for j in range(n - 1, -1, -1):": False,
    "for j, _ in enumerate(v.transpose(0, {axis})):": False,
    "for j in torch.arange(n):": False,
    "while j < n - 2:\n            j += 1": True,
    "while j < n - 1:\n            j += 1": False,
}

#: What names an entry, or some, of the axis of the counter; those behind the last, in a loop that ends before.
_COUNTED = ("j", "j", "j", "j - 1", "-1 - j", "n - 1 - j", "j * 1", "[0, j]", "(j, j - 1)", "[j]", "[[0], [j]]")
_WINDOWS = ("j:", ":j", "j - 1:j + 1", "j:j + 1", ":j + 1", "j::2")
_AHEAD = ("j + 1", "j:j + 2", "j + 1:", "[j + 1, 0]")

#: What stands for another axis; `{a}` is the axis.
_BASIC = (":", ":", "0", "-1", "1:", "v.shape[{a}] - 1", "s", ":v.shape[{a}] - 1", "::2")
_CHOSEN = (
    *("k", "k", "k * 0", "k[:, None]", "[0, 1]", "(1, 0)", "[1]", "[0, v.shape[{a}] - 1]", "[0, s]", "range(2)"),
    *("ar{a}", "ar{a}[:, None]", "m{a}"),
)

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, v):
        k, s, n, j = torch.tensor([1, 0]), (v.sum() > 0).long(), v.shape[{axis}], -1
        out, got, total = {start}, [], torch.zeros(())
        {names}
        {loop}
            {body}
        return {returned}
"""

_WEIGHTED = "total = total * 0.5 + (r.reshape(-1) * torch.arange(1, r.numel() + 1)).sum()"
_VALUES = ("5", "j + 1", "v.mean() + j", "{read} * 2 + 1", "{read} - j", "{read}.mean(0)", "{read}[..., :1]", "0.5 * j")


@dataclass(frozen=True)
class Case:
    """A program and the sizes of its input, or their names."""

    source: str
    shape: tuple[int | str, ...]
    kind: str

    def input(self, sizes: dict[str, int]) -> torch.Tensor:
        shape = [sizes[size] if isinstance(size, str) else size for size in self.shape]
        return torch.randn(shape, generator=torch.Generator().manual_seed(len(self.source)))


class _Draw:
    """The choices of one program."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._choose = self._random.choice
        self.rank = self._choose((2, 2, 3, 3, 4))
        self.axis, self.other = self._random.sample(range(self.rank), 2)
        self.loop = self._choose([*_LOOPS])
        self.place = self._choose(("", "", "if (v.sum() + j).sin() > 0:", f"for i in range(v.shape[{self.other}]):"))
        self.kind = self._choose(("read", "write", "update"))

    def case(self) -> Case:
        index = ", ".join(self._loosened(self._parts()))
        lines, returned = self._statements(index)
        if self.place:
            lines = [self.place, *(f"    {line}" for line in lines)]
        source = _PROGRAM.format(
            axis=self.axis,
            names=_names("".join(lines), self.rank),
            start=self._choose(("torch.zeros_like(v)", "v.clone()", "v * 2", "(v * 9).long()")),
            loop=self.loop.format(axis=self.axis),
            body="\n            ".join(lines),
            returned=returned,
        )
        shape = [{self.axis: "t", self.other: "b"}.get(axis, axis + 2) for axis in range(self.rank)]
        return Case(source, tuple(shape), self.kind)

    def _is_in(self, share: float) -> bool:
        return self._random.random() < share

    def _parts(self) -> list[str]:
        """One for each axis, or for two where a mask has them."""
        parts = [self._part(axis) for axis in range(self.rank)]
        pairs = [axis for axis in range(self.rank - 1) if self.axis not in (axis, axis + 1)]
        if pairs and self._is_in(0.2):
            first = self._choose(pairs)
            parts[first : first + 2] = [f"m{first}{first + 1}"]
        return parts

    def _part(self, axis: int) -> str:
        if axis == self.axis:
            return self._choose(self._choose((_COUNTED, _COUNTED, _WINDOWS, _AHEAD if _LOOPS[self.loop] else _COUNTED)))
        if axis == self.other and self.place.startswith("for") and self._is_in(0.5):
            return "i"
        return self._choose(self._choose((_BASIC, _CHOSEN))).format(a=axis)

    def _loosened(self, parts: list[str]) -> list[str]:
        """An index with `...` for whole axes, without those at its end, and with new axes."""
        whole = [place for place, part in enumerate(parts) if part == ":"]
        if whole and self._is_in(0.4):
            parts[self._choose(whole)] = "..."
        elif self._is_in(0.15):
            parts.insert(self._random.randrange(len(parts) + 1), "...")
        while parts[-1] == ":" and len(parts) > 1 and "..." not in parts and self._is_in(0.7):
            parts.pop()
        for new, share in {"None": 0.25, "True": 0.04}.items():
            if self._is_in(share):
                parts.insert(self._random.randrange(len(parts) + 1), new)
        return parts

    def _statements(self, index: str) -> tuple[list[str], str]:
        """The statements of a step, and what the program returns."""
        if self.kind == "read":
            is_list = not self.place and self.loop.startswith("for") and self._is_in(0.5)
            behind = "got.append(r * (j + 1))" if is_list else _WEIGHTED
            return [f"r = v[{index}]", behind], "torch.stack(got)" if is_list else "total"
        operator = self._choose("+*-") if self.kind == "update" else ""
        return [f"out[{index}] {operator}= {self._choose(_VALUES).format(read=f'v[{index}]')}"], "out"


def _names(text: str, rank: int) -> str:
    """The tensors that a program's indices name."""
    made = [f"ar{axis} = torch.arange(v.shape[{axis}])" for axis in range(rank) if f"ar{axis}" in text]
    for name in sorted(set(re.findall(r"\bm\d+\b", text))):
        others = [axis for axis in range(rank) if str(axis) not in name[1:]]
        made.append(f"{name} = v.sum({others}) > 0" if others else f"{name} = v > 0")
    return "\n        ".join(made or ["pass"])


def case_of(seed: int) -> Case:
    """The program of a seed."""
    return _Draw(seed).case()


def source_of(seed: int) -> str:
    """The source of the program of a seed."""
    return case_of(seed).source


def outcome(seed: int) -> str:
    """Whether a program is right, refused, or one that eager mode does not take; else what is wrong."""
    case = case_of(seed)
    dynamic = {axis: size for axis, size in enumerate(case.shape) if isinstance(size, str)}
    return outcome_of(f"/indices/{seed}.py", case.source, [*map(case.input, SIZES)], dynamic, least=5)


#: Indices by what each is there for, in a loop whose counter is below both sizes of `v`, (t, t).
_READ = ("v[ar, j]", "v[k, j]", "v[..., k, j]", "v[None, k, j]", "v[[0, 1], j]", "v[:, [0, j]]", "v[k[:, None], j]")
_VIEWS = ("v[..., None, j, :]", "v[None, ..., j, :]", "v[..., j, None, :]", "v[True, :, j]", "v[j, [[0], [j]]]")
_WRITTEN = ("o[k, j] = 1.0", "o[ar, j] = v[j]", "o[k, j] += 1", "o[mask, j] = 5", "o[..., k, j] = 3 * j")
_LISTED = (
    *("o[:, (j, j - 1)] = v[:, (j, j - 1)]", "o[True, :, j] -= j", "o[mask, j] *= v[mask, j]", "o[[0, s], j] = j"),
    "o[k] = j",
)
_MASKS = ("v[None][j * 0, mask, mask]", "v[None][j * 0, v[0] > -9, mask | True]", "v[j, mask]", "v[j:, mask]")
_NARROW = ("v.narrow(1, j, 1)", "torch.narrow(v, dim=-1, start=j, length=1)", "v[j].narrow(0, j, 1)")

_TOGETHER = """
import torch


class Model(torch.nn.Module):
    def forward(self, v):
        ar, k, s, mask = torch.arange(len(v)), torch.tensor([1, 0]), (v > 99).sum(), v[0] > 0
        o, total = torch.zeros_like(v), torch.zeros(())
        for j in range(len(v)):
            {statements}
        return o + total
"""


def _read_ones(reads: tuple[str, ...]) -> list[str]:
    return [f"r = {read}; {_WEIGHTED}" for read in reads]


@pytest.mark.parametrize(
    "statements", [*map(_read_ones, (_READ, _VIEWS, _MASKS, _NARROW)), _WRITTEN, _LISTED], ids=lambda found: found[0]
)
def test_each_of_these_is_right(statements: list[str]) -> None:
    model = model_of(_TOGETHER.format(statements="\n            ".join(statements)), "/indices/together.py")
    example = torch.randn(4, 4)
    onnx = to_onnx(model, (example,), dynamic_shapes=({0: "t", 1: "t"},), rewrite="auto")
    for size in (4, 2, 3, 7):
        v = torch.randn(size, size)
        assert wrong_of(onnx, {"v": v}, model(v)) == ""


def test_what_is_narrowed_by_a_loop_is_no_view_to_write_into() -> None:
    model = model_of(_TOGETHER.format(statements="o.narrow(1, j, 1).fill_(j)"), "/indices/narrow.py")
    with pytest.raises(ExportGuardError, match="changes in place under another name"):
        to_onnx(model, (torch.randn(4, 4),), dynamic_shapes=({0: "t", 1: "t"},), rewrite="auto")


#: One of 50 programs of a bigger grid, ten of them at a time: some are none in eager mode, the others are right or, at
#: times, refused.
_SHARE = Share(count=1500, every=50, at_once=5, right=3)


@pytest.mark.thinned(10)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_indices_of_loops_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
