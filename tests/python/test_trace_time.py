"""What exports do less often than torch does."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch._dynamo.source import ConstantSource
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from exportguard.patches.torch.constraints import log_specialization
from exportguard.patches.torch.trace_time import few_overrides


def test_functions_that_torch_replaces_are_still_asked_for() -> None:
    asked: list[Any] = []

    def original(handler: Any, func: Any, args: Any, kwargs: Any) -> Any:
        asked.append(func)
        return "another", args, kwargs

    override = few_overrides(original)
    replaced = [torch.tensor, torch.Tensor.__getitem__, torch.distributed.all_reduce]
    assert [override(None, func, (), {})[0] for func in replaced] == ["another"] * 3
    own = [torch.add, torch.Tensor.add, torch.nn.functional.linear, torch.Tensor.shape.__get__]
    assert [override(None, func, (1,), {})[0] for func in own] == own
    assert asked == replaced


def symbolic(env: ShapeEnv, name: str, hint: int) -> Any:
    source = ConstantSource(name)
    symbol = env.create_symbol(hint, source, DimDynamic.DYNAMIC)
    return env.create_symintnode(symbol, hint=hint, source=source)


def test_range_of_a_symbol_is_checked_once_in_each_export_until_there_is_a_complaint() -> None:
    env = ShapeEnv()
    one, other = symbolic(env, "one", 5), symbolic(env, "other", 7)
    calls: list[str] = []

    def original(size: Any, *_: Any) -> str | None:
        calls.append(str(size))
        return "- too small" if size is other else None

    check = log_specialization(original)
    for ranges in ({}, {}):
        for size in (one, one, other, other, 3, 3):
            check(size, 5, Dim.DYNAMIC, ranges, env, ())
        check(one, 5, Dim.DYNAMIC(min=2), ranges, env, ())
    assert calls == 2 * [str(one), str(other), str(other), "3", "3", str(one)]
