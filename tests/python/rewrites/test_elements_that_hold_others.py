"""Lists and dicts that are elements of a list which a loop fills or a size makes: a read of one makes a copy."""

from __future__ import annotations

import itertools

import pytest
import torch
from drawn_programs import model_with, require_right

from exportguard import AxisError, RewriteError, to_onnx

MADE = {
    "appended": "table = []\nfor row in x:\n    table.append([row, row * 2])",
    "repeated": "table = [[x[0], x[0] * 2]] * x.shape[0]",
    "filled": "table = [None] * x.shape[0]\nfor i in range(x.shape[0]):\n    table[i] = [x[i], x[i] * 2]",
    "a comprehension": "table = [[row, row * 2] for row in x]",
}
CHANGED = {
    "an entry": "table[0][1] = x[-1]",
    "an entry by a name": "one = table[-1]\none[0] = x[0] * 7",
    "in a branch": "if x.sum() > 0:\n    table[0][1] = x[-1]",
    "before a branch": "one = table[0]\nif x.sum() > 0:\n    one[1] = x[-1]",
    "in a loop over it": "for one in table:\n    one[0] = one[0] + 1",
    "in a loop over numbers": "for i in range(x.shape[0]):\n    table[i][0] = table[i][1] * 3",
    "longer": "one = table[0]\none.append(x[0])",
    "turned": "table[0].reverse()",
}
READ = {
    "a loop": "y = x[0] * 0\nfor one in table:\n    y = y + one[0] - one[1] * 2\nreturn y",
    "an element": "return table[0][0] - table[0][1] * 2",
    "a comprehension": "return torch.stack([one[0] - one[1] * 2 for one in table])",
}


def body_of(*parts: str) -> str:
    return "\n".join(parts)


def ways() -> list[tuple[str, str, str]]:
    return [*itertools.product(MADE, CHANGED, READ)]


@pytest.mark.thinned(16)
@pytest.mark.parametrize(("made", "changed", "read"), ways())
def test_what_a_change_in_place_would_lose_is_refused(made: str, changed: str, read: str) -> None:
    body = body_of(MADE[made], CHANGED[changed], READ[read])
    model = model_with(f"/lent/{made} {changed} {read}.py", body)
    with pytest.raises((RewriteError, AxisError), match="behind a change in place"):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")


RIGHT = {
    "put there anew": "{made}\none = table[0]\ntable[0] = [x[-1], one[1]]\n{read}",
    "in a loop, put there anew": (
        "{made}\nfor i in range(x.shape[0]):\n    table[i] = [table[i][1] * 3, table[i][0]]\n{read}"
    ),
    "what was taken out": "{made}\none = table.pop()\none[0] = x[0] * 7\ny = one[0]\nreturn y + len(table)",
    "nobody reads it again": "{made}\none = table[0]\none[0] = x[-1] * 7\nreturn one[0] + one[1]",
}


@pytest.mark.parametrize("what", RIGHT)
@pytest.mark.parametrize("made", ["appended", "repeated", "filled"])
def test_what_no_change_is_lost_of_is_right(made: str, what: str) -> None:
    body = RIGHT[what].format(made=MADE[made], read=READ["a loop"])
    require_right(model_with(f"/lent/right {made} {what}.py", body))
