"""Texts with numbers of tensor data in them: told as they are, refused where the model looks at their characters."""

# ruff: noqa: UP031, UP032 - what users write

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from control_flow_program import SIGNS, Programs, check, up
from random_programs import model_of

from exportguard import RewriteError, to_onnx

RIGHT = Programs()
REFUSED = Programs()


@RIGHT.add()
class TellsInAnError(torch.nn.Module):
    def forward(self, x):
        if x.max() > 100:
            raise ValueError(f"too large: {x.max():.3f} of {x.shape}")
        return x * 2 if x.sum() > 0 else x


@RIGHT.add()
class KeepsItForLater(torch.nn.Module):
    def forward(self, x):
        told = []
        if x.sum() > 0:
            x = x * 2
        told.append("sum %s" % x.sum() + ", " + str(x.mean()) + " {}".format(x.shape[0]))
        return x


@RIGHT.add()
class ComparesATextOfNumbersThatPythonKnows(torch.nn.Module):
    def forward(self, x):
        weights = {"layer_0": 2.0, "layer_1": 3.0}
        for i in range(2):
            x = x * weights[f"layer_{i}"]
        if x.sum() > 0 and f"{x.dim():>2}" == " 2" and repr("a") == "'a'" and f"{'b'!r}" == "'b'":
            x = x + 1
        return x


@REFUSED.add()
class ComparesAnFString(torch.nn.Module):
    def forward(self, x):
        n = 0
        for row in x:
            if row.sum() > 0:
                n += 1
        return x * 2 if f"{n > 1}" == "True" else x


@RIGHT.add()
class LooksUpByAText(torch.nn.Module):
    def forward(self, x):
        n = 0
        if x.sum() > 0:
            n = 1
        return x * {"layer_0": 2.0}.get(f"layer_{n}", 3.0)


@RIGHT.add()
class ModulesByName(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleDict({f"h{k}": torch.nn.Linear(4, 4) for k in (0, 1, 2, 10)})

    def forward(self, x):
        k = int(x.sum().abs()) % 3
        near = {"a-1_b": 1.5, "a0_b": 2.5, "a00_b": 7.0, "a1_b": 3.5, "a1": 9.0}
        return self.blocks[f"h{k}"](x) * near["a" + str(k % 2) + "_b"] + near.get("a%s" % 1, 0.0)


@RIGHT.add()
class LooksUpByATextInALoop(torch.nn.Module):
    def forward(self, x):
        n, names = 0, {"layer_0": 2.0, "layer_1": 3.0}
        for row in x:
            n = n + names[f"layer_{int(row.sum() > 0)}"]
        return x * n


@REFUSED.add()
class LooksUpByTwoNumbers(torch.nn.Module):
    def forward(self, x):
        n = int(x.sum() > 0)
        return x * {"0_0": 2.0, "1_1": 3.0}.get(f"{n}_{n}", 3.0)


@REFUSED.add()
class LooksUpByAFormat(torch.nn.Module):
    def forward(self, x):
        n = int(x.sum() > 0)
        return x * {"00": 2.0, "01": 3.0}[f"{n:02d}"]


@REFUSED.add()
class AsksForTheStart(torch.nn.Module):
    def forward(self, x):
        y = x if x.sum() > 0 else -x
        return y * 2 if str(y.sum()).startswith("tensor(-") else y


@REFUSED.add()
class ComparesAFormat(torch.nn.Module):
    def forward(self, x):
        y = x if x.sum() > 0 else -x
        return y * 2 if "{}".format(str(y.sum())) == "1" else y


@REFUSED.add()
class ComparesAPercent(torch.nn.Module):
    def forward(self, x):
        y = x if x.sum() > 0 else -x
        return y * 2 if "%.1f" % y.sum() == "1.0" else y


@REFUSED.add()
class ComparesADynamicSize(torch.nn.Module):
    def forward(self, x):
        y = x if x.sum() > 0 else -x
        return y * 2 if f"{x.shape[0]}" == "3" else y


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_what_is_only_told_is_right(program: type[torch.nn.Module]) -> None:
    check(program)


@pytest.mark.parametrize("program", REFUSED, ids=lambda cls: cls.__name__)
def test_what_depends_on_the_characters_is_refused(program: Any) -> None:
    with pytest.raises(RewriteError, match=r"line \d+ of .*: a text with"):
        to_onnx(program(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite=program)


def test_an_export_by_itself_refuses_them_as_well() -> None:
    with pytest.raises(RewriteError, match="a text with"):
        to_onnx(ComparesAnFString(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")


#: Plain texts that are searched for what a size is, or a number of tensor data.
SEARCHED = {
    "in": "{text} in '5 6 7'",
    "not in": "{text} not in names",
    "in a variable": "{text} in names",
    "end": "'rows 5'.endswith({text})",
    "start": "names.startswith({text})",
    "find": "names.find({text}) >= 0",
    "find backwards": "names.rfind({text}) >= 0",
    "count": "'5 6 7'.count({text}) > 0",
    "index": "'0 1 2 3 4 5 6 7 8 9'.index({text}) > 8",
    "split": "len('5 6 7'.split({text})) > 1",
    "split backwards": "len(names.rsplit({text})) > 1",
    "partition": "names.partition({text})[1] != ''",
    "prefix": "names.removeprefix({text}) != names",
    "suffix": "names.removesuffix({text}) != names",
    "replace": "names.replace({text}, '') != names",
    "strip": "'5 6 7'.strip({text}) != '5 6 7'",
}
TEXTS = {"a size": "f'{n}'", "a variable": "text", "data": "str(k)"}

_SEARCH = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        n, names, k = x.shape[0], "5 6 7", int((x > 0).sum())
        text = str(n)
        if {test}:
            x = x * 2
        return x
"""


@pytest.mark.parametrize(("search", "text"), [*zip(SEARCHED, itertools.cycle(TEXTS), strict=False)])
def test_a_plain_text_is_not_searched_for_them(search: str, text: str) -> None:
    test = SEARCHED[search].format(text=TEXTS[text])
    model = model_of(_SEARCH.format(test=test), f"/search/{search} {text}.py")
    with pytest.raises(RewriteError, match=r"line \d+ of .*: a text with"):
        to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_a_plain_text_is_searched_for_others_and_a_message_for_anything() -> None:
    source = _SEARCH.format(test="'5 6'.find(str(len(names))) >= 0 and names.split(' ')[0] in names and 1 + 1 == 2")
    source = source.replace("return x", "print('rows: {}'.replace('{}', text), text.rjust(5))\n        return x")
    onnx = to_onnx(model_of(source, "/search/others.py"), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    x = up(4)
    (found,) = onnx.run({"x": x}).values()
    torch.testing.assert_close(found, 2 * x)
