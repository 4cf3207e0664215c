"""`in`, `index` and `count` of lists of numbers whose length only the run knows."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import RewriteError, to_onnx

LISTS = {
    "tolist": "x.argmax(1).tolist()",
    "floats": "x.max(1).values.round().tolist()",
    "truth values": "(x[:, 0] > 0).tolist()",
    "chosen": "[int(v) for v in x.argmax(1) if v > 0]",
    "added": "x.argmax(1).tolist() + [7]",
}

QUESTIONS = {
    "in": "1 if 2 in found else 0",
    "not in": "5 if 0 not in found else 3",
    "a float": "1 if 1.0 in found else 0",
    "a number of data": "1 if int(x.sum()) in found else 0",
    "index": "found.index(1) if 1 in found else -1",
    "index behind and": "7 if 2 in found and found.index(2) > 0 else 8",
    "count": "found.count(1) * 10 + found.count(2)",
    "of the largest": "found.index(max(found))",
    "rows": "x[: found.index(1)].sum() if 1 in found else x.sum()",
    "in a loop": "sum(k for k in range(4) if k in found)",
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("name", "question"),
    [(n, q) for n in LISTS for q in QUESTIONS if q != "of the largest" or n in ("tolist", "floats", "added")],
)
def test_the_answer_is_that_of_eager_mode(name: str, question: str) -> None:
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        found = {LISTS[name]}\n        return x.sum() * 0 + ({QUESTIONS[question]})\n"
    )
    model = model_of(source, f"/lists/{name} {question}.py")
    onnx = to_onnx(model, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows, seed in itertools.product((1, 2, 5, 9), range(3)):
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)) * 2
        (answer,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(answer, model(x))


class ReadsWhatItFills(torch.nn.Module):
    def forward(self, x):
        seen = []
        for number in x.argmax(1).tolist():
            if number not in seen:
                seen.append(number)
        return torch.tensor(seen)


class Caught(torch.nn.Module):
    def forward(self, x):
        found = [int(v) for v in x.argmax(1) if v > 0]
        try:
            place = found.index(3)
        except ValueError:
            place = -1
        return x + place


def test_a_step_asks_what_the_steps_before_it_left() -> None:
    onnx = to_onnx(ReadsWhatItFills().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 5, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), ReadsWhatItFills()(x))


def test_what_a_handler_may_catch_is_refused() -> None:
    with pytest.raises(RewriteError, match="line"):
        to_onnx(Caught(), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
