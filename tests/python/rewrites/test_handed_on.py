"""What a branch or a step hands on after it changed the memory of that under another name: right, or refused."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import ExportGuardError, to_onnx

#: Another name for the memory of `v`, four numbers.
VIEWS = {
    "a slice": "v[:]",
    "a part": "v[1:]",
    "a view": "v.view(4)",
    "rows": "v.reshape(2, 2)",
    "an entry": "v[2]",
    "itself": "v",
    "a choice": "v if x.sum() > -1 else self.bias",
}

WRITES = {"whole": "v *= 3", "a part": "v[:3] += 1", "a method": "v.add_(1)", "the view": "w += 2"}

#: What is handed on, in the way of a name, of a container, of an attribute and of what was there before.
HANDED = {
    "a name": "v = w",
    "another name": "u = w",
    "the end of a list": "kept.append(w)",
    "an entry of a dict": "named['u'] = w",
    "an attribute": "self.last = w",
    "both": "v, u = w, v",
    "what is made of it": "v = w + 1",
}

PLACES = {
    "a branch": "if x.sum() > 0:\n            {write}\n            {handed}",
    "behind a branch": "if x.sum() > 0:\n            {write}\n        for i in range(1, len(x)):\n            {handed}",
    "a loop": "for r in x:\n            {write}\n            {handed}",
    "a loop with a branch": (
        "for r in x:\n            if r.sum() > 0:\n                {write}\n                {handed}"
    ),
    "behind a write": "{write}\n        for i in range(1, len(x)):\n            {handed}",
}

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.full((4,), 0.5))

    def forward(self, x):
        v = x.sum(0)
        w = {view}
        u, kept, named = torch.zeros(4), [], {{"u": torch.ones(4)}}
        self.last = torch.ones(4)
        {place}
        return [part.sum() for part in (v, w, u, *kept[-1:], named["u"], self.last)]
"""

CASES = [*itertools.product(VIEWS, WRITES, HANDED, PLACES)]


def _source(view: str, write: str, handed: str, place: str) -> str:
    body = PLACES[place].format(write=WRITES[write], handed=HANDED[handed])
    return _PROGRAM.format(view=VIEWS[view], place=body)


def outcome(case: tuple[str, str, str, str]) -> str:
    """Whether a program is right, refused, or one that eager mode does not take; else where it is wrong."""
    source, name = _source(*case), f"/handed on/{' '.join(case)}.py"
    example = torch.rand(4, 4)
    try:
        model_of(source, name)(example)
    except (RuntimeError, IndexError):
        return "not in eager mode"
    try:
        onnx = to_onnx(model_of(source, name).eval(), (example,), dynamic_shapes=({0: "rows"},), rewrite="auto")
    except ExportGuardError:
        return "refused"
    for rows, factor in itertools.product((1, 2, 4, 5), (1.0, -1.0, 0.01)):
        x = factor * torch.rand(rows, 4)
        model, found = model_of(source, name), onnx.run({"x": x})
        expected = [*model(x.clone()), *([model.bias] if "bias_mutated" in found else [])]
        pairs = zip(found.values(), expected, strict=True)
        if not all(torch.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in pairs):
            return f"wrong at {rows} rows, times {factor}"
    return "right"


@pytest.mark.thinned(5)
@pytest.mark.parametrize("case", CASES[::17], ids=" - ".join)
def test_what_is_handed_on_is_right_or_refused(case: tuple[str, str, str, str]) -> None:
    assert outcome(case) in ("right", "refused", "not in eager mode")
