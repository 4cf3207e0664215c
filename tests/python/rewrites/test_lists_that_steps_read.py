"""Steps of a loop that read the whole list which they fill: `context = torch.stack(outs).mean(0); outs.append(…)`.

`python test_lists_that_steps_read.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import random
import textwrap

import pytest
import torch
from drawn_programs import HEAD, LOOPS, Share, check_by_hand, model_with, outcome_at_rows, require_right

from exportguard import ExportGuardError, to_onnx

#: What a step makes of the list, and a vector of it.
READS = (
    "torch.stack(outs).mean(0)",
    "torch.cat([o[None] for o in outs]).amax(0)",
    "torch.stack(outs[::2]).sum(0)",
    "torch.stack(outs[-3:]).mean(0) * len(outs)",
    "outs[len(outs) // 2]",
    "outs[int(row.abs().sum()) % len(outs)] * 0.5",
    "sum(o.sum() * 0.1 for o in outs) + row",
    "max(o.sum() for o in outs) - row",
    "torch.stack([o * 2 for o in outs if o.sum() > 0] + [row]).amin(0)",
    "torch.stack(outs[::-1])[0] - torch.stack(outs)[0]",
    "sorted([o.sum() for o in outs])[len(outs) // 2] + row * 0",
)

#: The same in statements that leave it in `seen`.
BLOCKS = (
    "seen = row\nfor o in outs:\n    seen = seen * 0.5 + o",
    "seen = row\nfor k, o in enumerate(outs):\n    if (o * row).sum() > 0:\n        seen = seen - o * (k + 1) * 0.1",
    "seen = row\nfor o in reversed(outs):\n    if o.sum() < 0:\n        break\n    seen = seen + o * 0.5",
    "seen = row * (2.0 if any(o.sum() > 1 for o in outs) else 0.5)",
)

#: What a step does to the list.
CHANGES = (
    "outs.append(row - seen * 0.3)",
    "outs.append(row)\nouts.append(seen)",
    "if seen.sum() > 0:\n    outs.append(row * 0.5)",
    "if seen.sum() > row.sum():\n    outs.append(row)\nelif len(outs) > 1:\n    outs.pop()",
    "outs.insert(0, seen + row)",
    "outs[0] = outs[0] * 0.5 + row\nouts.append(seen * 0.5)",
    "outs.append(row)\nif seen.sum() > 0 and len(outs) > 2:\n    outs.pop(0)",
    "if seen[0] > 0:\n    outs[-1] = seen\nelse:\n    outs.append(seen - row)",
    "outs.append(seen)\nouts[-1].add_(row)",
    "while len(outs) > 1 and outs[-1].sum() > seen.sum():\n    outs.pop()\nouts.append(row)",
)

STARTS = ("[x[0] * 1]", "[x[0] * 1, x[-1] * 2]", "[]")

_SHARE = Share(count=1000, every=31, at_once=4, right=2)


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    read = draw.choice([*(f"seen = {read}" for read in READS), *BLOCKS])
    start = draw.choice(STARTS)
    if start == "[]":
        read = f"if outs:\n{textwrap.indent(read, '    ')}\nelse:\n    seen = row * 2"
    step = f"{read}\n{draw.choice(CHANGES)}"
    lines = (
        f"outs = {start}\n{draw.choice(LOOPS)}\n{textwrap.indent(step, '    ')}\nreturn torch.stack(outs) + len(outs)"
    )
    return f"{HEAD}{textwrap.indent(lines, ' ' * 8)}\n"


def outcome(seed: int) -> str:
    """What became of the program of a seed."""
    return outcome_at_rows(f"/steps/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_a_step_reads_what_the_steps_before_it_left(first: int) -> None:
    _SHARE.check(outcome, first)


RIGHT = {
    "tokens": """
        ids = [1]
        while len(ids) < len(x) + 2 and ids[-1] != 4:
            ids.append(int((torch.tensor(ids).float().mean() + x).abs().sum() * 7) % 5)
        return torch.tensor(ids)
    """,
    "columns": """
        outs = [x[:, :1]]
        for k in range(len(x)):
            outs.append(torch.tanh(torch.cat(outs, 1).mean(1, keepdim=True) + k))
        return torch.cat(outs, 1)
    """,
    "pairs": """
        outs = [(x[0], x[0, 0])]
        for row in x[1:]:
            outs.append((row + sum(a * b for a, b in outs) * 0.1, row.sum()))
        return torch.stack([a for a, _ in outs]) + torch.stack([b for _, b in outs])[:, None]
    """,
    "the longest row of numbers that grow": """
        longest = [1.0]
        for i in range(1, len(x)):
            best = 0.0
            for k in range(i):
                if x[k, 0] < x[i, 0]:
                    best = max(best, longest[k])
            longest.append(best + 1.0)
        return torch.tensor(longest) + max(longest)
    """,
    "a queue": """
        far, queue = torch.full((len(x),), -1.0), [0]
        far[0] = 0.0
        while queue:
            u = queue.pop(0)
            for v in range(len(x)):
                if x[u, 0] * x[v, 1] > 0 and far[v] < 0:
                    far[v] = far[u] + 1
                    queue.append(v)
        return far
    """,
    "a stack": """
        stack = []
        for row in x:
            stack.append(row)
            while len(stack) > 1 and stack[-1].sum() > stack[-2].sum():
                top = stack.pop()
                stack.append(top * 0.5 + stack.pop())
        return torch.stack(stack)
    """,
    "another name, and another list": """
        a, held = [x[0]], {"b": [x[0] * 2]}
        c = a
        for row in x[1:]:
            c.append(row + torch.stack(held["b"]).amax(0))
            held["b"].append(torch.stack(a).mean(0) - row)
        return torch.stack(c) + torch.stack(held["b"])
    """,
}


def _model(name: str, body: str) -> torch.nn.Module:
    return model_with(f"/own/{name}.py", body)


@pytest.mark.parametrize("name", RIGHT)
def test_a_list_is_whole_in_each_step(name: str) -> None:
    require_right(_model(name, RIGHT[name]))


REFUSED = {
    "of several sizes": ("outs = [x[0]]", "outs.append(torch.cat(outs)[: len(outs)])", "several sizes"),
    "an element that a variable is": (
        "h = x[0] * 1\nouts = [h]",
        "h.add_(torch.stack(outs).sum(0))\n    outs.append(h)",
        "shares its memory",
    ),
    "an element that is changed behind the reading": (
        "outs = [x[0] * 1]",
        "m, last = torch.stack(outs).mean(0), outs[-1]\n    outs.append(row + m)\n    last += 1",
        "in place under another name",
    ),
    "an element of two lists": (
        "outs, others = [x[0] * 1], [x[0] * 1]",
        "others[-1].mul_(2)\n    m = torch.stack(outs).mean(0) + row\n    outs.append(m)\n    others.append(m)",
        "in place under another name",
    ),
    "kinds": ("outs = [1]", "outs.append(float(row.sum()) + sum(outs))", "give them one dtype"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_rows_of_one_tensor_cannot_be_is_refused(name: str) -> None:
    start, step, told = REFUSED[name]
    model = _model(name, f"{start}\nfor row in x[1:]:\n    {step}\nreturn outs[0] + len(outs)")
    with pytest.raises(ExportGuardError, match=rf"(?s){told}"):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")


SHARED = {
    "an entry": ("a[0] = a[0] + row", "b = a", "a list"),
    "an element more": ("a.append(row)", "b = a", "a list"),
    "an entry of a dict": ('d["k"] = d["k"] + row', "c = d", "a dict"),
    "within another": ("a[0] = a[0] + row", 'c = {"k": row, "a": a}', "a list"),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_a_step_changes_has_one_name_in_the_next(name: str) -> None:
    change, binding, kind = SHARED[name]
    model = _model(
        name,
        f"""
        a, b, d, c, total = [x[0]], [x[1]], {{"k": x[0]}}, {{"k": x[1], "a": [x[1]]}}, x[0] * 0
        for row in x:
            {change}
            total = total + torch.stack(b).sum(0) + c["k"]
            {binding}
        return total
        """,
    )
    with pytest.raises(ExportGuardError, match=rf"gives `[bc]` {kind} that it changes under another name.*copy it"):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
