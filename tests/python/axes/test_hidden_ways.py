"""Tests of sizes whose ways do the same for most numbers, and something else for large, small, infinite ones or NaN."""

from __future__ import annotations

import pytest
import torch
from random_programs import model_of

from exportguard import AxisError, ExportError, ExportGuardError, to_onnx

#: What one of both ways does to `w`, that the other does not.
WAYS = {
    "a bound from above": "w = w.clamp(max=50)",
    "a bound from below": "w = torch.relu(w + 30) - 30",
    "no NaN": "w = torch.nan_to_num(w, nan=0.0)",
    "no infinite number": "w = torch.where(w.isinf(), 0.0, w)",
    "no large number": "w = w.masked_fill(w > 100, 0)",
    "no small number": "w = torch.where(w.abs() < 1e-3, 7.0, w)",
    "twice what is large": "w = w + torch.relu(w - 40)",
    "another step": "w = w + 2 * torch.floor(w / 50)",
    "another zero": "w = torch.where(w == 0, -1.0, w)",
}

TESTS = ("x.shape[0] > 4", "len(x) in (2, 5)", "x.shape[0] % 3 == 1", "not x.size(0) < 7")

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        w = x.mean(0)
        if {test}:
            {way}
        return w
"""


def _data(rows: int) -> list[torch.Tensor]:
    plain = torch.rand(rows, 4)
    holes = plain.clone()
    holes[0, 0], holes[0, 1], holes[0, 2] = torch.nan, torch.inf, -torch.inf
    return [plain, 1000 * plain, -1000 * plain, 1e-5 * plain, torch.zeros(rows, 4), holes]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("test", TESTS)
def test_a_way_that_shows_at_few_numbers_is_found(test: str, way: str) -> None:
    model = model_of(_PROGRAM.format(test=test, way=WAYS[way]), f"/ways/{test} {way}.py")
    example, shapes = (torch.rand(3, 4),), ({0: "rows"},)
    with pytest.raises(AxisError, match=r"something else than the model|fixed to 3"):
        to_onnx(model, example, dynamic_shapes=shapes)
    onnx = to_onnx(model, example, dynamic_shapes=shapes, rewrite="auto")
    for rows in (1, 2, 3, 4, 5, 7, 8):
        for x in _data(rows):
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, model(x), equal_nan=True)


class DividesByNothing(torch.nn.Module):
    """What data make infinite is the same in both ways."""

    def forward(self, x):
        w = x[0] / (int(x.sum().abs()) % 3)
        if x.shape[0] == 2 or x.shape[0] == 5:
            w = w + 3
        return w


@pytest.mark.parametrize("seed", range(6))
def test_ways_that_are_infinite_for_the_data_at_hand_are_told_apart(seed: int) -> None:
    torch.manual_seed(seed)
    onnx = to_onnx(DividesByNothing(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in range(1, 8):
        for scale in (1, -3, 10):
            x = scale * torch.rand(rows, 4)
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, DividesByNothing()(x), equal_nan=True)


_OF_TOKENS = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(20, 8)
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        w = self.layer(self.table(x))
        if x.shape[0] > 4:
            {way}
        return w.sum(0)
"""


@pytest.mark.parametrize("way", ["a bound from above", "a bound from below", "no large number", "no small number"])
def test_a_way_that_shows_at_other_weights_is_found(way: str) -> None:
    model = model_of(_OF_TOKENS.format(way=WAYS[way]), f"/ways/tokens {way}.py").eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(model, (torch.arange(3),), dynamic_shapes=({0: "tokens"},))
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0)


_CENTRED = "w = y.view(n // {k}, {k}, 4)\n            y = (w - w.mean(1, keepdim=True)).view(n, 4)"

#: Bodies of models that go another way at some sizes, and what hides it from a comparison at the example's data.
HIDDEN = {
    "windows of twelve": f"if n > 12:\n            {_CENTRED.format(k=12)}",
    "windows of eleven": f"if n > 4:\n            {_CENTRED.format(k=11)}",
    "a number for none": "y = y * 2 if n > 4 else y\n        y = y.masked_fill(torch.arange(4) > 2, -1e9)",
    "the lowest number": "y = y * 2 if n > 4 else y\n        y = y.masked_fill(torch.arange(4) > 2, -3.4028234e38)",
    "a test within a test": "if n > 4:\n            if n == 9:\n                y = y.clamp(max=50)",
    "many rows": "if n > 1100:\n            y = y.clamp(max=50)",
    "truth values": "if n > 4:\n            y = y.masked_fill(~mask[:, None], 0)",
}

_OF_ROWS = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, mask):
        y, n = self.layer(x), x.shape[0]
        {body}
        return {returned}
"""


def _model(name: str, body: str, returned: str = "y") -> torch.nn.Module:
    return model_of(_OF_ROWS.format(body=body, returned=returned), f"/hidden/{name}.py").eval()


_EXAMPLE = (torch.randn(3, 4), torch.ones(3, dtype=torch.bool))
_AXES = ({0: "rows"}, {0: "rows"})


@pytest.mark.parametrize("name", HIDDEN)
def test_what_hides_another_way_is_seen_through(name: str) -> None:
    model = _model(name, HIDDEN[name])
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(model, _EXAMPLE, dynamic_shapes=_AXES)
    onnx = to_onnx(model, _EXAMPLE, dynamic_shapes=_AXES, rewrite="auto")
    for rows in (1, 3, 5, 9, 11, 22, 24, 1200):
        for scale in (1, 1000):
            given = {"x": scale * torch.randn(rows, 4), "mask": torch.rand(rows) > 0.5}
            try:
                expected = model(**given)
            except RuntimeError:  # no whole windows
                continue
            (found,) = onnx.run(given).values()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * scale)


#: What a model returns at some sizes in another number of tensors, or under other names.
RETURNED = {
    "parts": "list(y.split(4)) if n > 4 else [y]",
    "names": "{'long': y} if n > 4 else {'short': y}",
    "two": "(y[:4], y[4:]) if n > 4 else (y,)",
}


@pytest.mark.parametrize("rewrite", [None, "auto"], ids=str)
@pytest.mark.parametrize("name", RETURNED)
def test_results_of_another_structure_are_another_way(name: str, rewrite: str | None) -> None:
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(_model(name, "pass", RETURNED[name]), _EXAMPLE, dynamic_shapes=_AXES, rewrite=rewrite)


@pytest.mark.parametrize("rewrite", [None, "auto"], ids=str)
@pytest.mark.parametrize("asked", ["torch.compiler.is_compiling()", "isinstance(n, torch.SymInt)"])
def test_what_is_done_in_a_trace_alone_is_found(asked: str, rewrite: str | None) -> None:
    model = _model(asked, f"if not {asked} and n > 4:\n            y = y * 2")
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(model, _EXAMPLE, dynamic_shapes=_AXES, rewrite=rewrite)


@pytest.mark.parametrize("asked", ["is_compiling", "is_exporting"])
def test_what_a_trace_alone_does_at_every_size_is_refused_with_its_reason(asked: str) -> None:
    model = _model("trace", f"if torch.compiler.{asked}():\n            y = y * 2")
    with pytest.raises(ExportError, match="what is done in a trace alone"):
        to_onnx(model, _EXAMPLE, dynamic_shapes=_AXES)


class LastOrMean(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y = self.table(ids)
        return y[:, -1] if ids.shape[1] > 4 else y.mean(1)


def test_equal_tokens_of_an_example_hide_nothing() -> None:
    example = (torch.ones(2, 3, dtype=torch.int64),)
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(LastOrMean(), example, dynamic_shapes=({1: "tokens"},))


class LeavesOut(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y = self.table(ids)
        if ids.shape[1] > 4:
            y = y * (ids != 99)[..., None]
        return y.sum(1)


def test_a_number_that_the_code_names_is_put_into_inputs() -> None:
    example = (torch.arange(6).reshape(2, 3),)
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(LeavesOut(), example, dynamic_shapes=({1: "tokens"},))


class DecoratedWithInferenceMode(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y * 2 if x.shape[0] > 4 else y


def test_an_error_whose_context_leads_back_to_it_ends_the_search() -> None:
    with pytest.raises(ExportGuardError):
        to_onnx(DecoratedWithInferenceMode(), _EXAMPLE[:1], dynamic_shapes=_AXES[:1], rewrite="auto")


#: Ways that are like the traced one at small sizes, and not where a number of theirs is reached.
STEPS = {
    "a quotient": "y = y * (n // 64 + 1)",
    "a quotient behind a bound": "y = y * max(1, n // 64)",
    "a quotient of numbers": "y = y + (torch.arange(n) // 70)[:, None]",
    "as many entries": "y = y * 2 if y.numel() == 148 else y",
    "a remainder": "y = y * (1 + (-n % 40 == 3))",
}


@pytest.mark.parametrize("rewrite", ["none", "auto"])
@pytest.mark.parametrize("name", STEPS)
def test_a_way_that_is_another_one_from_some_size_on_is_found(name: str, rewrite: str) -> None:
    model = _model(f"{name} {rewrite}", f"if n > 4:\n            {STEPS[name]}")
    if rewrite == "none" and name in ("as many entries", "a remainder"):
        with pytest.raises(AxisError, match="something else than the model"):
            to_onnx(model, _EXAMPLE, dynamic_shapes=_AXES)
        return
    onnx = to_onnx(model, _EXAMPLE, dynamic_shapes=_AXES, rewrite=None if rewrite == "none" else rewrite)
    for rows in (1, 2, 3, 4, 5, 9, 37, 63, 64, 71, 128, 141, 300):
        x, mask = torch.randn(rows, 4), torch.ones(rows, dtype=torch.bool)
        (found,) = onnx.run({"x": x, "mask": mask}).values()
        torch.testing.assert_close(found, model(x, mask), rtol=1e-4, atol=1e-4)
