"""What a model asks of the type and identity of its numbers has the answer of eager mode, or is refused."""

# ruff: noqa: UP032 - what users write

from __future__ import annotations

import collections
import copy
import dataclasses
import linecache
import random
import re
from typing import Any

import pytest
import torch
from control_flow_program import SIGNS, Programs, up

from exportguard import ExportGuardError, RewriteError, to_onnx, transform_method

RIGHT = Programs()
REFUSED = Programs()


@dataclasses.dataclass
class Point:
    kind: str
    at: Any


Pair = collections.namedtuple("Pair", ["first", "second"])


class Tuple(tuple):
    """A tuple of the model's own."""


class AsksForTrueItself(torch.nn.Module):
    def forward(self, x):
        is_large = bool(x.sum() > 0)
        x = x * 2 if is_large is True else x - 1
        return x + 3 if bool(x.max() > 2) is not False else x


RIGHT.add()(AsksForTrueItself)


@RIGHT.add()
class ATensorIsNotTrueItself(torch.nn.Module):
    def forward(self, x):
        y = x * 2 if (x.sum() > 0) is True else x - 1
        return y if x.sum() > 0 else y * 3


@RIGHT.add()
class AsksForTypes(torch.nn.Module):
    def forward(self, x):
        n, total = 0, 0.0
        for row in x:
            n += 1 if row.sum() > 0 else 0
            total += row.sum().item()
        if isinstance(n, int) and type(total) is float:
            x = x * 2
        if isinstance(n, torch.Tensor) or isinstance(bool(x.sum() > 0), torch.Tensor | float):
            x = x * 100
        return x * n + total


@RIGHT.add()
class AsksInAFunctionThatNothingStops(torch.nn.Module):
    def scaled(self, x, by):
        if isinstance(by, torch.Tensor):
            return x * by.sum() * 100
        return x * by + 1 if isinstance(by, int | float) else None

    def forward(self, x):
        return self.scaled(x, x.max().item() if x.sum() > 0 else 2.0)


@RIGHT.add()
class MatchesTrueAndFalse(torch.nn.Module):
    def forward(self, x):
        match bool(x.sum() > 0):
            case True:
                return x * 2
            case False:
                return x * 3


@RIGHT.add()
class MatchesPairs(torch.nn.Module):
    def forward(self, x):
        match (bool(x.sum() > 0), len(x) > 100, int(x.abs().max())):
            case (True, False, 0 | 1):
                return x + 1
            case (_, True, *_):
                return x + 2
            case (True, _, n) if n > 3:
                return x + n
            case _:
                return x + 4


@RIGHT.add()
class MatchesDicts(torch.nn.Module):
    def forward(self, x):
        match {"positive": bool(x.sum() > 0), "n": int(x.abs().max()), "more": 1}:
            case {"positive": True, "n": n, **rest}:
                return x * n + len(rest)
            case {"positive": False}:
                return x - 1
        return x * 7


@RIGHT.add()
class MatchesClasses(torch.nn.Module):
    def forward(self, x):
        match Point("row", x.sum().item()):
            case Point("column", _):
                return x * 100
            case Point(kind="row", at=float(at)) if at > 1:
                return x * at
            case Point(at=torch.Tensor()):
                return x * 1000
            case Point():
                return x - 1


@RIGHT.add()
class MatchesWhereNothingStops(torch.nn.Module):
    def forward(self, x):
        match x.sum().item():
            case int(n):
                return x * 100
            case float(n):
                return x * n


@RIGHT.add()
class TellsOfSizes(torch.nn.Module):
    def forward(self, x):
        assert x.shape[0] < 1000, f"{x.shape[0]} rows of {x.sum()}"
        if x.dim() != 2:
            raise ValueError("{} axes of {}".format(x.dim(), x.shape))
        return x * 2


@RIGHT.add()
class LooksUpByATextOfASize(torch.nn.Module):
    def forward(self, x):
        return x * {"1 rows": 2.0, "3 rows": 3.0}.get(f"{x.shape[0]} rows", 1.0)


@REFUSED.add()
class ComparesATextOfASize(torch.nn.Module):
    def forward(self, x):
        return x * 2 if str(x.shape[0]) == "3" else x


@REFUSED.add()
class CountsDigits(torch.nn.Module):
    def forward(self, x):
        return x * len(f"{x.argmax()}")


@RIGHT.add()
class MatchesAlternativesWithNames(torch.nn.Module):
    def forward(self, x):
        match (bool(x.sum() > 0), 2):
            case (True, n) | (n, True):
                return x * n
        return x


@pytest.mark.parametrize("cls", RIGHT, ids=lambda cls: cls.__name__)
def test_a_number_is_asked_what_it_is(cls: type[torch.nn.Module]) -> None:
    model = cls().eval()
    onnx = to_onnx(model, SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    for (x,) in (*SIGNS, (up(1),)):
        torch.testing.assert_close(onnx.run({"x": x})[onnx.outputs[0].name], model(x))


@pytest.mark.parametrize("cls", REFUSED, ids=lambda cls: cls.__name__)
def test_what_cannot_be_known_is_refused_with_its_line(cls: type[torch.nn.Module]) -> None:
    with pytest.raises(RewriteError, match="test the number itself"):
        to_onnx(cls().eval(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_a_module_has_its_own_names_again() -> None:
    to_onnx(AsksForTrueItself().eval(), SIGNS[0], rewrite="auto")
    assert "isinstance" not in globals()
    assert torch.SymInt.__str__ is object.__str__


class TwoKinds(torch.nn.Module):
    def forward(self, x):
        n = 1
        for row in x:
            if row.sum() > 0:
                n = n + 0.5
        return x * 2 if isinstance(n, int) else x


def test_the_type_of_a_number_of_two_kinds_is_refused() -> None:
    with pytest.raises(
        ExportGuardError, match="int or float, by the path that it came by, cannot be asked for its type"
    ):
        to_onnx(TwoKinds().eval(), SIGNS[0], rewrite="auto")


# ------------------------------------------------------------------------------------------------ random patterns


class _Patterns:
    """Random patterns, and subjects that some of them fit."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def pattern(self, depth: int = 2) -> str:
        if depth == 0 or self._random.random() < 0.35:
            return self._pick(["0", "1", "True", "False", "None", "'a'", "_", self._name(), "int()", "float(_)"])
        inner = [self.pattern(depth - 1) for _ in range(self._random.randint(0, 3))]
        star = [f"*{self._pick(['_', self._name()])}"] if self._random.random() < 0.3 else []
        place = self._random.randint(0, len(inner))
        kinds = [
            f"[{', '.join([*inner[:place], *star, *inner[place:]])}]",
            "{" + ", ".join(f"{key!r}: {part}" for key, part in zip("kmn", inner, strict=False)) + "}",
            f"Point({', '.join(inner[:2])})",
            f"Point(at={self.pattern(depth - 1)})",
            f"Pair({', '.join(inner[:2])})",
            f"Tuple({', '.join(inner[:1])})",
            f"({self._pick(['0', '1', 'True'])} | {self._pick(['2', 'None', '[_, _]'])})",
            f"({self.pattern(depth - 1)}) as {self._name()}",
        ]
        return self._pick(kinds)

    def subject(self, depth: int = 2) -> Any:
        if depth == 0 or self._random.random() < 0.35:
            return self._pick([0, 1, 2, True, False, None, "a", 1.0, 0.5])
        inner = [self.subject(depth - 1) for _ in range(self._random.randint(0, 3))]
        return self._pick(
            [
                inner,
                tuple(inner),
                dict(zip("kmn", inner, strict=False)),
                Point("a", self.subject(0)),
                Pair(1, inner),
                Tuple(inner),
            ]
        )

    def source(self, name: str) -> str:
        """A function with a `match`; what is bound is returned."""
        lines = [f"def {name}(subject):", "    match subject:"]
        for number in range(self._random.randint(1, 4)):
            self._names = 0
            pattern = self.pattern()
            names = [*dict.fromkeys(re.findall(r"\bn\d+", pattern))]
            guard = f" if {self._pick(['True', 'False', f'{names[0]} != 1'])}" if names else ""
            bound = ", ".join(names)
            lines += [f"        case {pattern}{guard}:", f"            return {number}, [{bound}]"]
            if not guard and pattern in ("_", *names):
                break
        return "\n".join([*lines, "    return None"])

    def _pick(self, items: Any) -> Any:
        return self._random.choice(items)

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names - 1}"


def _function(source: str, name: str) -> Any:
    file = f"/patterns/{name}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"Point": Point, "Pair": Pair, "Tuple": Tuple, "__name__": __name__}
    exec(compile(source, file, "exec"), names)
    return names[name]


def test_random_patterns_mean_what_they_mean_in_python() -> None:
    checked = 0
    for seed in range(120):
        patterns = _Patterns(seed)
        name = f"matched_{seed}"
        source = patterns.source(name)
        try:
            function = _function(source, name)
        except SyntaxError:  # a name that is bound twice, or a case behind one that takes everything
            continue
        rewritten = transform_method(function)
        for subject in [patterns.subject() for _ in range(20)]:
            wanted, found = function(copy.deepcopy(subject)), rewritten.func(copy.deepcopy(subject))
            assert repr(found) == repr(wanted), (source, subject)
            checked += wanted is not None
    assert checked > 150
