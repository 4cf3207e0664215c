"""Two inputs of other names that operators want to be of one size: a single entry is broadcast, or the file stops."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor
from torch.export import Dim

from called import CalledWithTwo
from exportguard import ExportOptions, OnnxModel, load, to_onnx

Computed = Callable[[Tensor, Tensor], Tensor]

#: No size stands in these: a file broadcasts as its operators do.
OF_NO_SIZE: Mapping[str, Computed] = {
    "added": lambda a, b: a + b,
    "summed": lambda a, b: (a + b).sum(1),
    "greatest": lambda a, b: (a * b).amax(1),
    "softened": lambda a, b: (a - b).softmax(1),
    "counted up": lambda a, b: (a + b).cumsum(1),
    "flat": lambda a, b: (a + b).flatten(0, 1),
    "chosen": lambda a, b: torch.where(a > 0, a, b),
    "compared": lambda a, b: (a > b).float(),
    "powers": lambda a, b: a.abs() ** b.abs(),
    "normed": lambda a, b: torch.nn.functional.layer_norm(a + b, (3,), torch.ones(3), torch.zeros(3)),
    "normed by squares": lambda a, b: torch.nn.functional.rms_norm(a + b, (3,), torch.ones(3)),
    "sum of a product": lambda a, b: a + b * 2 + b.sigmoid() * b,
    "attended": lambda a, b: torch.nn.functional.scaled_dot_product_attention(a + b, a + b, a + b),
}
#: In these there is one, which the trace has for either.
OF_A_SIZE: Mapping[str, Computed] = {
    "mean": lambda a, b: (a + b).mean(1),
    "one's size": lambda a, b: (a + b) * a.shape[1],
    "other's size": lambda a, b: (a + b) * b.shape[1],
    "own size": lambda a, b: (a + b) / (a + b).shape[1],
    "spread": lambda a, b: (a + b).var(1, unbiased=False),
    "numbered": lambda a, b: (a + b) + torch.arange((a + b).shape[1])[:, None],
    "padded": lambda a, b: torch.nn.functional.pad(a + b, (0, 0, 0, b.shape[1])),
    "behind each other": lambda a, b: torch.cat([(a + b), a.new_ones(2, b.shape[1], 3)], 1),
    "last": lambda a, b: (a + b)[:, b.shape[1] - 1],
    "a rest of it": lambda a, b: (a + b) * (b.shape[1] % 4),
    "far from all data": lambda a, b: (1e3 * (a + b)).clamp(-20.0, b.shape[1] + 20.0),
    "rows of another": lambda a, b: b.reshape(-1, (a * b).shape[1], 3),
    "parts": lambda a, b: (a * b).chunk(2, 1)[0],
    "two sums": lambda a, b: (a + b).mean(1) + (a * b).mean(1),
}
NAMES: Mapping[str, Any] = {"named": ({1: "p"}, {1: "q"}), "unnamed": ({1: Dim.DYNAMIC}, {1: Dim.DYNAMIC})}
SIZES = (1, 4, 5)


def exported(compute: Computed, shapes: Any, **options: Any) -> OnnxModel:
    return to_onnx(
        CalledWithTwo(compute).eval(), (torch.randn(2, 5, 3), torch.randn(2, 5, 3)), dynamic_shapes=shapes, **options
    )


def verdicts(compute: Computed, file: OnnxModel) -> Counter[str]:
    found: Counter[str] = Counter()
    names = [value.name for value in file.inputs]
    for sizes in itertools.product(SIZES, repeat=2):
        given = [torch.randn(2, size, 3) for size in sizes]
        try:
            expected = compute(*given)
        except RuntimeError:
            continue
        try:
            (got,) = file.run(dict(zip(names, given, strict=True))).values()
        except RuntimeError:
            found["stops"] += 1
            continue
        found["right" if got.shape == expected.shape and torch.allclose(got, expected, atol=1e-5) else "wrong"] += 1
    return found


def again(file: OnnxModel) -> OnnxModel:
    """The file as it is read and optimized once more."""
    found = load(file.to_bytes())
    found.optimize()
    return found


@pytest.mark.parametrize("optimize", [True, "onnxruntime"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("name", OF_NO_SIZE)
def test_a_single_entry_is_broadcast(name: str, names: str, optimize: Any) -> None:
    file = exported(OF_NO_SIZE[name], NAMES[names], optimize=optimize)
    # Operators of com.microsoft that add first take no single row.
    skips = any(node.op_type.startswith("Skip") for node in onnx.load_from_string(file.to_bytes()).graph.node)
    expected = {"right": 3, "stops": 4} if skips else {"right": 7}
    assert verdicts(OF_NO_SIZE[name], file) == expected
    assert verdicts(OF_NO_SIZE[name], again(file)) == expected


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("name", OF_A_SIZE)
def test_a_file_stops_where_it_has_the_size_of_the_other(name: str, names: str) -> None:
    file = exported(OF_A_SIZE[name], NAMES[names])
    found = verdicts(OF_A_SIZE[name], file)
    assert not found["wrong"]
    assert found["right"] >= len(SIZES)
    assert verdicts(OF_A_SIZE[name], again(file)) == found


@pytest.mark.parametrize("names", NAMES)
def test_types_tell_apart_what_may_be_another_size(names: str) -> None:
    """onnxruntime fuses operators, and shares memory, where types have one name for two sizes."""
    file = exported(OF_NO_SIZE["added"], NAMES[names])
    one, other = (value.shape for value in file.inputs)
    (output,) = (value.shape for value in file.outputs)
    told = {"named": ["p", "q"], "unnamed": ["x_dim1", "y_dim1"]}[names]
    assert [one[1], other[1]] == told
    assert output[1] not in told
    assert [one[0], other[0], output[0]] == [2, 2, 2]


def test_a_name_that_is_none_in_a_graph_is_written_as_one() -> None:
    file = exported(OF_NO_SIZE["added"], ({1: "seq of x"}, {1: "seq of y"}))
    assert [value.shape[1] for value in file.inputs] == ["seq_of_x", "seq_of_y"]


def test_axes_of_the_same_name_go_by_it_together() -> None:
    class Three(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
            return (a + b).mean(1) + c.mean(1)

    inputs = tuple(torch.randn(2, 5, 3) for _ in range(3))
    file = to_onnx(Three().eval(), inputs, dynamic_shapes=({1: "p"}, {1: "q"}, {1: "q"}))
    assert [value.shape for value in file.inputs] == [(2, "p", 3), (2, "q", 3), (2, "q", 3)]


def test_it_would_be_wrong_otherwise() -> None:
    compute = OF_A_SIZE["other's size"]
    file = exported(compute, NAMES["named"], options=ExportOptions(check_sizes=False))
    assert verdicts(compute, file)["wrong"]


def test_the_report_tells_of_a_single_one() -> None:
    (axis, _) = exported(OF_NO_SIZE["added"], NAMES["named"]).axes
    assert str(axis).endswith("the model refuses other sizes than p == q or a single one")


def test_the_evaluator_stops_as_well() -> None:
    """What the file was asked for its answers knows nothing of the check that came after them."""
    compute = OF_A_SIZE["other's size"]
    file = exported(compute, NAMES["named"])
    feeds = dict(zip([value.name for value in file.inputs], (torch.ones(2, 4, 3), torch.ones(2, 1, 3)), strict=True))
    for runner in ("evaluator", "onnxruntime"):
        with pytest.raises(Exception, match="Reshape"):
            file.run(feeds, runner=runner)


class Layers(torch.nn.Module):
    """Each layer compares its own two sizes, at one line."""

    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        rows = torch.zeros(2, 3)
        for one, other in [(a, b), (c, d)]:
            rows = rows + (one + other).mean(1)
        return rows


def test_every_layer_that_asks_at_one_line_is_checked() -> None:
    inputs = tuple(torch.randn(2, size, 3) for size in (5, 5, 6, 6))
    model = Layers().eval()
    file = to_onnx(model, inputs, dynamic_shapes=tuple({1: name} for name in "pqrs"))
    outcomes: Counter[str] = Counter()
    for sizes in itertools.product((1, 4), repeat=4):
        given = [torch.randn(2, size, 3) for size in sizes]
        try:
            (got,) = file.run(dict(zip("abcd", given, strict=True))).values()
        except RuntimeError:
            outcomes["stops"] += 1
            continue
        torch.testing.assert_close(got, model(*given))
        outcomes["right"] += 1
    assert outcomes["right"] >= 4
    assert outcomes["stops"] > 0


def test_what_only_one_side_may_be_is_told_apart() -> None:
    """The bias may be a single row, and the file has the size of the other: it stops at a single row of that alone."""

    def compute(a: Tensor, b: Tensor) -> Tensor:
        return (a + b).mean(1)

    file = exported(compute, NAMES["named"])
    given = {"x": torch.randn(2, 5, 3), "y": torch.randn(2, 1, 3)}
    names = [value.name for value in file.inputs]
    feeds = dict(zip(names, given.values(), strict=True))
    torch.testing.assert_close(file.run(feeds)["output_0"], compute(*given.values()))
    with pytest.raises(RuntimeError, match="only sizes with p == q"):
        file.run(dict(zip(names, reversed(given.values()), strict=True)))


@pytest.mark.parametrize(
    "compute",
    [
        lambda a, b: (a + b, a * 2)[1],
        lambda a, b: (a + b)[:, 0],
        lambda a, b: a.expand(b.shape[0], b.shape[1], 3),
        lambda a, b: torch.einsum("bld,bld->bd", a, b),
    ],
    ids=["dead", "the first row", "expanded", "products"],
)
def test_what_the_model_refuses_beside_a_single_entry_stays_refused(compute: Computed) -> None:
    file = exported(compute, NAMES["named"])
    names = [value.name for value in file.inputs]
    for sizes in itertools.product((1, 2, 4, 5), repeat=2):
        given = [torch.randn(2, size, 3) for size in sizes]
        feeds = dict(zip(names, given, strict=True))
        try:
            expected = compute(*given)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                file.run(feeds)
            continue
        try:
            got = file.run(feeds)["output_0"]
        except RuntimeError:
            assert 1 in sizes, sizes
        else:
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


class OfManyKinds(torch.nn.Module):
    """Takes arguments of every kind, and returns nothing and a number beside a tensor."""

    def forward(self, a: Tensor, flag: bool = True, b: Any = None, *rest: Tensor, scale: float = 2.0, **kw: Any) -> Any:
        y = (a + b) * scale if flag else a
        for one in rest:
            y = y + one
        return y.mean(1) + kw["more"]["x"].sum(1), None, 3


def test_arguments_of_every_kind_are_given_to_the_file() -> None:
    a, b, c, x = (torch.randn(2, size, 3) for size in (5, 5, 5, 6))
    shapes: Any = {
        "a": {1: "p"}, "flag": None, "b": {1: "q"}, "rest": ({1: "r"},), "scale": None,
        "kw": {"more": {"x": {1: "z"}, "none": None}},
    }  # fmt: skip
    model, kwargs = OfManyKinds().eval(), {"scale": 3.0, "more": {"x": x, "none": None}}
    file = to_onnx(model, (a, True, b, c), kwargs, dynamic_shapes=shapes)
    names = [value.name for value in file.inputs]
    for sizes in itertools.product((1, 4), repeat=3):
        given = [torch.randn(2, size, 3) for size in sizes]
        expected = model(given[0], True, *given[1:], scale=3.0, more={"x": x, "none": None})[0]
        try:
            got = file.run(dict(zip(names, [*given, x], strict=True)))["output_0"]
        except RuntimeError:
            assert {*sizes} == {1, 4}
        else:
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
