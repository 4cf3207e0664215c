"""Samples of torch's operators in dtypes that eager refuses: each has to be refused, and nothing else.

    python benchmarks/refused_dtypes.py [--only 'nn.functional.*' svd] [--dtypes int64 bool] [--part 1/4]

The tensors of a float32 sample are cast, all of them or the first one alone. A line tells each sample that is converted
although eager refuses it, and each that is refused for its dtypes although eager runs it; the last one counts.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator

import torch
from dynamic_cases import runs
from operator_samples import Case, add_part, cases, part_of, silence

from exportguard import to_onnx


def cast(case: Case, dtype: torch.dtype, is_first_alone: bool) -> list[torch.Tensor]:
    floats = [tensor.dtype == case.dtype for tensor in case.module.tensors]
    return [
        tensor.to(dtype) if is_float and (place == 0 or not is_first_alone) else tensor
        for place, (tensor, is_float) in enumerate(zip(case.module.tensors, floats, strict=True))
    ]


def outcome(case: Case, tensors: list[torch.Tensor]) -> str:
    is_taken = runs(case.module, [tensor.clone() for tensor in tensors])
    try:
        to_onnx(case.module, tuple(tensors))
    except Exception as error:
        is_refused = "torch refuses" in str(error)
        return "refused for its dtypes, runs in eager" if is_taken and is_refused else "stopped or refused"
    return "converted" if is_taken else "converted, refused by eager"


def outcomes(case: Case, dtype: torch.dtype) -> Iterator[tuple[str, list[torch.Tensor]]]:
    several = sum(tensor.dtype == case.dtype for tensor in case.module.tensors) > 1
    for is_first_alone in (False, True) if several else (False,):
        tensors = cast(case, dtype, is_first_alone)
        yield outcome(case, tensors), tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=(), help="names of operators, with wildcards")
    parser.add_argument("--dtypes", nargs="*", default=("int64", "bool", "float16", "uint8"))
    add_part(parser)
    arguments = parser.parse_args()

    silence()
    counts: collections.Counter[str] = collections.Counter()
    for case in part_of(cases(arguments.only, [torch.float32], 1, 0), arguments.part):
        for dtype in (getattr(torch, name) for name in arguments.dtypes):
            for kind, tensors in outcomes(case, dtype):
                counts[kind] += 1
                if "," in kind:
                    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
                    print(f"{kind}: {case.name} {dtypes}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
