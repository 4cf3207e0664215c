"""Variables that are None until data give them a value, and functions that return None where data say so.

`python test_variables_that_may_be_none.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import random
import re
import textwrap

import pytest
import torch
from drawn_programs import LOOPS, Share, check_by_hand, model_with, outcome_at_rows, require_right

from exportguard import RewriteError, to_onnx

#: What a variable is given in a step, and what has a meaning for it: made of it, and asked of it.
KINDS = (
    ("i", "{v} + 1", "{v} > 2", "x[{v} - 1].sum()"),
    ("i * 0.5", "{v} - 0.25", "{v} > 1", "x.sum() * {v}"),
    ("row", "{v} + row", "{v}.sum() > 0", "{v}.sum() + x.mean()"),
    ("row.clone()", "torch.maximum({v}, row)", "({v} > row).any()", "({v} * x).sum()"),
    ("row.sum()", "{v} * 0.5", "row.sum() > {v}", "x.max() - {v}"),
    ("(row, i)", "({v}[0] + 1, i)", "{v}[1] > 2", "{v}[0].sum() + {v}[1]"),
    ("float(row.sum())", "max({v}, 0.5)", "{v} > 1", "x.mean() * {v}"),
)
TESTS = ("row[0] > 0", "row.sum() > 0.5", "row[1] < row[0]", "total > 1", "i == 2", "i % 2 == 0")
STEPS = (
    "if {test} and {v} is None:\n    {v} = {value}",
    "if {v} is None or {asked}:\n    {v} = {value}",
    "if {test}:\n    {v} = {value}",
    "if {test}:\n    {v} = {value}\nelse:\n    {v} = None",
    "if {test}:\n    if {v} is None:\n        {v} = {value}\n"
    "elif {v} is not None:\n    total = total + {used}\n    {v} = None",
    "{v} = {value} if {test} else {v}",
    "{v} = {value} if {test} else None",
    "if {v} is not None:\n    total = total + {used}\n    if {test}:\n        {v} = None\nelse:\n    {v} = {value}",
    "if {v} is not None and {asked}:\n    {v} = {made}",
    "{v} = {value} if {v} is None else {made}",
    "total = total + (1.0 if {v} is None else {used})",
    "if not ({v} is None):\n    total = total * 0.5\nif {test}:\n    {v} = {value}",
    "{v}, total = ({value} if {test} else None), total + (0.0 if {v} is None else {used})",
    "if {test}:\n    {v} = {value}\n    break",
    "if {v} is None and {test}:\n    {v} = {value}\n    continue\ntotal = total + row.sum()",
    "{v} = self.found(row, {value})",
    "w = {v}\nif {test}:\n    {v} = {value}\nif w is not None:\n    total = total + 1",
)
ENDS = (
    "if {v} is None:\n    return x.sum(0) + total\nreturn {used} + x.sum(0)",
    "return total + ({used} if {v} is not None else x.min()) + x[0]",
    "total = total + (0.0 if {v} is None else {used})\nreturn x * total",
    "if {v} is not None:\n    total = total + {used}\nreturn x + total",
    "return x[0] + self.told({v}, total) if {v} is not None else x[-1] + total",
    "if {v} is not None and {last}:\n    {v} = None\nreturn x - 1 if {v} is None else x + total",
)
_HELPERS = """\
    def found(self, row, value):
        if {test}:
            return value
        {nothing}

    def told(self, value, total):
        return total * 2
"""

_SHARE = Share(count=3000, every=83, at_once=4, right=2)


def source_of(seed: int) -> str:
    """The program of a number."""
    draw = random.Random(seed)
    value, made, asked, used = draw.choice(KINDS)
    v = draw.choice(("start", "best", "prev"))
    texts = {"v": v, "value": value, "made": made.format(v=v), "asked": asked.format(v=v), "used": used.format(v=v)}
    steps = [s.format(**texts, test=draw.choice(TESTS)) for s in draw.sample(STEPS, draw.choice((1, 2, 2, 3)))]
    loop = draw.choice(LOOPS)
    if loop == "for row in x:":
        loop = "i = -1\nfor row in x:\n    i += 1"
    if "while" in loop:  # whose step must count before it goes on with the next one
        steps = [step.replace("continue", "i += 1\n    continue") for step in steps]
        loop, steps = loop.replace("\n    i += 1", ""), [*steps, "i += 1"]
    lines = f"{v} = None\ntotal = x.sum() * 0\n{loop}\n{textwrap.indent(chr(10).join(steps), ' ' * 4)}\n"
    lines += draw.choice(ENDS).format(**texts, last="x.sum() > 0")
    test = draw.choice(("row[0] > 0", "row.sum() > 0.5", "row.max() < 1"))
    helpers = _HELPERS.format(test=test, nothing=draw.choice(("pass", "return None")))
    return (
        f"import torch\n\n\nclass Model(torch.nn.Module):\n{helpers}\n"
        f"    def forward(self, x):\n{textwrap.indent(lines, ' ' * 8)}\n"
    )


def outcome(seed: int) -> str:
    """What became of the program of a number."""
    return outcome_at_rows(f"/nones/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_a_variable_that_may_be_none_is_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


@pytest.mark.parametrize(
    "body",
    [
        """
        spans, start = [], None
        for i in range(len(x)):
            if x[i, 0] > 0:
                if start is None:
                    start = i
            elif start is not None:
                spans.append(i - start)
                start = None
        if start is not None:
            spans.append(len(x) - start)
        return torch.tensor(spans, dtype=torch.int64)
        """,
        """
        end = None
        for i, row in enumerate(x):
            if row.sum() > 1:
                end = i
                break
        return x[:end]
        """,
        """
        first = last = None
        for i, v in enumerate(x[:, 0]):
            if v > 0:
                if first is None:
                    first = i
                last = i
        if first is None:
            return x.sum(0)
        return x[first : last + 1].sum(0)
        """,
        """
        prev, cur, total = None, None, 0
        for i in range(len(x)):
            prev, cur = cur, (i if x[i, 0] > 0 else None)
            if prev is not None and cur is not None:
                total += cur - prev
        return x.sum(0) + total
        """,
        """
        i = None
        for k in range(len(x)):
            if i == 1:
                x = x + 1
            if x[k].sum() > 1:
                i = k
        return x.sum(0) if not i else x[i]
        """,
        """
        def pick(row):
            return row * 2 if row.sum() > 0 else None
        outs = []
        for row in x:
            y = pick(row)
            if y is not None:
                outs.append(y)
        return torch.stack(outs) if outs else x[:0]
        """,
        """
        def first(least):
            for i, row in enumerate(x):
                if row.sum() > least:
                    return i
            return None
        def either():
            k = first(1.0)
            if k is not None:
                return k
            return first(0.0)
        k = either()
        return x[k] if k is not None else x.sum(0)
        """,
        """
        v, total = None, x.sum() * 0
        for i, row in enumerate(x):
            if row[0] > 0:
                v = i
            if row[0] > 0 and v > 1:
                total = total + 1
        return x + total if v is not None else x - total
        """,
        """
        i = next((i for i, row in enumerate(x) if row.sum() > 1), None)
        return x if i is None else x[i:]
        """,
        """
        i = 3.0
        k = next((i.sum() for i in x if i[0] > 0 if i[1] > 0), None)
        return x * i if k is None else x * k
        """,
        """
        k = 1
        k = next((i for i, row in enumerate(x) if row.sum() > 0 and i >= k), None)
        return x.sum(0) if k is None else x[k]
        """,
        """
        _pair = 2.0
        def pick(row):
            return row * _pair if row.sum() > 0 else None
        y = pick(x)
        return x + (0.0 if y is None else y.sum())
        """,
        """
        def first(least):
            for i, row in enumerate(x):
                if row.sum() > least:
                    return i
        k = first(
            least=(
                0.5
            ),
        )
        return x.sum(0) if k is None else (x[k]
            + first(
                0.0
            ))
        """,
        """
        pick = lambda rows: rows if rows.sum() > 0 else None
        y = pick(x)
        return y if y is not None else -x
        """,
    ],
)
def test_what_people_write_is_right(body: str) -> None:
    require_right(model_with("/nones/written.py", body))


class _May(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        if x.sum() > 0:
            return x * 2
        return None


class _Uses(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.may = _May()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.may(x)
        if y is not None:
            x = y + 1
        return x


def test_a_module_may_return_none() -> None:
    require_right(_Uses())


def test_a_hook_does_not_see_what_stands_for_none() -> None:
    model = _Uses()
    seen: list[object] = []
    model.may.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with pytest.raises(RewriteError):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert all(one is None or isinstance(one, torch.Tensor) for one in seen)


_PICK = """
def pick(row):
    return row * 2 if row.sum() > 0 else None
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("outs = [pick(row) for row in x]\nreturn torch.stack([o for o in outs if o is not None])", "None"),
        ("return torch.stack([o for o in map(pick, x) if o is not None])", "None"),
        ("return torch.stack(list(filter(pick, x.unbind(1))))", "None"),
        ("outs = list(map(pick, x.unbind(1)))\nreturn x if outs[0] is None else outs[0]", "None"),
        ("return max(x.unbind(1), key=pick)", "None"),
        ("start, _has_start = None, x.sum(0)\nfor row in x:\n    if row[0] > 0:\n        start = row\n"
         "return _has_start if start is None else start", "`start`"),
        ("h = None\nfor row in x:\n    if row[0] > 0:\n        h = row\n    d = {'h': h}\n"
         "return x if d['h'] is None else x + h", "`h` is None where tensor data say so"),
        ("last = None\nfor row in x:\n    if row[0] > 0:\n        last = row\n"
         "try:\n    return last + x[0]\nexcept TypeError:\n    return x[0]", "may catch it"),
        ("state = {'a': None}\nfor row in x:\n    if row[0] > 0:\n        state['a'] = row\n"
         "return x.sum(0) if state['a'] is None else state['a']", "`state['a']`"),
    ],
)  # fmt: skip
def test_what_no_graph_can_tell_is_refused(body: str, said: str) -> None:
    model = model_with("/nones/refused.py", f"{_PICK}\n{body}")
    with pytest.raises(RewriteError, match=re.escape(said)):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_a_run_ends_where_python_would_raise() -> None:
    body = "last = None\nfor row in x:\n    if row[0] > 0:\n        last = row\nreturn last + x[0]"
    model = model_with("/nones/ends.py", body)
    x = torch.tensor([[1.0, 2.0], [-1.0, 3.0], [2.0, 0.5]])
    onnx = to_onnx(model, (x,), dynamic_shapes=({0: "rows"},), rewrite="auto")
    (found,) = onnx.run({"x": x}).values()
    assert torch.equal(found, model(x))
    with pytest.raises(Exception, match=r"out of (data )?bounds"):
        onnx.run({"x": -x.abs()})


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
