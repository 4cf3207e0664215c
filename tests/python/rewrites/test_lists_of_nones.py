"""Lists of as many elements as a size says, which loops fill: `out = [None] * n; out[i] = …`.

`python test_lists_of_nones.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import inspect
import random
import textwrap
from typing import Any

import pytest
import torch
from drawn_programs import HEAD, Share, check_by_hand, model_with, outcome_at_rows, require_right

from exportguard import RewriteError, to_onnx
from exportguard.rewrites.in_place import rewrite_in_place

MADE = (
    "[None] * n",
    "[None for _ in range(n)]",
    "[None] * len(x)",
    "[None] * (n + 1)",
    "[None for _ in x]",
    "[x[0]] * n",
    "[x[0] * 0, x[-1]] * n",
    "[0.0] * n",
)
#: In front of the loop.
BEFORE = (
    "",
    "",
    "",
    "out[0] = {value}",
    "out[-1] = {value}",
    "if x.sum() > 0:\n    out[0] = {value}",
    "if x.sum() > 0:\n    out[-1] = {value}\nelse:\n    out[0] = {value}",
    "for i in range(n):\n    row = x[i]\n    out[i] = {value}",
)
LOOPS = (
    "for i in range(n):\n    row = x[i]",
    "for i in reversed(range(n)):\n    row = x[i]",
    "for i in range(n - 1, -1, -1):\n    row = x[i]",
    "for i, row in enumerate(x):",
    "i = 0\nwhile i < n:\n    row = x[i]",
    "for i, k in enumerate(torch.argsort(x[:, 0])):\n    row = x[k]",
    "for i in range(1, n):\n    row = x[i]",
)
PUT = (
    "out[i] = {value}",
    "out[i] = {value}",
    "out[-1 - i] = {value}",
    "out[n - 1 - i] = {value}",
    "if row.sum() > 0:\n    out[i] = {value}\nelse:\n    row = row * 2\n    out[i] = {value}",
    "if row.sum() > 0:\n    out[i] = {value}",
    "if out[i] is None:\n    out[i] = {value}",
    "if row[0] > 0 and out[i] is None:\n    out[i] = {value}\nelif out[i] is not None:\n    out[i] = out[i] * 0.5",
    "out[i] = {value}\nif i > 0:\n    out[i] = out[i] + out[i - 1] * 0.5",
    "out[i] = {value}\nout[0] = out[i] * 0.5",
    "if i % 2 == 0:\n    out[i] = {value}\nelse:\n    out[i] = {value}\n    out[i] = out[i] * 3",
    "for j in range(n):\n    if j == i:\n        out[j] = {value}",
    "last = {value}\nout[i] = last\nlast += 1",
    "last = {value}\nout[i] = last\nseen = seen + last",
)
ROWS = ("row", "row * 2", "row + i", "row.clone()", "torch.relu(row)", "row * x.sum()")
NUMBERS = ("float(row.sum())", "row[0].item()", "float(i) * 2.0")
READ = (
    "return torch.stack(out).sum(0) + seen",
    "return torch.stack(out)",
    "return torch.stack(out[:n])",
    "return torch.stack(out[1:n]).sum(0)",
    "return torch.stack(out[::-1])",
    "return out[0] + out[n - 1]",
    "return out[-1] * 2",
    "for o in out:\n    seen = seen * 0.5 + o\nreturn seen",
    "for i in range(n):\n    if out[i] is not None:\n        seen = seen * 0.5 + out[i]\nreturn seen",
    "return torch.stack([o * 2 for o in out])",
    "return torch.stack([o for o in out if o is not None])",
    "return seen + len(out)",
    "out.append(x[0])\nreturn torch.stack(out)",
    "other = out\nother[0] = x[0] * 7\nreturn torch.stack(out)",
    "first = out[0]\nout[0] = x[-1]\nreturn first + out[0] * 2",
)
READ_NUMBERS = (
    "return torch.tensor(out)",
    "return torch.tensor(out[:n]) + seen.sum()",
    "return seen + sum(out)",
    "return seen + out[0] * 2 + out[-1]",
    "return seen + max(out)",
    "for i in range(n):\n    if out[i] is not None:\n        seen = seen * 0.5 + out[i]\nreturn seen",
)

_SHARE = Share(count=900, every=29, at_once=3, right=1)


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    made = draw.choice(MADE)
    are_numbers = made.startswith("[0.0]") or (made.startswith("[None") and draw.random() < 0.3)
    value = draw.choice(NUMBERS if are_numbers else ROWS)
    start = value.replace("row", "x[0]").replace("i)", "0)").replace("+ i", "+ 1")
    before = draw.choice(BEFORE)
    before = before.format(value=value if before.startswith("for") else start)
    loop = draw.choice(LOOPS)
    put = draw.choice(PUT).format(value=value)
    if are_numbers:
        put = put.replace("seen = seen + last", "seen = seen + last * 1.0")
    if loop.startswith("i = 0"):
        put += "\ni += 1"
    read = draw.choice(READ_NUMBERS if are_numbers else READ)
    lines = f"n = x.shape[0]\nseen = x[0] * 0\nout = {made}\n{before}\n{loop}\n{textwrap.indent(put, '    ')}\n{read}"
    return f"{HEAD}{textwrap.indent(lines, ' ' * 8)}\n"


def outcome(seed: int) -> str:
    """What became of the program of a seed."""
    return outcome_at_rows(f"/nones/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_a_list_of_nones_is_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


RIGHT = {
    "returns": """
        n = len(x)
        returns, after = [None] * n, 0.0
        for t in reversed(range(n)):
            after = x[t, 0].item() + 0.9 * after
            returns[t] = after
        return torch.tensor(returns)
    """,
    "states of a recurrence from behind": """
        n = x.shape[0]
        out, h = [None for _ in range(n)], x[0] * 0
        for t in range(n - 1, -1, -1):
            h = torch.tanh(h * 0.5 + x[t])
            out[t] = h
        return torch.stack(out)
    """,
    "an order": """
        n = x.shape[0]
        out = [None] * n
        for i, k in enumerate(torch.argsort(x[:, 0])):
            out[k] = x[i]
        return torch.stack(out)
    """,
    "what was found before": """
        n = x.shape[0]
        memo, total = [None] * n, x[0] * 0
        for i in range(n):
            j = int(x[i, 0].abs() * 10) % n
            if memo[j] is None:
                memo[j] = x[i]
            total = total + memo[j]
        return total
    """,
    "a table of tables": """
        n = x.shape[0]
        out = [None] * n
        for i in range(n):
            line = [None] * n
            for j in range(n):
                line[j] = x[i, 0] * x[j, 1]
            out[i] = torch.stack(line)
        return torch.stack(out)
    """,
    "pairs": """
        out = [None] * x.shape[0]
        for i, row in enumerate(x):
            out[i] = (row * 2, row.sum())
        return torch.stack([a for a, _ in out]) + torch.stack([b for _, b in out])[:, None]
    """,
    "every second one": """
        n = x.shape[0]
        out = [None] * n
        for i in range(0, n, 2):
            out[i] = x[i]
        for i in range(1, n, 2):
            out[i] = -x[i]
        return torch.stack(out)
    """,
    "one row for all": """
        n = x.shape[0]
        out = [x[0]] * n
        for i in range(n):
            if i % 2:
                out[i] = x[i]
        return torch.stack(out)
    """,
    "those that are there": """
        out = [None] * x.shape[0]
        for i, row in enumerate(x[1:]):
            if row.sum() > 0:
                out[-1 - i] = row
        rows = [o * 2 for o in out if o is not None and o[0] > 0]
        return sum(rows, x[0] * 0) + len(rows) - sum(o.sum() for o in out if o is not None)
    """,
    "as many as data say": """
        out = [x[0]]
        for i in range(x.shape[0]):
            out.extend([x[i]] * int(x[i, 0].abs() * 2))
        return torch.stack(out)
    """,
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_list_as_models_have_it_is_right(name: str) -> None:
    require_right(model_with(f"/nones/{name}.py", RIGHT[name]))


GAPS = {
    "one of them": "return out[2]",
    "all": "return torch.stack(out).sum(0)",
    "a loop": "y = x[0] * 0\n        for o in out:\n            y = y + o\n        return y",
    "a part": "return torch.stack(out[1:]).sum(0)",
}


@pytest.mark.parametrize("name", GAPS)
def test_a_run_ends_where_an_element_is_none(name: str) -> None:
    """As eager mode does with a None among tensors."""
    body = f"""
        out = [None] * x.shape[0]
        for i in range(x.shape[0]):
            if x[i, 0] > 0:
                out[i] = x[i]
        {GAPS[name]}
    """
    model = model_with(f"/nones/gap of {name}.py", body)
    onnx = to_onnx(model, (torch.ones(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    (found,) = onnx.run({"x": torch.ones(4, 2) * 3}).values()
    torch.testing.assert_close(found, model(torch.ones(4, 2) * 3))
    gap = torch.tensor([[1.0, 1], [1, 1], [-1, 1], [1, 1]])
    if name != "one of them":  # which is None there, and no tensor
        with pytest.raises(TypeError):
            model(gap)
    with pytest.raises(Exception, match=r"out of data bounds|out of range"):
        onnx.run({"x": gap})


def test_what_is_drawn_is_asked_whether_it_is_none_where_another_line_alone_is_rewritten() -> None:
    body = """
    out = [None] * x.shape[0]
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            out[i] = x[i]
    for o in out:
        if o is not None:
            x = x + o
    return x
    """
    forward: Any = type(model_with("/nones/lines.py", body)).forward
    lines = inspect.getsource(forward).splitlines()
    at = next(number for number, text in enumerate(lines, forward.__code__.co_firstlineno) if "sum" in text)
    source = rewrite_in_place([forward], frozenset({at})).rewritten.source
    assert "for o in out" in source
    assert "is_none_in(out, o)" in source


REFUSED = {
    "put one there before": """
        n = x.shape[0]
        out = [None] * n
        for i in reversed(range(n)):
            out[i] = x[i] if i == n - 1 else out[i + 1] * 0.5 + x[i]
        return torch.stack(out)
    """,
    "ask for it by its number": """
        n = x.shape[0]
        out = [None] * n
        for i in range(n):
            if x[i].sum() > 0:
                out[i] = x[i]
        y = x[0] * 0
        for o in out:
            if o is not None:
                y = y + o
        return y
    """,
    "another size": """
        n = x.shape[0]
        out = [None] * n
        for i in range(n):
            out[i] = x[i]
        out[0] = x[0, :1]
        return out[0]
    """,
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_nothing_tells_is_refused(told: str) -> None:
    with pytest.raises(Exception, match=told) as raised:
        require_right(model_with(f"/nones/refused {told}.py", REFUSED[told]))
    assert isinstance(raised.value, RewriteError) or "cannot be rewritten" in str(raised.value)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
