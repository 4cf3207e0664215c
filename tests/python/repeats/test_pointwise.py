"""How results of operators of elements look, beside what torch's fake kernels say of the same call."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard.repeats.pointwise import _is_of_elements
from repeats.fake_kernels import LAYOUTS, Asking, require_known, tell

#: Shapes of operands that can be broadcast together, aligned at their last axes.
TOGETHER = (
    ("nm4", "nm4"),
    ("nm4", "4"),
    ("4", "nm4"),
    ("nm4", "nm1"),
    ("nm1", "nm4"),
    ("nm4", "1m4"),
    ("nkm4", "n1m4"),
    ("n1m4", "nkm4"),
    ("nm", "m"),
    ("n1", "1m"),
    ("n11m", "n11m"),
    ("1m4", "1m4"),
    ("n4", "n4"),
    ("n", "n"),
    ("nmk4", "11k4"),
    ("nm", "nk"),
    ("11n1", "111m"),
    ("n11m", ""),
    ("", "nm4"),
    ("nkm4", "nkm4"),
    ("n111", "1m4"),
    ("1n1", "n1m"),
)
DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
NUMBERS = {"int": 2, "float": 0.5, "bool": True}


def operators() -> list[Any]:
    """Those of torch with the tag, whose arguments are tensors and numbers."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if space != "aten" or not hasattr(torch.ops.aten, base):
            continue
        operator = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if operator is not None and torch.Tag.pointwise in operator.tags and not operator._schema.is_mutable:
            found.append(operator)
    return found


OPERATORS = operators()
KNOWN = [operator for operator in OPERATORS if _is_of_elements(operator)]


def drawn_call(asking: Asking, draw: random.Random) -> tuple[Any, list[Any]]:
    """An operator with operands of drawn shapes, layouts and dtypes."""
    func = draw.choice(KNOWN if draw.random() < 0.9 else OPERATORS)
    shapes = draw.choice(TOGETHER)
    is_mixed = draw.random() < 0.3
    dtype = draw.choice(DTYPES[:1] * 4 + DTYPES)
    args: list[Any] = []
    for argument in func._schema.arguments:
        kind = str(argument.type)
        if argument.kwarg_only:
            break
        if kind in ("Tensor", "Optional[Tensor]"):
            tensors = sum(isinstance(value, FakeTensor) for value in args)
            own = torch.bool if argument.name in ("condition", "mask") else draw.choice(DTYPES) if is_mixed else dtype
            args.append(asking.tensor(shapes[min(tensors, 1)], own, draw.choice(LAYOUTS)))
        elif argument.has_default_value() and draw.random() < 0.5:
            args.append(argument.default_value)
        elif kind == "int":
            args.append(2)
        elif "str" in kind:
            args.append(
                argument.default_value if argument.has_default_value() else draw.choice([None, "floor", "trunc"])
            )
        else:
            numbers = [*NUMBERS.values(), asking.axes["n"], asking.axes["n"] - asking.axes["m"]]
            args.append(draw.choice(numbers) if "number" in kind else 0.5)
    return func, args


@pytest.mark.parametrize("block", range(8))
def test_results_look_as_torch_says(block: int) -> None:
    require_known(drawn_call, block, 15)


if __name__ == "__main__":
    tell(drawn_call)
