"""The samples of torch's operators with every axis dynamic, and each by itself of size 0, 1 and 3.

    python benchmarks/empty_axes.py [--only 'nn.functional.*' svd] [--dtypes float32 int64] [--samples 2] [--part 1/4]
                                    [--seed 0]

Each module is exported once, and run in a process of its own, which a fault may end. A line tells each size at which
the file gives other numbers than eager, gives some where eager refuses, stops, or ends the process; the last one counts
the sizes.
"""

from __future__ import annotations

import argparse
import collections
import functools
from collections.abc import Iterator

import torch
from dynamic_cases import Outcome, Shapes, Sizes, at, at_sizes, named_axes, sizes_of
from operator_samples import Case, add_part, cases, part_of, silence
from own_process import told_by

from exportguard import OnnxModel, to_onnx
from exportguard.errors import ExportGuardError

SHOWN = ("other", "runs where eager refuses", "stops", "refused unclearly", "ends the process")
TRIED = (0, 1, 3)


def one_axis_at_a_time(shapes: Shapes) -> Iterator[Sizes]:
    """The sizes of the example, but one of them another."""
    traced = sizes_of(shapes)
    for name in sorted(traced):
        for size in TRIED:
            yield {**traced, name: size}


def said(case: Case, model: OnnxModel, shapes: Shapes, sizes: Sizes) -> str:
    found = at(case.module, model, at_sizes(case.module.tensors, shapes, sizes), sizes)
    return f"{found.kind}: {found.text}"


def outcomes(case: Case) -> list[Outcome]:
    """One for each size that was tried; the refusal of an export is the only one."""
    module, tensors = case.module, case.module.tensors
    shapes = named_axes(module, tensors)
    if not any(shapes):
        return []
    try:
        model = to_onnx(module, tuple(tensor.clone() for tensor in tensors), dynamic_shapes=(shapes,))
    except ExportGuardError as error:
        return [Outcome("refused", f"{type(error).__name__}: {error}")]
    except Exception as error:
        return [Outcome("refused unclearly", f"{type(error).__name__}: {error}")]
    tried = list(one_axis_at_a_time(shapes))
    found = []
    for sizes, text in zip(
        tried, told_by([functools.partial(said, case, model, shapes, s) for s in tried]), strict=True
    ):
        kind, _, rest = text.partition(": ")
        died = kind.startswith("ends the process")
        found.append(Outcome("ends the process", f"at {dict(sizes)}: {text}") if died else Outcome(kind, rest))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=(), help="names of operators, with wildcards")
    parser.add_argument("--dtypes", nargs="*", default=("float32", "int64"))
    parser.add_argument("--samples", type=int, default=1, help="of each operator and dtype")
    parser.add_argument("--show", nargs="*", default=SHOWN, help="kinds of outcomes that have a line")
    add_part(parser)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    silence()
    torch.set_num_threads(1)  # the threads of a process are not those of its children
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    counts: collections.Counter[str] = collections.Counter()
    for case in part_of(cases(arguments.only, dtypes, arguments.samples, arguments.seed), arguments.part):
        for found in outcomes(case):
            counts[found.kind] += 1
            if found.kind in arguments.show:
                print(f"{found.kind}: {case}: {' '.join(found.text.split())[:400]}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
