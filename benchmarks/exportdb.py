"""torch's own examples of what it can and cannot export (torch._export.db), through this package.

`python benchmarks/exportdb.py` prints one line for each example: of the supported ones, whether the ONNX file gives
what eager mode gives; of the unsupported ones, whether `rewrite="auto"` exports them and the same holds.
`--converter benchmarks/exportdb.py:convert` gives the conversion alone to a bench of another origin.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._export.db.case import ExportCase, SupportLevel
from torch._export.db.examples import all_examples
from torch.utils import _pytree as pytree

import exportguard


class Outcome(NamedTuple):
    """What became of one example."""

    name: str
    level: str
    text: str  # "right", or what went wrong

    @property
    def is_right(self) -> bool:
        return self.text.startswith("right")


def convert(program: torch.export.ExportedProgram, path: str | os.PathLike[str]) -> None:
    """Writes an exported program as an ONNX file, with the outputs that the model returns and no others."""
    exportguard.to_onnx(program, output=path, options=exportguard.ExportOptions(mutated_outputs=False))


def examples() -> Iterator[tuple[str, ExportCase]]:
    """Every example, by its name."""
    yield from sorted(all_examples().items())


def outcome(name: str, case: ExportCase) -> Outcome:
    """Exports, converts and runs one example with all the inputs that it comes with."""
    rewrite = "auto" if case.support_level == SupportLevel.NOT_SUPPORTED_YET else ()
    try:
        return Outcome(name, case.support_level.name, _run(case, rewrite))
    except Exception as error:  # every failure is a line of the table
        return Outcome(name, case.support_level.name, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")


def _run(case: ExportCase, rewrite: Any) -> str:
    model = case.model
    with exportguard.torch_export_patches(rewrite=rewrite) as guard:
        program = torch.export.export(
            copy.deepcopy(model),
            copy.deepcopy(case.example_args),
            copy.deepcopy(case.example_kwargs),
            dynamic_shapes=case.dynamic_shapes,
            strict=False,
        )
    onnx = exportguard.to_onnx(program)
    for args in filter(None, [case.example_args, case.extra_args]):
        _compare(program, onnx, model, args, case.example_kwargs)
    steps = ", ".join(step.patch.target.rpartition(".examples.")[2] for step in guard.rewriting_steps)
    return f"right, rewritten: {steps}" if steps else "right"


def _compare(
    program: torch.export.ExportedProgram,
    onnx: exportguard.OnnxModel,
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> None:
    torch.manual_seed(0)
    expected = _tensors(copy.deepcopy(model)(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    torch.testing.assert_close(_tensors(program.module()(*copy.deepcopy(args), **copy.deepcopy(kwargs))), expected)
    values = [torch.as_tensor(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if not isinstance(leaf, str)]
    feeds = dict(zip((value.name for value in onnx.inputs), values, strict=False))
    found = list(onnx.run(feeds).values())
    torch.testing.assert_close(found[: len(expected)], expected, check_dtype=False)


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="examples to run; all if none is given")
    names = parser.parse_args().names
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    outcomes = [outcome(name, case) for name, case in examples() if not names or name in names]
    for line in outcomes:
        print(f"{line.level:18} {line.name:45} {line.text}")
    for level in dict.fromkeys(line.level for line in outcomes):
        of_level = [line for line in outcomes if line.level == level]
        print(f"{level}: {sum(line.is_right for line in of_level)} of {len(of_level)} right")


if __name__ == "__main__":
    main()
