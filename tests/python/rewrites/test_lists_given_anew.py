"""Variables that steps or branches leave as lists of other lengths: `outs = outs + [row]`, `beams = candidates[:2]`.

`python test_lists_given_anew.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import random
import textwrap

import pytest
import torch
from drawn_programs import HEAD, LOOPS, Share, check_by_hand, model_with, outcome_at_rows, require_right

from exportguard import ExportGuardError, to_onnx

#: What a step gives the variable.
GIVEN = (
    "outs = outs + [row]",
    "outs = [row] + outs",
    "outs = outs[-2:] + [row]",
    "outs = [o * 0.5 for o in outs] + [row]",
    "outs = [o for o in outs if o.sum() > 0] + [row]",
    "outs = outs[1:] if len(outs) > 2 else outs + [row]",
    "outs = list(outs)\nouts.append(row)",
    "outs += [row]",
    "outs = [*outs, row, row * 2][-3:]",
    "outs = [a + row for a in outs[::2]] + [row]",
    "outs = sorted([*outs, row], key=lambda o: o.sum())[:3]",
    "if row.sum() > 0:\n    outs = outs + [row]",
    "if row.sum() > 0:\n    outs = [row]\nelse:\n    outs = outs + [row * 2]",
    "if row[0] > row[1]:\n    outs.append(row)\nelse:\n    outs = outs[:1]",
    "outs.append(row)\nif len(outs) > 3:\n    outs = outs[-2:]",
    "outs.append(row)\nif row.sum() > 0:\n    outs = [row * 0.5]",
    "kept = []\nfor o in outs:\n    if o.sum() < row.sum():\n        kept.append(o)\nouts = kept + [row]",
    "if len(outs) > 2:\n    seen = seen + outs[0]\n    outs = outs[1:]\nouts = outs + [row]",
    "outs, other = other, outs + [row]",
    "if row.sum() > 0:\n    outs, other = other, outs\nouts = outs + [row]",
)

#: What it does beside that, in front of it or behind it.
BESIDE = (
    "",
    "",
    "",
    "other = outs",
    "other = other + [row * 2]",
    "other.append(row * 3)",
    "outs.append(row * 0.5)",
    "outs[0] = outs[0] + row if outs else row",
    "if row.sum() > 0:\n    other = outs",
    "if row[0] > 0:\n    outs.append(row * 0.1)",
    "last = outs\nseen = seen + len(last)",
)

STARTS = ("[x[0] * 1]", "[x[0] * 1, x[-1] * 2]", "[]")
OTHERS = ("[x[-1] * 1]", "outs", "[x[0] * 0.5, x[0]]")

ENDS = ("", "", "other.append(x[0] * 7)\n", "outs.append(x[0] * 7)\n")

_SHARE = Share(count=1000, every=31, at_once=4, right=1)


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    read = draw.choice(("", "if outs:\n    seen = seen + torch.stack(outs).mean(0)", "seen = seen + len(outs)"))
    step = "\n".join(part for part in (draw.choice(BESIDE), read, draw.choice(GIVEN), draw.choice(BESIDE)) if part)
    lines = (
        f"outs = {draw.choice(STARTS)}\nother = {draw.choice(OTHERS)}\nseen = x[0] * 0\n{draw.choice(LOOPS)}\n"
        f"{textwrap.indent(step, '    ')}\n{draw.choice(ENDS)}"
        "if len(outs) > 0:\n    seen = seen + torch.stack(outs).sum(0)\n"
        "if len(other) > 0:\n    seen = seen - torch.stack(other).sum(0) * 2\n"
        "return seen + len(outs) - len(other) * 5"
    )
    return f"{HEAD}{textwrap.indent(lines, ' ' * 8)}\n"


def outcome(seed: int) -> str:
    """What became of the program of a seed."""
    return outcome_at_rows(f"/anew/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(10)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_a_variable_that_is_given_another_list_is_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


RIGHT = {
    "beam search": """
        beams = [(0.0, 0)]
        for row in x:
            candidates = []
            for score, last in beams:
                for k in range(2):
                    candidates.append((score + float(row[k]) * (1 + k), k))
            candidates.sort(reverse=True)
            beams = candidates[:2]
        return torch.tensor([score for score, _ in beams]) + torch.tensor([k for _, k in beams])
    """,
    "halves": """
        level = [row for row in x]
        while len(level) > 1:
            following = []
            for i in range(0, len(level) - 1, 2):
                following.append(level[i] - level[i + 1])
            if len(level) % 2:
                following.append(level[-1])
            level = following
        return level[0]
    """,
    "a buffer that is emptied": """
        buffer, total = [x[0]], x[0] * 0
        for row in x[1:]:
            buffer.append(row)
            if row.sum() > 0:
                total = total + torch.stack(buffer).mean(0)
                buffer = []
        return total + len(buffer)
    """,
    "a buffer that begins anew": """
        buffer, means = [x[0]], [x[0]]
        for row in x[1:]:
            buffer.append(row)
            if row.sum() > 0:
                means.append(torch.stack(buffer).mean(0))
                buffer = [row]
        return torch.stack(means)
    """,
    "the least three": """
        least = [0.0]
        for row in x:
            least.append(float(row.sum()))
            least = sorted(least)[:3]
        return torch.tensor(least)
    """,
    "one of the lists of branches": """
        rows = [x[0], x[-1] * 2]
        if x.sum() > 0:
            rows = [x[0]]
        elif x[0, 0] > 0:
            rows = rows + [x[-1]]
        return torch.stack(rows).sum(0) + len(rows)
    """,
    "none of a list or another one": """
        rows = []
        if x.sum() > 0:
            rows = [x[0], x[-1]]
        for row in rows:
            x = x + row
        return x * len(rows)
    """,
    "two that change places": """
        one, two = [x[0] * 1, x[-1] * 2], [x[-1] * 1]
        for row in x:
            one, two = two, one + [row]
            if row[0] > 0:
                one.append(row * 0.1)
        one.append(x[0] * 7)
        return torch.stack(one).sum(0) - 2 * torch.stack(two).sum(0)
    """,
    "the one before": """
        last, current, total = [x[0]], [x[0]], x[0] * 0
        for row in x[1:]:
            last, current = current, [c + row for c in current] + [row]
            total = total + torch.stack(last).sum(0) - torch.stack(current).mean(0)
        return total
    """,
    "a list of another name that the first step alone changes": """
        outs = [x[0]]
        kept = outs
        for row in x[1:]:
            outs.append(row)
            outs = outs + [row]
        return torch.stack(outs).sum(0) + torch.stack(kept).sum(0)
    """,
    "a list of another name that a branch changes": """
        one, two = [x[0] * 1], [x[-1] * 2]
        if x.sum() > 0:
            one = two
            one[0] = one[0] + 5
        return one[0] + two[0] * 3
    """,
    "a dict of another name that a branch changes": """
        one, two = {"a": x[0] * 1}, {"a": x[-1] * 2}
        if x.sum() > 0:
            one = two
            one["a"] = one["a"] + 5
        return one["a"]
    """,
    "a list of two names that each branch makes": """
        if x.sum() > 0:
            one = two = [x[0] * 0.5, x[-1]]
        else:
            two = one = [x[-1] * 1, x[0]]
        one.append(x[0] * 7)
        return torch.stack(two).sum(0)
    """,
}


@pytest.mark.parametrize("program", RIGHT)
def test_a_list_takes_the_place_of_another(program: str) -> None:
    require_right(model_with(f"/anew/{program}.py", RIGHT[program]))


def test_a_level_follows_the_other() -> None:
    body = """
        far = torch.full((len(x),), -1.0)
        far[0], level, steps = 0.0, [0], 0
        while level:
            steps += 1
            following = []
            for u in level:
                for v in range(len(x)):
                    if x[u, 0] * x[v, 1] > 0 and far[v] < 0:
                        far[v] = steps
                        following.append(v)
            level = following
        return far
    """
    require_right(model_with("/anew/levels.py", body))


REFUSED = {
    "the list that was has another name": (
        """
        outs, i = [x[0]], 0
        kept = outs
        while x[i].sum() > 0 and i < len(x) - 1:
            i += 1
            outs.append(x[i])
            outs = outs + [x[i]]
        return torch.stack(outs).sum(0) + torch.stack(kept).sum(0)
        """,
        "another name",
    ),
    "the new one has two": (
        """
        one, two, total = [x[0]], [x[0]], x[0] * 0
        for row in x[1:]:
            one.append(row * 2)
            total = total + torch.stack(two).sum(0)
            one = two = two + [row]
        return total + torch.stack(two).sum(0)
        """,
        "has another name|two variables hold one",
    ),
    "two of one list behind a loop": (
        """
        one, two = [x[0]], [x[0]]
        for row in x[1:]:
            one = two = two + [row]
        one.append(x[0])
        return torch.stack(two).sum(0)
        """,
        "one of the two is changed later",
    ),
    "texts": (
        """
        names = ["a"]
        for row in x:
            if row.sum() > 0:
                names = names + ["b"]
        return x * len(names)
        """,
        "str|text",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_two_names_see_is_refused(case: str) -> None:
    body, text = REFUSED[case]
    model = model_with(f"/anew/{case}.py", body)
    with pytest.raises(ExportGuardError, match=text):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
