"""The samples of torch's operators with every axis dynamic, as functions, methods, in place and with out=.

    python benchmarks/operator_forms.py [--forms function method inplace out] [--only 'nn.functional.*' svd]
                                        [--dtypes float32 int64] [--samples 2] [--part 1/4] [--seed 0]

Axes of one size have one name. Each module is exported once and run with its sizes, one more of each, the double, one
and nothing, where eager takes them. A line tells each one that is not right; the last one counts.
"""

from __future__ import annotations

import argparse
import collections
from typing import Any

import torch
from dynamic_cases import SHOWN, named_axes, outcome
from operator_samples import Case, Sampled, add_part, cases, of_name, part_of, silence

FORMS = ("function", "method", "inplace", "out")


class InPlace(Sampled):
    """A method in place of a copy of its first operand, which is returned with what the method gives."""

    def forward(self, *tensors: torch.Tensor) -> Any:
        first = tensors[0].clone()
        returned = super().forward(first, *tensors[1:])
        return first, returned


class IntoOut(Sampled):
    """An operator that writes into tensors of the right size and dtype, made in forward."""

    def forward(self, *tensors: torch.Tensor) -> Any:
        with torch.no_grad():
            plain = super().forward(*tensors)
        out = torch.empty_like(plain) if isinstance(plain, torch.Tensor) else tuple(map(torch.empty_like, plain))
        given = self.keywords
        self.keywords = {**given, "out": out}
        try:
            super().forward(*tensors)
        finally:
            self.keywords = given
        return out


def in_form(case: Case, form: str) -> Sampled | None:
    """The module of a case in that form; nothing if the operator has none."""
    operator = of_name(case.name)
    if form == "function":
        return case.module
    if form == "method":
        return case.module.called_by(operator.method_variant) if operator.method_variant else None
    if form == "inplace":
        return case.module.called_by(operator.inplace_variant, InPlace) if operator.inplace_variant else None
    return case.module.called_by(operator.op, IntoOut) if operator.supports_out else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS)
    parser.add_argument("--only", nargs="*", default=(), help="names of operators, with wildcards")
    parser.add_argument("--dtypes", nargs="*", default=("float32", "int64"))
    parser.add_argument("--samples", type=int, default=1, help="of each operator and dtype")
    parser.add_argument("--axes", default="dynamic", choices=("dynamic", "fixed"))
    parser.add_argument("--show", nargs="*", default=SHOWN, help="kinds of outcomes that have a line")
    add_part(parser)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    silence()
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    counts: collections.Counter[str] = collections.Counter()
    found = cases(arguments.only, dtypes, arguments.samples, arguments.seed)
    for case in part_of(found, arguments.part):
        for form in arguments.forms:
            module = in_form(case, form)
            if module is None:
                continue
            fixed = tuple(None for _ in module.tensors)
            shapes = named_axes(module, module.tensors) if arguments.axes == "dynamic" else fixed
            told = outcome(module, module.tensors, shapes)
            counts[told.kind] += 1
            if told.kind in arguments.show:
                print(f"{told.kind}: {form}: {case}: {' '.join(told.text.split())[:400]}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
