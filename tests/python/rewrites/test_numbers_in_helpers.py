"""Numbers that one function makes of tensor data or sizes and hands to another one, which tests them or makes tensors.

`python test_numbers_in_helpers.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import random
import textwrap

import pytest
import torch
from drawn_programs import Share, check_by_hand, model_with, outcome_at_rows, require_right

from called import Called
from exportguard import to_onnx
from exportguard.rewrites.automatic import _Failed

NUMBERS = (
    "x.sum().item()",
    "float(x.sum())",
    "x.mean().item() * 3",
    "x[0, 0].item()",
    "x[-1].tolist()[1]",
    "int((x > 0).sum())",
    "(x > 0.5).sum().item()",
    "x.argmax().item()",
    "abs(float(x[0].sum()))",
    "float(x.shape[0] - 1) / 2",
    "float(x.shape[0]) * 0.3",
)
HELPERS = (
    "return max(v, 0.5)",
    "return min(max(v, -1.0), 1.0)",
    "return v if v > 0.5 else 0.5",
    "if v > 1:\n    return 1.0\nif v < -1:\n    return -1.0\nreturn v * 1.0",
    "if v > 0:\n    v = v * 2\nelse:\n    v = -v\nreturn v + 0.5",
    "n = 0\nwhile n < 4 and v > n:\n    n += 1\nreturn n",
    "return 1.0 / v if v else 0.0",
    "if 0 < v < 2 or v == 3:\n    return 2.0\nreturn 0.25",
    "for limit in (0.5, 1.0, 2.0):\n    if v < limit:\n        return limit\nreturn 4.0",
    "return inner(v) + inner(-v)",
    "return torch.tensor([v, 0.5]).sum()",
    "w = [v, v + 1.0]\nreturn torch.tensor(w, dtype=torch.float64).mean().float()",
)
#: Where the helper is, and how it is called: a definition above the class, one in it, what stands before, and the call.
PLACES = (
    ("def helper(v):\n{body}\n", "", "", "helper({number})"),
    ("", "def helper(self, v):\n{body}\n", "", "self.helper({number})"),
    ("", "@staticmethod\ndef helper(v):\n{body}\n", "", "self.helper({number})"),
    ("", "", "def helper(v):\n{body}\n", "helper({number})"),
    ("class Helper(torch.nn.Module):\n    def forward(self, v):\n{deeper}\n", "", "", "Helper()({number})"),
    ("", "def helper(self):\n    v = self.kept\n{body}\n", "self.kept = {number}\n", "self.helper()"),
    ("def helper(v):\n{body}\n\n\ndef outer(w):\n    return helper(w) * 2\n", "", "", "outer({number})"),
    ("def helper(v):\n{body}\n", "", "", "sum([helper(n) for n in ({number}, 0.75)])"),
)
USES = (
    "return x * {value}",
    "y = {value}\nreturn x + y if y > 1 else x - y",
    "return torch.where(x > {value}, x, -x)",
    "y = {value}\nfor row in x:\n    y = y * 0.5 + row.sum()\nreturn y * x[0]",
    "return x.clamp(max={value})",
)
_INNER = "def inner(v):\n    if v > 0.25:\n        return v\n    return 0.25\n"

_SHARE = Share(count=2000, every=61, at_once=4, right=2)


def source_of(seed: int) -> str:
    """The program of a number."""
    draw = random.Random(seed)
    above, beside, before, call = draw.choice(PLACES)
    body, number = draw.choice(HELPERS), draw.choice(NUMBERS)
    texts = {"body": textwrap.indent(body, " " * 4), "deeper": textwrap.indent(body, " " * 8), "number": number}
    lines = before.format(**texts) + draw.choice(USES).format(value=call.format(**texts))
    return (
        f"import torch\n\n\n{_INNER}\n\n{above.format(**texts)}\n\nclass Model(torch.nn.Module):\n"
        f"{textwrap.indent(beside.format(**texts), ' ' * 4)}\n"
        f"    def forward(self, x):\n{textwrap.indent(lines, ' ' * 8)}\n"
    )


def outcome(seed: int) -> str:
    """What became of the program of a number."""
    return outcome_at_rows(f"/helpers/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_a_number_of_data_that_a_helper_tests_is_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


@pytest.mark.parametrize(
    "body",
    [
        """
        def helper(v):
            return max(v, 0.5)
        return x * helper(float(x.sum()))
        """,
        """
        def helper(v):
            if v > 0:
                return v * 2
            return -v
        return x * helper(x[-1].tolist()[1])
        """,
        """
        def helper(v):
            if v > 1:
                return 1.0
            if v < -1:
                return -1.0
            return v * 1.0
        return x * helper(x[0, 0].item())
        """,
    ],
)
def test_what_people_write_is_right(body: str) -> None:
    require_right(model_with("/helpers/written.py", body))


def literal(numbers: list[float]) -> torch.Tensor:
    return torch.tensor(numbers)


def middle(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    row = float(rows - 1) / 2
    column = float(columns - 1) / 2
    return literal([row, column])


def around_the_middle(x: torch.Tensor) -> torch.Tensor:
    return x[:, :2] - middle(x)


def test_numbers_of_sizes_may_be_handed_to_who_makes_tensors_of_them() -> None:
    """Where the sizes are given, nothing needs the function that takes them, which is asked for next."""
    model = Called(around_the_middle).eval()
    made = to_onnx(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows", 1: "columns"},), rewrite="auto")
    for rows, columns in ((3, 4), (1, 2), (0, 3), (6, 9)):
        x = torch.randn(rows, columns)
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("zuf0", "a number made of tensor data"),
        ("2.0*u3", "a number made of tensor data"),
        ("s77", "a size of the inputs"),
    ],
)
def test_the_text_tells_a_number_of_data_from_a_size(symbol: str, said: str) -> None:
    text = f"{symbol} (<class 'torch.SymFloat'>, 140)is not tracked with proxy for <a tracer>"
    assert (_Failed(RuntimeError(text), []).in_words() or "").startswith(said)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
