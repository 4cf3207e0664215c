"""Rules of one's own for the optimizer, from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import exportguard
from exportguard import Hole, Pattern, builtin_patterns
from exportguard.errors import GraphError, InvalidArgumentError

Model = exportguard.OnnxModel


def model_of(write: Callable[[Any, Any], Any], shape: tuple[int | str, ...] = ("n", 4), dtype: str = "f32") -> Model:
    """The model with one input x that a function writes."""
    g = exportguard.GraphBuilder(opset=20)
    g.output(write(g, g.input("x", dtype, list(shape))), "y")
    return g.to_model()


def operators(model: Model) -> list[str]:
    """Operators of the nodes, in their order."""
    lines = model.text().splitlines()
    return [line.split("= ")[1].split("(")[0] for line in lines if line.startswith("  %")]


def check(model: Model, rule: Pattern, **sizes: int) -> list[str]:
    """The operators with the rule; the outputs stay what they are."""
    inputs = {
        v.name: torch.rand([size if isinstance(size, int) else 3 for size in v.shape or ()]) for v in model.inputs
    }
    before = model.run(inputs, runner="evaluator")["y"]
    model.optimize(patterns=[rule])
    torch.testing.assert_close(model.run(inputs, runner="evaluator")["y"], before)
    return operators(model)


def silu(g: Any, x: Any) -> Any:
    return g.op.Mul(x, g.op.Sigmoid(x))


def quick_gelu(g: Any, x: Any) -> Any:
    return g.domain("com.microsoft").QuickGelu(x, alpha=1.0)


def test_what_the_match_writes_becomes_what_the_replacement_writes() -> None:
    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    report = model.optimize(patterns=[Pattern(silu, quick_gelu, name="silu")])
    assert operators(model) == ["com.microsoft::QuickGelu"]
    assert [(use.name, use.applied) for use in report.patterns] == [("silu", 1)]
    x = torch.randn(3, 4)
    torch.testing.assert_close(model.run({"x": x})["y"], torch.nn.functional.silu(x))


def test_a_rule_has_the_name_of_its_match_unless_told() -> None:
    assert Pattern(silu, quick_gelu).name == "silu"


def test_own_rules_go_together_with_the_built_in_ones() -> None:
    model = model_of(lambda g, x: g.op.Identity(g.op.Mul(g.op.Sigmoid(x), x)))
    model.optimize(patterns=[*builtin_patterns(), Pattern(silu, quick_gelu)])
    assert operators(model) == ["com.microsoft::QuickGelu"]


def test_a_condition_tells_why_it_declines() -> None:
    def condition(x: Any) -> bool | str:
        return x.dtype == "f16" or "only in half precision"

    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    report = model.optimize(patterns=[Pattern(silu, quick_gelu, condition=condition)])
    assert list(report.patterns[0].refusals) == ["only in half precision"]
    assert operators(model) == ["Sigmoid", "Mul"]


def test_a_condition_may_read_constants() -> None:
    def match(g: Any, x: Any, factor: Any) -> Any:
        return g.op.Mul(g.op.Abs(x), factor)

    def is_positive(factor: Any) -> bool:
        return bool((factor.constant > 0).all())

    rule = Pattern(
        match,
        lambda g, x, factor: g.op.Abs(g.op.Mul(x, factor)),
        condition=is_positive,
        holes={"factor": Hole(constant=True)},
    )
    assert check(model_of(lambda g, x: g.op.Mul(torch.ones(4), g.op.Abs(x))), rule) == ["Mul", "Abs"]
    assert check(model_of(lambda g, x: g.op.Mul(-torch.ones(4), g.op.Abs(x))), rule) == ["Abs", "Mul"]
    assert check(model_of(lambda g, x: g.op.Mul(x, g.op.Abs(x))), rule) == ["Abs", "Mul"]


def test_sizes_by_name_are_given_to_the_replacement() -> None:
    def match(g: Any, x: Any, sizes: Any) -> Any:
        return g.op.Reshape(g.op.Neg(x), sizes)

    def replacement(g: Any, x: Any, rows: int | str, columns: int) -> Any:
        return g.op.Neg(g.op.Reshape(x, g.sizes([rows, 1, columns])))

    rule = Pattern(
        match,
        replacement,
        holes={"x": Hole("f32", ["rows", "columns"]), "sizes": Hole(elements=["rows", 1, "columns"])},
    )

    def write(g: Any, x: Any) -> Any:
        return g.op.Reshape(g.op.Neg(x), g.sizes(["n", 1, 4]))

    assert check(model_of(write), rule)[-2:] == ["Reshape", "Neg"]
    other = model_of(lambda g, x: g.op.Reshape(g.op.Neg(x), [2, 2, 4]), shape=(4, 4))
    assert check(other, rule)[-2:] == ["Neg", "Reshape"]


def test_an_attribute_with_any_value_is_given_to_both_functions() -> None:
    rule = Pattern(
        lambda g, x: g.op.LeakyRelu(g.op.Neg(x)),
        lambda g, x, slope: g.op.Neg(g.op.Min(x, g.op.Mul(x, slope))),
        condition=lambda slope: slope is not None and slope < 1,
        attributes={"slope": "LeakyRelu.alpha"},
    )
    assert check(model_of(lambda g, x: g.op.LeakyRelu(g.op.Neg(x), alpha=0.5)), rule) == ["Mul", "Min", "Neg"]
    assert check(model_of(lambda g, x: g.op.LeakyRelu(g.op.Neg(x))), rule) == ["Neg", "LeakyRelu"]


def test_a_rule_may_have_several_outputs() -> None:
    def match(g: Any, x: Any) -> Any:
        a, b = g.op.Split(x, num_outputs=2, axis=-1)
        return g.op.Add(a, b), a

    def replacement(g: Any, x: Any) -> Any:
        a, b = g.op.Split(x, num_outputs=2, axis=-1)
        return g.op.Sum(a, b), a

    def write(g: Any, x: Any) -> Any:
        a, b = g.op.Split(x, num_outputs=2, axis=-1)
        total = g.op.Add(a, b)
        return g.op.Mul(total, a)

    assert check(model_of(write), Pattern(match, replacement)) == ["Split", "Sum", "Mul"]


def test_what_the_replacement_raises_leaves_the_model() -> None:
    def broken(g: Any, x: Any) -> Any:
        g.op.Abs(x)
        raise ValueError("no")

    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    before = model.text()
    with pytest.raises(ValueError, match="no"):
        model.optimize(patterns=[Pattern(silu, broken)])
    assert model.text() == before


@pytest.mark.parametrize(
    ("replacement", "error"),
    [
        pytest.param(lambda g, x: None, "must return values of the graph, got None", id="nothing"),
        pytest.param(lambda g, x: (x, x), "gives 2 values, the match has 1 outputs", id="too many"),
        pytest.param(lambda g, x: g.op.Cast(x, to="f16"), r"is f16\[n,4\], it takes the place of", id="another dtype"),
        pytest.param(lambda g, x: g.op.ReduceSum(x), r"is f32\[.*\], it takes the place of", id="another shape"),
    ],
)
def test_a_wrong_replacement_is_an_error(replacement: Callable[..., Any], error: str) -> None:
    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    before = model.text()
    with pytest.raises(InvalidArgumentError, match=error):
        model.optimize(patterns=[Pattern(silu, replacement)])
    assert model.text() == before


def test_values_cannot_be_kept() -> None:
    kept: list[Any] = []
    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    model.optimize(patterns=[Pattern(silu, quick_gelu, condition=lambda x: bool(kept.append(x)))])
    with pytest.raises(InvalidArgumentError, match="can no longer be used"):
        print(kept[0].dtype)


def test_rules_that_undo_each_other_are_an_error() -> None:
    back = Pattern(lambda g, x: g.op.Neg(x), lambda g, x: g.op.Sub(0.0, x), name="back")
    forth = Pattern(lambda g, x: g.op.Sub(0.0, x), lambda g, x: g.op.Neg(x), name="forth")
    with pytest.raises(InvalidArgumentError, match="was applied again and again"):
        model_of(lambda g, x: g.op.Neg(x)).optimize(patterns=[back, forth])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(lambda: Pattern(silu, lambda g, z: z), "the replacement asks for z", id="unknown parameter"),
        pytest.param(lambda: Pattern(silu, quick_gelu, condition=lambda w: True), "the condition asks for w", id="w"),
        pytest.param(lambda: Pattern(silu, quick_gelu, holes={"w": Hole()}), "holes w that its match", id="hole"),
        pytest.param(lambda: Pattern(silu, quick_gelu, attributes={"a": "alpha"}), "of the form", id="attribute"),
        pytest.param(lambda: Pattern(silu, lambda g, *x: x), "take their arguments by name", id="starred"),
        pytest.param(lambda: Pattern(None, quick_gelu), "match must be a function", id="no function"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_rule_is_refused_when_it_is_made(make: Callable[[], Any], error: str) -> None:
    with pytest.raises(InvalidArgumentError, match=error):
        make()


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        pytest.param(Pattern(lambda g, x: x, quick_gelu), "the match has no node", id="no node"),
        pytest.param(Pattern(lambda g, x: 3, quick_gelu), "must be a value, got 3", id="no value"),
        pytest.param(Pattern(lambda g, x: g.op.Nothing(x), quick_gelu), "no operator Nothing", id="no operator"),
        pytest.param(
            Pattern(silu, quick_gelu, attributes={"alpha": "LeakyRelu.alpha"}), "has 0 nodes instead of one", id="node"
        ),
        pytest.param("silu", "no pattern or pass is named 'silu'", id="unknown name"),
        pytest.param(3, "must be a name or an exportguard.Pattern", id="a number"),
    ],
)
def test_a_rule_that_is_not_right_is_refused_before_anything_is_changed(rule: Any, error: str) -> None:
    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    before = model.text()
    with pytest.raises((InvalidArgumentError, GraphError), match=error):
        model.optimize(patterns=[rule])
    assert model.text() == before


def test_two_rules_of_one_name_are_refused() -> None:
    model = model_of(lambda g, x: g.op.Mul(g.op.Sigmoid(x), x))
    with pytest.raises(InvalidArgumentError, match="named 'silu' already"):
        model.optimize(patterns=[Pattern(silu, quick_gelu), Pattern(silu, quick_gelu)])
