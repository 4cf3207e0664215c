"""Sets of numbers that loops and branches fill: what was seen, visited or used.

`python test_sets_of_numbers.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import random
import textwrap

import pytest
import torch
from drawn_programs import HEAD, LOOPS, Share, check_by_hand, model_with, outcome_at_rows, require_right

from exportguard import ExportGuardError, to_onnx

KEYS = (
    "int(row[0] * 3)",
    "int(row.argmax())",
    "int(row.abs().sum()) % 3",
    "round(float(row[0]))",
    "bool(row.sum() > 0)",
    "(row[:2] * 2).int().tolist()[0]",
    "int(row[0] > 0) + 2 * int(row[1] > 0)",
    "float(row[0].round())",
)
MADE = ("set()", "set()", "{0}", "{1}", "{int(x[0, 0] * 3)}")
STEPS = (
    "seen.add({key})",
    "k = {key}\nif k not in seen:\n    seen.add(k)\n    total = total + row",
    "k = {key}\nif k in seen:\n    total = total - row\nelse:\n    seen.add(k)",
    "k = {key}\nif k in seen:\n    total = total * 0.5\n    continue\nseen.add(k)\ntotal = total + row",
    "if row.sum() > 0:\n    seen.add({key})",
    "k = {key}\nif row.sum() > 0 and k not in seen:\n    seen.add(k)\nelif row[0] > 1:\n    seen.clear()",
    "seen.add({key})\ntotal = total + len(seen)",
    "for v in row:\n    seen.add(int(v * 2))",
    "own = set()\nfor v in row:\n    own.add(int(v * 2))\nif len(own) > 2:\n    seen.add({key})",
    "if not seen:\n    total = total + row\nseen.add({key})",
    "other.add({key})\nif len(other) > 1:\n    seen.add(int(row[1] * 2))\n    other.clear()",
    "k = {key}\nif k not in seen and k not in other:\n    seen.add(k)\n    other.add(k + 1)",
)
ENDS = (
    "return total + len(seen)",
    "return total + torch.tensor(sorted(seen)).sum() if len(seen) > 0 else total",
    "return total + sum(sorted(seen)) * 0.5",
    "return total * 2 if int(x[0, 1] * 2) in seen else total - 1",
    "return total if seen else total + 7",
    "return total + len(seen) * 3 - len(other)",
)

_SHARE = Share(count=700, every=31, at_once=4, right=1)


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    key = draw.choice(KEYS)
    step = draw.choice(STEPS).format(key=key)
    made, other = draw.choice(MADE), draw.choice(("set()", "{5}"))
    start = draw.choice((f"seen = {made}\nother = {other}", f"seen, other = {made}, {other}"))
    lines = f"{start}\ntotal = x[0] * 0\n{draw.choice(LOOPS)}\n{textwrap.indent(step, '    ')}\n{draw.choice(ENDS)}"
    return f"{HEAD}{textwrap.indent(lines, ' ' * 8)}\n"


def outcome(seed: int) -> str:
    """What became of the program of a seed."""
    return outcome_at_rows(f"/sets/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_a_set_of_numbers_is_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


RIGHT = {
    "what comes for the first time": """
        seen, keep = set(), []
        for i, t in enumerate((x[:, 0] * 2).int().tolist()):
            if t not in seen:
                seen.add(t)
                keep.append(i)
        return x[torch.tensor(keep)].sum(0) + len(seen)
    """,
    "a walk until it comes back": """
        visited, i, total = {0}, 0, x[0] * 0
        while True:
            total = total * 0.5 + x[i]
            i = int(x[i, 0].abs() * 10) % x.shape[0]
            if i in visited:
                break
            visited.add(i)
        return total + len(visited)
    """,
    "how many come again": """
        seen, again = set(), 0
        for value in (x[:, 0] * 2).long().tolist():
            again += value in seen
            seen.add(value)
        return x * again
    """,
    "as many as it holds": """
        seen, total = set(), torch.zeros(2)
        for row in x:
            if len(seen) < 2:
                total = total + row
            seen.add(len(seen))
        return total
    """,
    "each column once": """
        used, out = set(), [x[0]]
        for row in x:
            best = int(row.argmax())
            if best in used:
                continue
            used.add(best)
            out.append(row)
        return torch.stack(out).sum(0) + torch.tensor(sorted(used)).sum()
    """,
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_set_as_models_have_it_is_right(name: str) -> None:
    require_right(model_with(f"/sets/{name}.py", RIGHT[name]))


def test_a_set_of_tensors_is_refused() -> None:
    """It holds each object, whatever their numbers are."""
    model = model_with(
        "/sets/tensors.py",
        """
        seen = set()
        for row in x:
            seen.add(row.sum())
        return x * len(seen)
        """,
    )
    with pytest.raises(ExportGuardError, match="a tensor is put into a set"):
        to_onnx(model, (torch.ones(4, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")


KEPT = {
    "its order": "y = x[0]\n        for k in seen:\n            y = y * 0.5 + k\n        return y",
    "another set": "return x[0] * len(seen | {3, 4})",
    "who is given it": "return x[0] * (lambda s: len(s | {3}))(seen)",
}


@pytest.mark.parametrize("what", KEPT)
def test_a_set_that_is_asked_for_something_else_stays_a_set(what: str) -> None:
    body = f"""
        seen = set()
        for k in (2, 0, 2, 5):
            seen.add(k)
        if x.sum() > 0:
            x = x * 2
        {KEPT[what]}
    """
    require_right(model_with(f"/sets/kept for {what}.py", body))


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
