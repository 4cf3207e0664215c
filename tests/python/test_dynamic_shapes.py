"""Dynamic shapes as users write them, as torch.export takes them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.export import Dim

from exportguard import (
    make_static_cache,
    register_class_serialization,
    torch_export_patches,
    unregister_class_serialization,
)
from exportguard.axes.torch_export import for_torch, shared_dims
from exportguard.dynamic_shapes import (
    all_dynamic_shapes_from_inputs,
    check_inputs,
    normalise,
    use_dims_not_str,
    use_dyn_not_str,
)
from exportguard.errors import InvalidArgumentError
from exportguard.example import Example
from exportguard.inputs import CallInputs, flatten_named


class Model(torch.nn.Module):
    def forward(self, x: Any, pair: Any = None, count: int = 3, **others: Any) -> Any:
        return x


X = torch.zeros(2, 3)
PAIR = {"a": torch.zeros(2, 5), "b": [torch.zeros(2, 7)]}


def axes(dynamic_shapes: Any, **kwargs: Any) -> dict[str, Any]:
    """What was asked for, by name of the leaf."""
    shapes = normalise(CallInputs.of(Model().forward, (), {"x": X, **kwargs}), dynamic_shapes)
    return {shape.leaf.name: dict(shape.axes) for shape in shapes}


def message(dynamic_shapes: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        axes(dynamic_shapes, **kwargs)
    return str(caught.value)


FORMS = {
    "by name": ({"x": {0: "batch"}}, {"x": {0: "batch"}}),
    "by position": (({1: "seq"},), {"x": {1: "seq"}}),
    "one entry for each axis": ({"x": ("batch", None)}, {"x": {0: "batch"}}),
    "a negative axis": ({"x": {-1: "seq"}}, {"x": {1: "seq"}}),
    "none": (None, {"x": {}}),
}


FURTHER = {
    "by name": {"x": {0: "batch"}, "more": {0: "batch"}},
    "as torch.export nests them": {"x": {0: "batch"}, "others": {"more": {0: "batch"}, "flag": None}},
    "both": {"x": {0: "batch"}, "others": {"flag": None}, "more": {0: "batch"}},
}


@pytest.mark.parametrize("dynamic_shapes", FURTHER.values(), ids=FURTHER)
def test_axes_of_further_named_arguments_are_asked_for(dynamic_shapes: Any) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor, **others: Any) -> torch.Tensor:
            return x + others["more"] if others["flag"] else x

    call = CallInputs.of(Sum().forward, (X,), {"more": X, "flag": True})
    example = Example.of(call, dynamic_shapes)
    assert [dict(shape.axes) for shape in example.shapes] == [{0: "batch"}, {0: "batch"}, {}]
    spec = for_torch(example, shared_dims(example.shapes))
    with torch_export_patches():  # torch alone counts such arguments twice
        program = torch.export.export(Sum(), call.args, dict(call.kwargs), dynamic_shapes=spec, strict=False)
    other = torch.ones(5, 3)
    assert torch.equal(program.module()(other, more=other, flag=True), other * 2)


@pytest.mark.parametrize(("dynamic_shapes", "expected"), FORMS.values(), ids=FORMS)
def test_every_form_gives_the_axes_of_each_input(dynamic_shapes: Any, expected: Any) -> None:
    assert axes(dynamic_shapes) == expected


CONTAINERS = {
    "nested like the container": {"pair": {"a": {0: "n"}, "b": [{1: "m"}]}},
    "a part left out": {"pair": {"b": [{1: "m"}]}},
    "one for all tensors in it": {"pair": {0: "n"}},
}
CONTAINER_AXES = {
    "nested like the container": {"pair.a": {0: "n"}, "pair.b.0": {1: "m"}},
    "a part left out": {"pair.a": {}, "pair.b.0": {1: "m"}},
    "one for all tensors in it": {"pair.a": {0: "n"}, "pair.b.0": {0: "n"}},
}


@pytest.mark.parametrize("form", CONTAINERS)
def test_a_container_is_named_as_a_whole_or_part_by_part(form: str) -> None:
    assert axes(CONTAINERS[form], pair=PAIR) == {"x": {}, **CONTAINER_AXES[form]}


def test_an_integer_can_be_asked_to_change() -> None:
    assert axes({"count": "n"}, count=4)["count"] == {0: "n"}


WRONG = {
    "an axis that does not exist": (
        {"x": {2: "seq"}},
        "dynamic_shapes names axis 2 of x, which has rank 2; axes are 0 to 1",
    ),
    "an unknown input": (
        {"y": {0: "n"}},
        "dynamic_shapes names y, which the call does not pass; it passes x. "
        "The axes of outputs follow from those of inputs",
    ),
    "too few entries": (
        {"x": ("batch",)},
        "dynamic_shapes has 1 entries for x, which has rank 2; pass one for each axis, "
        "or {axis: name} for those that change",
    ),
    "an unknown kind of axis": (
        {"x": {0: 2.5}},
        "dynamic_shapes has 2.5 for axis 0 of x; pass a name, a torch.export.Dim, or None",
    ),
    "an unknown kind of input": (
        {"x": "batch"},
        "dynamic_shapes has 'batch' for the tensor x; pass {axis: name} or a tuple with one entry an axis",
    ),
    "no dictionary": ("batch", "dynamic_shapes must be a dictionary by input name or a tuple by position, got str"),
    "too many inputs": (
        ({}, {}),
        "dynamic_shapes has 2 entries for 1 inputs (x); pass one for each, None for an input that does not change",
    ),
    "another size than the example's": (
        {"x": {0: 5}},
        "dynamic_shapes fixes axis 0 of x to 5, but the example has 2",
    ),
    "one name for two sizes": (
        {"x": {0: "n", 1: "n"}},
        "dynamic_shapes calls axis 0 of x and axis 1 of x both 'n', but they are 2 and 3 in the example; "
        "give them names of their own",
    ),
}


@pytest.mark.parametrize(("dynamic_shapes", "expected"), WRONG.values(), ids=WRONG)
def test_wrong_dynamic_shapes_say_what_and_where(dynamic_shapes: Any, expected: str) -> None:
    assert message(dynamic_shapes) == expected


def test_a_part_that_is_not_there_is_named_with_its_path() -> None:
    assert message({"pair": {"c": {0: "n"}}}, pair=PAIR) == (
        "dynamic_shapes names pair.c, which is not there; pair has a, b"
    )


def test_a_list_of_another_length_is_named_with_its_path() -> None:
    assert message({"pair": {"b": [None, None]}}, pair=PAIR) == (
        "dynamic_shapes has 2 entries for pair.b, a list of 1 (0); pass one for each, or one {axis: name} for all"
    )


MIXED = {"keys": torch.zeros(2, 4, 8), "rows": torch.zeros(2), "length": torch.tensor(3)}


def test_an_axis_for_a_whole_container_goes_to_those_tensors_that_have_it() -> None:
    found = axes({"pair": {0: "batch", 2: "seq"}}, pair=MIXED)
    assert found["pair.keys"] == {0: "batch", 2: "seq"}
    assert found["pair.rows"] == {0: "batch"}
    assert found["pair.length"] == {}
    assert axes({"pair": {-2: "n"}}, pair=MIXED)["pair.keys"] == {1: "n"}


def test_an_axis_that_no_tensor_of_a_container_has_is_refused() -> None:
    assert message({"pair": {3: "n"}}, pair=MIXED) == (
        "dynamic_shapes names axis 3 of pair.keys, which has rank 3; axes are 0 to 2"
    )
    assert message({"pair": {0: "n"}}, pair=[torch.tensor(3)]) == (
        "dynamic_shapes names axis 0 of pair.0, which has no axes; pass None"
    )


@pytest.mark.parametrize(
    "asked",
    [
        {0: "batch"},
        [[{0: "batch"}] * 2] * 2,
        [[{0: "batch"}, {0: "batch"}] for _ in range(2)],
        [{0: "batch"}] * 4,
        "tensors",
    ],
    ids=["for all", "keys and values", "layers", "tensors with axes", "tensors"],
)
def test_a_static_cache_is_asked_as_others_though_it_counts_its_tokens(asked: Any) -> None:
    pairs = [(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 3, 8))] * 2
    with torch_export_patches(patch=False):
        cache = make_static_cache(pairs, max_cache_len=8)
        if asked == "tensors":  # those of transformers 5 count their tokens in a tensor of each layer
            names = axes({"pair": {}}, pair=cache)
            asked = [None if name.endswith("length") else {0: "batch"} for name in names if name.startswith("pair")]
        found = axes({"pair": asked}, pair=cache)
    of_tensors = {"pair.0.key": {0: "batch"}, "pair.0.value": {0: "batch"}}
    assert found.items() >= of_tensors.items()
    assert all(not asked for name, asked in found.items() if name.endswith("length"))


def test_a_constant_has_no_axes() -> None:
    assert message({"count": {0: "n"}}, count=4) == (
        "dynamic_shapes has {0: 'n'} for count, which is 4 and has no axes; pass None, or a tensor"
    )


def test_an_argument_that_the_model_does_not_have_is_named() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CallInputs.of(torch.nn.Identity().forward, (), {"input": X, "y": X})
    assert str(caught.value) == (
        "the inputs do not fit Identity.forward(input: torch.Tensor) -> torch.Tensor: "
        "got an unexpected keyword argument 'y'"
    )


def test_names_on_several_axes_become_one_dim_and_the_others_a_hint() -> None:
    call = CallInputs.of(Model().forward, (X,), {"pair": PAIR})
    example = Example.of(call, {"x": {0: "batch", 1: "seq"}, "pair": {0: "batch"}})
    spec = for_torch(example, shared_dims(example.shapes))
    assert spec is not None
    assert spec["x"][0] is spec["pair"]["a"][0] is spec["pair"]["b"][0][0]
    assert spec["x"][0].__name__ == "batch"
    assert spec["x"][1] == Dim.DYNAMIC


def test_no_changing_axis_gives_no_dynamic_shapes() -> None:
    call = CallInputs.of(Model().forward, (X,), None)
    assert for_torch(Example.of(call, ({},)), {}) is None


def test_torch_export_takes_what_is_made_for_it() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor, pair: Any) -> torch.Tensor:
            return x.sum() + pair["a"].sum(0) * pair["b"][0].shape[1]

    call = CallInputs.of(Sum().forward, (X,), {"pair": PAIR})
    example = Example.of(call, {"x": {0: "n"}, "pair": {"a": {0: "n"}, "b": [{1: "m"}]}})
    spec = for_torch(example, shared_dims(example.shapes))
    program = torch.export.export(Sum(), call.args, dict(call.kwargs), dynamic_shapes=spec, strict=False)
    other = {"a": torch.ones(4, 5), "b": [torch.ones(2, 9)]}
    assert torch.equal(program.module()(torch.ones(4, 3), pair=other), Sum()(torch.ones(4, 3), pair=other))


def test_every_axis_of_every_tensor_is_asked_for() -> None:
    assert all_dynamic_shapes_from_inputs((X, PAIR, None)) == (
        {0: "d_0_0", 1: "d_0_1"},
        {"a": {0: "d_1_0", 1: "d_1_1"}, "b": [{0: "d_2_0", 1: "d_2_1"}]},
        None,
    )


def test_every_axis_can_be_asked_for_with_a_hint() -> None:
    assert all_dynamic_shapes_from_inputs({"x": X}, dim_prefix=Dim.AUTO) == {"x": {0: Dim.AUTO, 1: Dim.AUTO}}


def test_named_arguments_are_put_in_the_order_of_the_signature() -> None:
    call = CallInputs.of(Model().forward, (), {"more": 1, "count": 2, "x": X})
    assert list(call.kwargs) == ["x", "count", "more"]


def test_leaves_are_named_by_their_path() -> None:
    assert [leaf.name for leaf in flatten_named({"x": X, "pair": PAIR})] == ["x", "pair.a", "pair.b.0"]


CHECKED = {
    "an axis that was not named": (
        [{"x": X}, {"x": torch.zeros(2, 4)}], {"x": {0: "batch"}},
        "axis 1 of x is 4 in call 1 and 3 in call 0, but dynamic_shapes does not let it change",
    ),
    "axes of one name": (
        [{"x": X, "pair": {"a": torch.zeros(2, 5)}}, {"x": X, "pair": {"a": torch.zeros(4, 5)}}],
        {"x": {0: "batch"}, "pair": {0: "batch"}},
        "calls axis 0 of x and axis 0 of pair.a both 'batch', but they are 2 and 4 in call 1",
    ),
    "the bound of a Dim": (
        [{"x": X}, {"x": torch.zeros(9, 3)}], {"x": {0: Dim("batch", min=2, max=8)}},
        "axis 0 of x (batch) is 9 in call 1, outside of its bounds 2 to 8",
    ),
    "the least of a Dim": (
        [{"x": X}], {"x": {0: Dim("batch", min=4)}},
        "axis 0 of x (batch) is 2 in call 0, outside of its bounds 4 or more",
    ),
    "a fixed size": ([{"x": X}], {"x": {0: 4}}, "axis 0 of x (4) is 2 in call 0, outside of its bounds 4 to 4"),
    "a number": ([{"x": X, "count": 3}, {"x": X, "count": 4}], {}, "count is 4 in call 1 and 3 in call 0"),
    "a dtype": ([(X,), (X.long(),)], {}, "x is torch.int64 of rank 2 in call 1, but torch.float32 of rank 2 in call 0"),
    "other inputs": ([{"x": X}, {"x": X, "count": 1}], {}, "the inputs in call 1 are x, count, but x in call 0"),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "dynamic_shapes", "expected"), CHECKED.values(), ids=CHECKED)
def test_inputs_that_do_not_fit_are_told_with_the_axis(calls: Any, dynamic_shapes: Any, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_inputs(Model(), calls, dynamic_shapes)
    assert expected in str(caught.value)


def test_inputs_that_fit_pass() -> None:
    calls = [{"x": torch.zeros(n, 3), "pair": {"a": torch.zeros(n, 5)}, "count": n} for n in (1, 2, 7)]
    check_inputs(Model(), calls, {"x": {0: "batch"}, "pair": {0: "batch"}, "count": Dim.DYNAMIC})


def test_names_become_hints_or_dims() -> None:
    named = {"x": {0: "batch"}, "pair": ({0: "batch", 1: Dim.AUTO}, None)}
    hints = use_dyn_not_str(named)
    assert hints == {"x": {0: Dim.DYNAMIC}, "pair": ({0: Dim.DYNAMIC, 1: Dim.AUTO}, None)}
    dims = use_dims_not_str(named)
    assert dims["x"][0] is dims["pair"][0][0]
    assert dims["x"][0].__name__ == "batch"
    torch.export.export(torch.nn.ReLU(), (X,), dynamic_shapes=({0: dims["x"][0]},))


class Registered:
    """Two tensors and a count of tokens, as a cache has them."""

    def __init__(self, first: Any, count: Any) -> None:
        self.first, self.count = first, count


@pytest.fixture
def registered() -> Iterator[None]:
    register_class_serialization(
        Registered,
        lambda r: ([r.first, r.count], None),
        lambda leaves, _: Registered(*leaves),
        keys=lambda r: ["a", "n"],
    )
    yield
    unregister_class_serialization(Registered)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("spec", "asked"), [({0: "batch"}, True), ({0: None}, False), ({0: Dim.STATIC}, False)])
def test_the_count_of_a_registered_class_changes_with_its_axes(spec: Any, asked: bool) -> None:
    found = axes({"x": None, "pair": spec}, pair=Registered(torch.zeros(2, 5), 7))
    assert found["pair.n"] == ({0: Dim.DYNAMIC} if asked else {})


def test_a_number_of_the_users_own_container_stays_a_constant() -> None:
    assert axes({"x": None, "pair": {0: "batch"}}, pair={"a": torch.zeros(2, 5), "n": 7})["pair.n"] == {}


def test_a_static_axis_is_not_asked_to_change() -> None:
    call = CallInputs((torch.zeros(2, 3),))
    (shape,) = normalise(call, ({0: Dim.DYNAMIC, 1: Dim.STATIC},))
    assert shape.axes == {0: Dim.DYNAMIC}


def test_an_example_outside_of_its_bounds_is_named() -> None:
    call = CallInputs((torch.zeros(2, 6),))
    with pytest.raises(
        InvalidArgumentError, match=r"axis 1 of .* \(seq\) is 6 in the example, outside of its bounds 0 to 4"
    ):
        normalise(call, ({1: Dim("seq", max=4)},))


def test_a_collection_of_torch_is_told_how_to_pass() -> None:
    with pytest.raises(InvalidArgumentError, match=r"got ShapesCollection; pass what it makes: shapes\.dynamic_shapes"):
        normalise(CallInputs((torch.zeros(2, 6),)), torch.export.ShapesCollection())
