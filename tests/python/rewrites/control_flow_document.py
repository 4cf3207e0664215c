"""Writes docs/rewriting.md from the programs that are tested.

Run it as `python tests/python/rewrites/control_flow_document.py` after a change of the programs or the rules.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import test_conditions
import test_expressions
import test_faults
import test_loops

from exportguard import transform_method

PATH = Path(__file__).parents[3] / "docs" / "rewriting.md"

_TABLES = {
    "Tests on tensor data": test_conditions.PROGRAMS,
    "Expressions, assertions, raises": test_expressions.PROGRAMS,
    "Loops": test_loops.PROGRAMS,
}

#: Shown with their source before and after.
_SHOWN = (
    "AssignInBoth",
    "EarlyReturn",
    "AttributeTarget",
    "And",
    "AssertOnData",
    "SumOfRows",
    "StoreByIndex",
    "WhileWithBreak",
)

_REFUSED = {
    test_faults.DifferentKinds: "a variable is a tensor on one path and None on the other",
    test_faults.DifferentText: "a variable is a different string on each path",
    test_faults.DifferentStructure: "a list has a different length on each path",
    test_faults.AttributeOfOneBranch: "an attribute becomes a tensor on one path and stays None on the other",
    test_faults.BreakOverRows: "`break` in a loop over the rows of a dynamic axis",
    test_faults.AppendInWhile: "`append` in a `while` whose test depends on tensor data",
    test_faults.ShapeChangesInALoop: "a carried tensor that grows in the loop",
}

_HEAD = """\
# Control flow that depends on tensor data

`torch.export` stops at `if x.sum() > 0`. `torch_export_rewrite`, or `rewrite=` of `torch_export_patches`, puts
rewritten functions in force for a block, and `export_with_rewriting` finds by itself which ones are needed:

```python
result = exportguard.export_with_rewriting(model, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
print(result.report())                      # what was rewritten, with the difference of the sources
exportguard.to_onnx(result.program)
```

Whether a test depends on tensor data is decided while the model is traced: a test on a Python value stays the test
that it was. A test on data becomes `cond`, a loop over a dynamic axis `scan`, a `while` on data or a range over data
`while_loop`, an assertion a check in the program; a loop whose length Python knows is unrolled.

This page is written from the tests: every program below is exported with a dynamic axis and compared with eager mode
on every path and for several trip counts, as a module and in onnxruntime.
"""

_LIMITS = """\
## What is left as it is

- `return`, `global` or `nonlocal` inside a loop, `for … else`, and an `if` that holds the `break` or `continue` of a
  loop that is left as it is; generators and coroutines.
- An early `return` inside `try`, `with` or a loop is rewritten where the block ends the function, and not elsewhere.
- `x is None`, `isinstance(…)`, `in`, comparisons with a string and `self.training` are Python tests by their form.
- A range with a symbolic start and stop is taken for one of two or more steps: torch fixes a trip count of 1 in `scan`.
- `export_with_rewriting` follows the frames of the error. Where torch reports a loop that fixed a dynamic axis there
  are none; name the method in `rewrite=` then.
"""


def _source(cls: type) -> str:
    definition = ast.parse(textwrap.dedent(inspect.getsource(cls.forward))).body[0]
    definition.decorator_list = []
    return ast.unparse(definition)


def _example(cls: type) -> str:
    rewritten = transform_method(cls.forward)
    lines = (f"{applied.split(': ', 1)[1]}" for applied in rewritten.applied)
    shown = rewritten.source.replace("_exportguard_rewrite", "_rt")
    return (
        f"### {cls.__name__}: {', '.join(dict.fromkeys(lines))}\n\n```python\n{_source(cls)}\n```\n\nbecomes\n\n"
        f"```python\n{shown}\n```\n"
    )


def _table(title: str, programs: list[type]) -> str:
    names = ", ".join(cls.__name__ for cls in programs)
    examples = "\n".join(_example(cls) for cls in programs if cls.__name__ in _SHOWN)
    return f"## {title}\n\n{len(programs)} programs: {names}.\n\n{examples}"


def document() -> str:
    """The text of the page."""
    tables = "\n".join(_table(title, programs) for title, programs in _TABLES.items())
    refused = "\n".join(
        f"- {reason}:\n\n{textwrap.indent(f'```python{chr(10)}{_source(cls)}{chr(10)}```', '  ')}\n"
        for cls, reason in _REFUSED.items()
    )
    title = "## What no graph can hold\n\nEach fails with the line and the reason, and leaves everything as it was.\n"
    return f"{_HEAD}\n{tables}\n{_LIMITS}\n{title}\n{refused}"


if __name__ == "__main__":
    PATH.write_text(document(), encoding="utf-8")
