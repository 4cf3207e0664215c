"""The modules of torch.nn, with the arguments and inputs of torch's own tests, every axis dynamic, beside eager.

    python benchmarks/torch_modules.py [--only 'Conv*' LSTM] [--dtypes float32] [--training] [--transposed]
                                       [--samples 3]

Axes of one size have one name. Each module is exported once and run with its sizes, one more of each, the double, one
and nothing, where eager takes them. A line tells each one that is not right; the last one counts.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
from collections.abc import Iterator
from typing import Any

import torch
from dynamic_cases import SHOWN, named_axes, outcome
from operator_samples import silence
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree


class Called(torch.nn.Module):
    """A module whose tensors are the inputs; other arguments stay. A state that it writes begins anew in every call."""

    def __init__(self, module: torch.nn.Module, call: Any) -> None:
        super().__init__()
        self.module = module
        self.leaves, self.spec = pytree.tree_flatten((call.args, call.kwargs))
        self.places = [place for place, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self.leaves[place].detach() for place in self.places]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        arguments, keywords = pytree.tree_unflatten(leaves, self.spec)
        return self.module(*arguments, **keywords)


def cases(patterns: list[str], dtype: torch.dtype, training: bool, most: int) -> Iterator[tuple[str, Called]]:
    for info in module_db:
        name = info.name
        if patterns and not any(fnmatch.fnmatch(name.removeprefix("nn."), pattern) for pattern in patterns):
            continue
        if dtype not in info.dtypes:
            continue
        torch.manual_seed(1)
        given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
        for number, sample in enumerate(given[:most]):
            if sample.forward_input is None:
                continue
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            yield f"{name} #{number} {made.args} {made.kwargs}", Called(module, sample.forward_input).train(training)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in another order of memory."""
    return tensor if tensor.dim() < 2 else tensor.transpose(0, -1).contiguous().transpose(0, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="names of modules, with wildcards")
    parser.add_argument("--dtypes", nargs="*", default=("float32",))
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--transposed", action="store_true", help="inputs in another order of memory")
    parser.add_argument("--show", nargs="*", default=SHOWN, help="kinds of outcomes that have a line")
    parser.add_argument("--samples", type=int, default=3, help="of each module")
    arguments = parser.parse_args()

    silence()
    counts: collections.Counter[str] = collections.Counter()
    for dtype in arguments.dtypes:
        for name, module in cases(arguments.only, getattr(torch, dtype), arguments.training, arguments.samples):
            tensors = [transposed(tensor) if arguments.transposed else tensor for tensor in module.tensors]
            told = outcome(module, tensors, named_axes(module, tensors))
            counts[told.kind] += 1
            if told.kind in arguments.show:
                sizes = [list(tensor.shape) for tensor in tensors]
                print(
                    f"{told.kind}: {' '.join(name.split())[:160]} {dtype} {sizes}: {' '.join(told.text.split())[:400]}",
                    flush=True,
                )
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
