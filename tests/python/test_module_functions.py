"""`modules_as_functions`: modules as local functions of the ONNX model, right in onnxruntime and in the evaluator."""

from __future__ import annotations

import inspect
import random
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from exportguard import ExportOptions, InvalidArgumentError, OnnxModel, load, to_onnx
from exportguard.models import BuildOptions, build_model


class Feed(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x))) * 0.5


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.feed = Feed(width)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(x.shape[0], -1, 2).sum(-1, keepdim=True).mean(1, keepdim=True)
        return x + self.feed(self.norm(x)) * scale + rows


class Blocks(torch.nn.Module):
    def __init__(self, widths: tuple[int, ...] = (8, 8, 8), others: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(width) for width in widths)
        if others:
            self.layers[1].feed.down = torch.nn.Linear(2 * widths[1], widths[1], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = (x.shape[1] * torch.ones(())).to(x.dtype)
        for layer in self.layers:
            x = layer(x, scale)
        return torch.tanh(x)


ROWS = {"x": {0: "batch", 1: "rows"}}


def converted(model: torch.nn.Module, **options: Any) -> OnnxModel:
    return to_onnx(model.eval(), (torch.randn(2, 3, 8),), dynamic_shapes=ROWS, **options)


def require_right(model: torch.nn.Module, made: OnnxModel) -> None:
    """At sizes that were not traced, in both runners, read from a file as well."""
    for shape in ((2, 3, 8), (1, 5, 8), (4, 1, 8)):
        x = torch.randn(shape)
        for runner in ("onnxruntime", "evaluator"):
            (got,) = made.run({made.inputs[0].name: x}, runner=runner).values()  # type: ignore[arg-type]
            torch.testing.assert_close(torch.as_tensor(got), model(x), rtol=1e-4, atol=1e-5)


def functions(made: OnnxModel, folder: Path) -> dict[str, list[str]]:
    """The operators of each local function of the file, which the checker takes."""
    file = folder / "model.onnx"
    made.save(file)
    onnx.checker.check_model(str(file), full_check=True)
    return {one.name: [node.op_type for node in one.node] for one in onnx.load(file).functions}


def calls(made: OnnxModel, folder: Path) -> list[str]:
    file = folder / "model.onnx"
    made.save(file)
    return [node.op_type for node in onnx.load(file).graph.node]


# ---------------------------------------------------------------------------------------------------- which modules


def test_a_class_becomes_one_function_that_each_of_its_modules_calls(tmp_path: Path) -> None:
    model = Blocks()
    made = converted(model, modules_as_functions=[Feed])
    assert list(functions(made, tmp_path)) == ["Feed"]
    assert calls(made, tmp_path).count("Feed") == 3
    require_right(model, made)


def test_what_repeats_is_one_function(tmp_path: Path) -> None:
    model = Blocks()
    made = converted(model, modules_as_functions="repeated")
    assert calls(made, tmp_path).count("Block") == 3 or "Block_2" in functions(made, tmp_path)
    assert "Feed" not in functions(made, tmp_path)
    require_right(model, made)


def test_functions_call_those_of_inner_modules(tmp_path: Path) -> None:
    model = Blocks()
    made = converted(model, modules_as_functions=[Block, Feed])
    found = functions(made, tmp_path)
    assert any("Feed" in operators for name, operators in found.items() if name.startswith("Block"))
    require_right(model, made)


def test_modules_of_one_class_with_other_bodies_are_other_functions(tmp_path: Path) -> None:
    model = Blocks(others=True)
    made = converted(model, modules_as_functions=[Feed])
    assert sorted(functions(made, tmp_path)) == ["Feed", "Feed_2"]
    require_right(model, made)


def test_a_body_has_its_own_numbers_and_its_weights_come_in(tmp_path: Path) -> None:
    made = converted(Blocks(), modules_as_functions=[Feed])
    functions(made, tmp_path)
    (function,) = onnx.load(tmp_path / "model.onnx").functions
    assert len(function.input) == 5  # x, and two weights and two biases
    own = {name for node in function.node for name in node.output} | set(function.input)
    assert all(name in own for node in function.node for name in node.input if name)


@pytest.mark.parametrize("wanted", [[int], 5, ["Feed"], [torch.nn.Linear(1, 1)]])
def test_what_is_no_class_of_modules_is_refused(wanted: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="modules_as_functions must be classes"):
        ExportOptions(modules_as_functions=wanted)


def test_a_class_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Conv2d, of which the program has no module; it has .*Block"):
        converted(Blocks(), modules_as_functions=[torch.nn.Conv2d])


# ---------------------------------------------------------------------------------------------------- afterwards


def test_the_optimizer_leaves_them_right(tmp_path: Path) -> None:
    model = Blocks()
    made = converted(model, optimize=False, modules_as_functions=[Block, Feed])
    made.optimize()
    assert "Block" in functions(made, tmp_path)
    require_right(model, made)


def test_a_file_with_functions_is_read_again(tmp_path: Path) -> None:
    model = Blocks()
    converted(model, modules_as_functions=[Feed]).save(tmp_path / "model.onnx")
    read = load(tmp_path / "model.onnx")
    require_right(model, read)
    read.optimize()
    require_right(model, read)


def test_a_module_that_is_called_twice_is_two_calls(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feed = Feed(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.feed(torch.relu(self.feed(x)) + x)

    model = Twice()
    made = converted(model, modules_as_functions=[Feed])
    assert calls(made, tmp_path).count("Feed") == 2
    require_right(model, made)


def test_a_module_inside_a_loop_stays_and_is_right() -> None:
    class InBranch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feed = Feed(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.feed(x)
            return torch.cond(x.sum() > 0, lambda v: self.feed(v) + 1, lambda v: v - 1, (y,))

    model = InBranch()
    require_right(model, converted(model, modules_as_functions=[Feed]))


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_the_layers_of_a_model_are_functions(name: str, tmp_path: Path) -> None:
    case = build_model(name, BuildOptions())
    given = case.inputs(case.task.sizes)
    inputs = {name: given[name] for name in inspect.signature(case.model.forward).parameters if name in given}
    plain, made = (to_onnx(case.model, (), inputs, modules_as_functions=wanted) for wanted in ((), "repeated"))
    assert any("Layer" in name for name in functions(made, tmp_path))
    feeds = {value.name: torch.as_tensor(leaf) for value, leaf in zip(made.inputs, leaves(inputs), strict=True)}
    for runner in ("onnxruntime", "evaluator"):
        expected, got = (one.run(feeds, runner=runner) for one in (plain, made))  # type: ignore[arg-type]
        for key in expected:
            torch.testing.assert_close(torch.as_tensor(got[key]), torch.as_tensor(expected[key]), rtol=1e-4, atol=1e-5)


def leaves(inputs: Any) -> list[Any]:
    from exportguard import torch_export_patches

    with torch_export_patches(patch=False):
        return [leaf for leaf in torch.utils._pytree.tree_leaves(inputs) if leaf is not None]


# ---------------------------------------------------------------------------------------------------- random models


class Random(torch.nn.Module):
    """A block of random steps over two values, some of which lie in a module of their own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.steps = [(draw.randrange(5), draw.randrange(2), draw.randrange(2)) for _ in range(draw.randint(2, 7))]
        self.feeds = torch.nn.ModuleList(Feed(8) for _ in range(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = [x, y]
        for kind, source, target in self.steps:
            a, b = values[source], values[1 - source]
            made = (a + b, torch.tanh(a), self.feeds[0](a), self.feeds[1](b) - a, a * b.shape[1])[kind]
            values[target] = made
        return values[0], values[1]


class RandomBlocks(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Random(seed + shift) for shift in (0, 0, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for block in self.blocks:
            x, y = block(x, y)
        return x + y


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wanted", [[Random], [Feed], [Random, Feed], "repeated"], ids=str)
def test_random_blocks_are_right(seed: int, wanted: Any) -> None:
    model = RandomBlocks(seed).eval()
    if wanted == [Feed] and not any(step[0] in (2, 3) for block in model.blocks for step in block.steps):  # type: ignore[union-attr]
        wanted = [Random]
    require_right(model, converted(model, modules_as_functions=wanted))
