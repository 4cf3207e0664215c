"""Every operator on lists of tensors that torch has, `torch._foreach_*`, with each kind of argument that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from called import CalledWithAll
from exportguard import to_onnx

#: torch.export 2.13 stops there: C++ reads sizes, or the numbers of a tensor.
STOPS = {"_foreach_max.default", "_foreach_addcmul.Tensor", "_foreach_addcdiv.Tensor"}
STOPS |= {name.replace(".", "_.") for name in STOPS}


def _schemas() -> dict[str, Any]:
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        if name.startswith("_foreach_") and "out" not in schema.overload_name and name not in STOPS:
            found[name] = schema
    return found


SCHEMAS = _schemas()


def arguments(schema: Any, tensors: tuple[torch.Tensor, ...]) -> list[Any]:
    """A call of the operator whose lists are made of the tensors."""
    lists = iter([list(tensors), [x + 0.25 for x in tensors], [x * 2 for x in tensors]])
    made: dict[str, Callable[[], Any]] = {
        "List[Tensor]": lambda: [x.clone() for x in next(lists)],
        "Tensor": lambda: tensors[0].sum(),
        "List[number]": lambda: [2.0, 1, 0.5],
        "number": lambda: 2.0,
    }
    positional = [parameter for parameter in schema.arguments if not parameter.kwarg_only]
    return [made[str(parameter.type)]() for parameter in positional if str(parameter.type) in made]


def of_lists(name: str) -> Callable[..., list[torch.Tensor]]:
    packet, overload = name.split(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = arguments(SCHEMAS[name], tensors)
        if "_mm" in name:
            given = [[x @ x.T for x in each] for each in given]
        made = operator(*given)
        return given[0] if made is None else made

    return call


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SCHEMAS)
def test_an_operator_on_lists_is_one_on_each(name: str) -> None:
    call = of_lists(name)
    example = (torch.rand(3, 4), torch.rand(3, 4) + 1, torch.rand(2, 5))
    same = {0: "n", 1: "m"}
    model = to_onnx(CalledWithAll(call).eval(), example, dynamic_shapes=((same, same, {0: "k"}),))
    for tensors in (example, (torch.rand(5, 2), torch.rand(5, 2), torch.rand(1, 5))):
        got = model.run({value.name: x for value, x in zip(model.inputs, tensors, strict=True)}).values()
        for made, wanted in zip(got, call(*tensors), strict=True):
            assert_close(torch.as_tensor(made), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_further_numbers_of_operators_on_lists() -> None:
    def call(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        pair = [x.clone(), y.double()]
        torch._foreach_sub_(pair, [y, x], alpha=3)
        torch._foreach_add_(pair, 1)
        return [*pair, *torch._foreach_norm(pair, 1), *torch._foreach_norm([x], float("inf"), dtype=torch.float64)]

    example = (torch.rand(3, 4), torch.rand(3, 4))
    model = to_onnx(CalledWithAll(call).eval(), example, dynamic_shapes=(({0: "n"}, {0: "n"}),))
    tensors = (torch.rand(6, 4), torch.rand(6, 4))
    got = model.run({value.name: x for value, x in zip(model.inputs, tensors, strict=True)}).values()
    for made, wanted in zip(got, call(*tensors), strict=True):
        assert_close(torch.as_tensor(made), wanted)
