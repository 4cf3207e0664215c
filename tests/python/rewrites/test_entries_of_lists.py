"""`table[i] = value` of lists whose length only the run knows, as dynamic programs and sorting by hand are written."""

from __future__ import annotations

import pytest
import torch
from drawn_programs import model_with, require_right

from exportguard import ExportGuardError, to_onnx

RIGHT = {
    "a table of a size": """
        best = [0.0] * (len(x) + 1)
        for i in range(1, len(x) + 1):
            best[i] = max(best[i - 1], float(x[i - 1, 0]) + best[max(i - 2, 0)])
        return torch.tensor(best)
    """,
    "a table in a loop within a loop": """
        longest = [1] * len(x)
        for i in range(len(x)):
            for j in range(i):
                if x[j, 0] < x[i, 0]:
                    longest[i] = max(longest[i], longest[j] + 1)
        return torch.tensor(longest) + max(longest)
    """,
    "two entries change places": """
        v, swapped = x[:, 0].tolist(), True
        while swapped:
            swapped = False
            for i in range(len(v) - 1):
                if v[i] > v[i + 1]:
                    v[i], v[i + 1] = v[i + 1], v[i]
                    swapped = True
        return torch.tensor(v)
    """,
    "marks": """
        seen, order, at = [False] * len(x), [], 0
        while not seen[at]:
            seen[at] = True
            order.append(at)
            at = int(x[at].abs().sum() * 7) % len(x)
        return torch.tensor(order).float().mean() + torch.tensor(seen)
    """,
    "counts": """
        ways = [0] * (len(x) + 3)
        ways[0] = 1
        for coin in (x[:, 0].abs() * 2).long().tolist():
            for amount in range(coin + 1, len(ways)):
                ways[amount] += ways[amount - coin - 1]
        return torch.tensor(ways)
    """,
    "rows": """
        rows = list(x)
        for i in range(1, len(rows)):
            if rows[i].sum() > rows[i - 1].sum():
                rows[i] = rows[i] + rows[i - 1]
        rows[-1] = rows[-1] * 2
        rows[0] = rows[0] + 1
        return torch.stack(rows)
    """,
    "from either end": """
        v = x[:, 1].tolist()
        first = v[0]
        v[0], v[-1] = v[-1], v[0]
        v[len(v) // 2] -= 1.5
        return torch.tensor(v) * first
    """,
    "numbers behind a branch": """
        v = x[:, 1].tolist()
        if x.sum() > 0:
            v.reverse()
        return (x > 0).long() + v[0]
    """,
}


def _model(name: str, body: str) -> torch.nn.Module:
    return model_with(f"/entries/{name}.py", body)


@pytest.mark.parametrize("name", RIGHT)
def test_an_entry_is_what_was_written_there(name: str) -> None:
    require_right(_model(name, RIGHT[name]))


REFUSED = {
    "a float among ints": ("t = [0] * len(x)", "t[i] = float(x[i, 0])", r"another kind of number.*\[0\.0\] \* n"),
    "an int among floats": ("t = [0.0] * len(x)", "if x[i, 0] > 0:\n        t[i] = 1", "another kind of number"),
    "a tensor among numbers": ("t = x[:, 0].tolist()", "t[i] = x[i, 0]", r"is a tensor.*\.item\(\)"),
    "a number among tensors": ("t = list(x[:, 0])", "t[i] = 1.0", r"no tensor of their dtype.*torch\.as_tensor"),
    "another size": ("t = list(x)", "t[i] = x[i, :1]", "of another size"),
    "caught": (
        "t = x[:, 0].tolist()",
        "try:\n        t[int(x.sum())] = 1.0\n    except IndexError:\n        pass",
        "IndexError",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_make_a_list_of_two_kinds_is_refused(name: str) -> None:
    table, write, told = REFUSED[name]
    model = _model(name, f"{table}\nfor i in range(len(t)):\n    {write}\nreturn torch.as_tensor(t[0])")
    with pytest.raises(ExportGuardError, match=rf"(?s)line \d+.*{told}"):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")
