"""Writes docs/rewriting.md from the programs that are tested.

Run it as `python tests/python/rewrites/control_flow_document.py` after a change of the programs or the rules.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import test_callables
import test_choices
import test_conditions
import test_expressions
import test_faults
import test_functional
import test_lists_read_while_filled
import test_loop_exits
import test_loops
import test_loops_as_written
import test_meaning
import test_returns
import test_scopes
import test_sizes_of_steps
import test_targets
import test_transformers_places
from control_flow_program import exported, up

from exportguard import RewriteError, transform_method

PATH = Path(__file__).parents[3] / "docs" / "rewriting.md"

_TABLES = {
    "Tests on tensor data": test_conditions.PROGRAMS,
    "What a branch assigns": test_targets.PROGRAMS,
    "What a branch calls": test_callables.PROGRAMS,
    "Branches that return": test_returns.PROGRAMS,
    "Values of `and` and `or`, functions in functions": test_meaning.PROGRAMS,
    "Expressions, assertions, raises": test_expressions.PROGRAMS,
    "Loops": test_loops.PROGRAMS,
    "Loops as people write them": test_loops_as_written.PROGRAMS,
    "Loops that are left": test_loop_exits.PROGRAMS,
    "Scopes, caches, ranges of any length, breaks over rows": test_scopes.PROGRAMS,
    "Tensors of another size behind each step": test_sizes_of_steps.PROGRAMS,
    "Elements chosen by data": test_choices.PROGRAMS,
    "Lists that a loop reads while it fills them": test_lists_read_while_filled.RIGHT,
    "`map`, `filter`, `functools` and `itertools`": test_functional.PROGRAMS,
}


_REFUSED = {
    test_faults.DifferentKinds: "a variable is a tensor on one path and None on the other",
    test_faults.DifferentText: "a variable is a different string on each path",
    test_faults.DifferentStructure: "a tuple has a different length on each path",
    test_faults.AttributeOfOneBranch: "an attribute becomes a tensor on one path and stays None on the other",
    test_faults.RankChangesInALoop: "a carried tensor that has another axis behind each step",
}

_PROMISES = """\
## What it promises

A program means what it means in Python, or the export fails with the line and the reason.

- **Exceptions.** `assert` and `raise` on data become a check only where nothing can catch them. Every handler that
  could stands at the current line of a frame between the `raise` and the export; the blocks around those lines are
  looked at: an `except` whose class may match, a `with` whose manager may end one, a `finally` that returns. What a
  manager does is read in the code of its class, of the generator it is made of, or of the function that returns it;
  where that cannot be read, it may end any. If there is a block that may, the export fails and names it. What
  torch raises at a test on data, and what the rewriting raises, is never taken by a handler of the model.
  What an expression raises while it is traced (`round(x)`, `table[key]`) may come from what stands for its values
  there: it is never a check, and stops the export. What tensor data lets an operation raise, as a division by 0, an
  index out of bounds, `int` of NaN, the root of a negative number, `torch.stack` of nothing or a matrix that is not
  positive definite, is infinity, NaN or the end of a run in a file: where the model may catch it, the export fails.
  What sizes let it raise (`1 / n`, `math.log(n)`, `x.unfold(0, 3, 1)` of two rows) is asked there as by an `if`, and
  the handler is a way of its own; what torch checks in no trace is found by running model and program at a few sizes.
- **`a or b`, `a and b`** are truth values where they are merely tested and `a if a else b` where their value is used.
  An operand that changes something is read only where Python would read it.
- **None.** A variable that data leave None or give a value has a second one beside it, which says whether the value is
  there: `v is None`, `if v`, `v == 3`, `v or 0`, `x[v:]` and `x[:v]` ask that one, and to read the value where there is
  none ends a run, as most of what Python makes of None raises; where the model may catch that, the export fails. A
  function that may return None returns both, to callers that are rewritten to ask; where something else takes what it
  returns (a list, `map`, a hook, a property), and for attributes and entries that may be None, the export fails.
- **Functions in functions.** A variable that a nested function, a lambda or a kept generator uses has one cell, and
  branches and bodies of loops assign to that cell: every function over it sees what Python's would see.
- **Shared memory.** What comes out of a branch or a loop is a new tensor in the graph, and may be one that has
  another name in Python. Each result is known with the storages that it may be; a change in place makes the others
  stale, and to read a stale tensor (in the model, as its output, or as a buffer that it leaves behind) is refused
  with both lines. The same holds for two views that one body takes as two operands. A row or a window by the number of
  a loop, `y[i]`, may be any part of `y`: behind a change of `y` it is stale, and `row = y[i]; row += 1` is refused,
  for the graph reads a copy (write `y[i] += 1`). What an input holds after the call is not told. Lists, dicts
  and objects from before a test or a loop that it may replace must not be changed behind it while both are in use, and
  `a is b` of what a branch or a loop made anew is refused where a path made them one.
- **Indices.** The number of a step stands in an index beside slices, `None`, `...`, tensors, lists and masks as torch
  reads it: it takes its axis away before tensors, lists and masks choose together. What is written there is put back.
- **Numbers.** A Python number that a loop or a branch changes is an int64 or float64 tensor of rank 0 that computes as
  Python does, and decides a dtype no more than a Python number would. Its kind may widen: bool, int, float, and a
  tensor of the dtype and shape that the body makes (`total = 0`). Where a variable has its kind only behind the first
  step (`h = None`), that step is written before the loop. Integers beyond 64 bits do not fit. A number of tensor data
  from in front of a loop or a branch, `k = int(x.sum())`, is an operand of its own of what becomes a graph. Every
  function of `math`, and `is_integer`, `bit_length` and their kin, give what Python's do, or are refused with their
  line; what floats make of a size is rounded after each operation. ONNX has no operator for some functions, as `log2`,
  `atan` or `cosh`, and a file has other last digits than C: what is made of two of them, as `math.exp2(math.log2(n))`,
  is refused where it is rounded or compared. `index` and `remove` of a number that is missing end a run of the program
  as they end Python's: in a file by an index out of bounds.
  A number that is an int on one path and a float on the other keeps both kinds in mind: where they would give a tensor
  beside it different dtypes, as one of integers, the export fails. So is what `max(n, 0.5)` and `min(n, 0.5)` give,
  of a size as well: one of the two, with its kind, and the first one where the second is NaN.
  `total = 0` that is a tensor with axes behind a step is the number where tensor data lets a loop take none, and in the
  first step. Beside tensors that have all axes of the result nothing comes of that; to return it, or to make anything
  of it whose axes it decides, is refused.
- **State.** What code changes is found by what it can reach: its variables, the globals it names, the objects behind
  them with their attributes, slots, entries and members, submodules, classes, functions with their default arguments.
  A place that both branches or the steps of a loop fill comes out of the graph; a set, an array of numpy, an iterator
  that only one path changes is refused, and so are other orders of the keys of a dict, and random numbers that only
  one path takes from a generator of `random` or numpy. So is an attribute of a tensor that a branch or a loop sets, or
  that a tensor has which comes out of one (names with an underscore are left to torch). State in modules written in C
  is not seen, but for that behind `random.random()` and `numpy.random`. A seed that `forward` gives torch is refused,
  as a file draws other numbers, and so is a model that asks whether gradients are computed (`torch.is_grad_enabled()`,
  `y.requires_grad`) and does something else without them, unless `to_onnx` is called where there are none.
- **Texts** that hold a number of tensor data or a dynamic size (`f"{x.sum()}"`, `str(…)`, `"…".format(…)`, `"…" % …`)
  may be told in messages; to compare one, to look something up by it or to take it apart is refused. In a function
  that nothing else stops, and without `rewrite`, the export stops where such a text is made for more than a message:
  `raise`, `assert`, printing, logging, warnings, a function that checks its first argument, or a variable that nothing
  but these read.
- **Types.** `isinstance(n, int)`, `type(n)`, `flag is True` and the patterns of `match` have the answer that Python's
  number gives in eager mode, not that of the tensor or symbol which stands for it: in rewritten functions, and
  `isinstance` and `type` in all of the model's modules and the packages that they name, for the time of a trace within
  the guard, with or without `rewrite`. Functions of the model's own modules that hold a `match` of types, `is True`,
  `type(…)` or `….__class__` are rewritten before the first attempt of `rewrite="auto"`; without it, and in functions of
  installed packages, these expressions alone are, where a call of the model may lead: which functions these are is read
  off the names in the code of its `forward` and in theirs, and every method of a class of the model's own modules is
  one. A number whose kind depends on the path is refused there, and so is a `match` on tensor data that binds names
  which are read although its guard failed. What comes from elsewhere, as a function that an input holds, is as torch
  has it.
- **Lists.** A list that a loop fills knows its first and last elements, slices, `reversed`, `len`, `+`, loops over it,
  `torch.stack` and `torch.cat`, and one of numbers `in`, `index` and `count`; what needs its length while the model is
  traced is refused: unpacking, `sort`, returning it. Elements that data leaves out (`if …: rows.append(row)`,
  comprehensions with a filter) are left out when the program runs, and those of the steps behind a `break` on data. A
  list that was made outside of the function cannot be filled. What the steps before appended is nowhere in the graph of
  a step, so that a loop carries the last elements of a list which a step reads: `outs[-1]`, `outs[-2:]`, `outs[t - 1]`
  by the number of a step that appends one element each time, `outs[len(outs) - 2]`, `len(outs)`, `if outs`; `outs[0]`
  is what it was before the loop. Where there may be none before the loop, its first step is written in front of it.
  Where a step asks for more (`torch.stack(outs)`, `for o in outs`, `outs.pop()`), and where a branch makes the list
  shorter (`outs.pop(i)`, `del outs[i]`, `outs.clear()`), all of its rows are carried, one tensor that each step makes
  anew; its elements need one size then. Tensors whose size is made in the step, as `x[i:i + 2]` that may end at the end
  of x, `row[mask]` or `vector.expand(count, -1)`, and tensors of several known sizes (`x[:2]` and `x[2:]`), lie behind
  each other in one tensor, along the one axis whose size differs, with a number for each that tells how long it is:
  `torch.cat`, `pad_sequence`, an index, slices, loops over the list and `len` of it are right, and `torch.stack` of
  elements that turn out to be of several sizes ends a run. Such a list is found when it is asked for what rows of one
  size cannot answer; the program is traced again then. It stays in the branch or the step that fills it. Elements that
  a loop puts in front, `outs.insert(0, row)`, are appended and turned around behind it, if the function made the list
  and the loop does nothing else with it.
  `sorted` ends a run where a key is NaN: Python's order of such keys comes from how it goes about it.
  `torch.tensor` of a list that data leaves empty is of float32 and one axis in Python, whatever its elements would have
  been: where that is another dtype or rank than theirs, such a run ends.
- **Sizes of steps.** A variable that a step leaves as a tensor of another size (`rest = rest[1:]`, `order =
  order[1:][mask]`, `out = torch.cat([out, part])`, `x = x[0::2] + x[1::2]`) is carried under sizes that only a run
  tells; its rank and dtype stay. The step, the test and what follows ask for its sizes anew, and nothing that the
  example's sizes answer is taken for granted of a step. A `while` whose test asks Python for such a size (`while
  len(rest) > k`) is a loop of the graph, too, and so is one that a size ends within a step (`while True: …; if i ==
  len(x): break`, `for i in range(1000): if i >= n: break`). Such a loop is a `while_loop`, also where it goes over
  rows, and the lists that it fills are carried as their rows, which need one size. Operands of an elementwise function
  whose sizes are computed from those of data are broadcast when the program runs, as in eager mode. Where the sizes
  differ before the loop alone, the first step is written in front of it. An exported program with such a loop has
  operators of this package (`exportguard::sized_anew` and others): `import exportguard.rewrites.resizing` before it is
  loaded from a file of torch's.
- **Choices.** `layers[k]` with a `k` that only the run knows is asked for nothing but calls, attributes and elements:
  each is asked of every element of the container, in a branch of its own, so that only what Python would do is done.
  Numbers of one kind and tensors of one shape are looked up in a tensor, which may be any of them in memory. That `k`
  is out of bounds is an error that no handler of the model may catch. A dict gets no new key of data.
- **Iterators.** What generators, `map`, `filter`, generator expressions and `itertools` give is made element by
  element: each is made when the loop that goes through it comes to it, so that both see what the other one changed. A
  function with `yield` calls the body of the loop for what it yields. It is refused where it takes what is sent to it,
  or yields within a `with` or a `try`; so is an iterator that is gone through in another branch or loop than the one
  that it was made in, gone through again, or joined by `zip` to another one where neither is a function of rows.
  `any` and `all` make no element behind the one that decides. A loop whose length Python knows is unrolled, and goes
  through all elements also where tensor data leaves it before: what makes them there and changes something is refused
  (a generator, a class with `__next__`, a function under `map`), and so is an iterator, or one within it, that somebody
  may use again behind such a loop: a variable that a function on the stack reads later, a function over it that is
  called again, an attribute, a container or another iterator that holds it. `itertools.count`, `cycle` and `repeat`
  beside rows make their elements of the number of the step; alone they are a loop that ends where the model leaves it.
  `next(it)` of `iter(x)` takes a row where it was made, not in a branch or a loop.
- **Sizes as keys.** `if n not in self.masks: self.masks[n] = …` of a dynamic size: whether n is another key is a
  test on sizes, and what the trace puts into a dict goes with it. A function under `lru_cache` is called.
- **Tests on sizes.** torch traces the way that the sizes of the example take, and notes which sizes take it. Where
  `to_onnx` finds that others do not (see [axes](axes.md)), the model is traced once more at such sizes, and so on; each
  program is proved for the sizes that lead to it, and all are one file with `If`s on the sizes, which share their
  weights. So it does not matter where the test stands, in the model or in a library, as an `if`, an `assert` in a
  `try`, a `match` or the key of a dict. The export fails with the line where this takes more than eight programs
  (`torch.as_tensor(x.shape[0])` makes a number of every size), or where ways return tensors of different rank. A test
  on sizes behind one on data is never taken for settled because the model did the same with the data at hand.
  A test that the example meets, `if x.shape[0] == 3` for 3 rows, is such a branch, and so is one of what floats make of
  a size, `math.sqrt(n) > 3`.
  Sizes of 0 are a way where the model asks for them (`if len(x) == 0`); if they cannot be one, a warning has the line.
- **No rows.** A loop over no rows leaves everything as it was, in onnxruntime as in Python. torch's own `scan` takes no
  tensor without rows, so that the exported program as a module raises there. A range that ends before it starts has no
  numbers, and a list that it fills none either. What is of another kind without steps, as `sum([])`, which is a number
  in the place of a row, asks whether there are any: that is a test on sizes. A program with a loop is compared at sizes
  of 0 in any case; where it differs and no way for them can be joined, the report has a bound, and a warning tells it.

`python tests/python/rewrites/random_programs.py --count 10000 --results results.jsonl` makes random programs, exports
each, and compares it with eager mode for several sizes and signs, every tenth in onnxruntime as well. They have
assignments, branches, `elif`, `for` over rows, ranges, slices, `zip`, `enumerate`, `reversed`, generators, `tolist()`
and no rows, `while`, `else` behind loops, `break`, `continue` and `return` in loops, nested in each other; `try`,
`finally`, `suppress`, context managers that swallow, assertions, exceptions of methods; `and` and `or` as values,
chained comparisons, conditional expressions, `any`, `all`, `sum`, `min`, `max`, walrus, `match`; aliases, views,
changes in place of slices and buffers; lambdas, nested functions and lists of them, `nonlocal`; lists, nested lists,
pairs and comprehensions with filters, sliced, reversed, added and looped over; dicts, objects, dataclasses, attributes,
submodules; Python numbers that loops carry, star-unpacking, types and texts of numbers; and the idioms of
`program_idioms.py`: layers, numbers and lists by a number of data, lists read while they are filled, `map`, `reduce`
and `itertools`, the best so far, words that decide, windows, rows that are written, named tuples, recursion, iterators.
"""

_HEAD = """\
# Rewriting control flow that depends on tensor data

This page is written from the tests by `python tests/python/rewrites/control_flow_document.py`: every program below is
exported with a dynamic axis and compared with eager mode on every path and for several trip counts, as a module and in
onnxruntime.

`torch.export` stops at `if x.sum() > 0`. With `rewrite="auto"` the export goes on: the function that it stopped in is
rewritten for the time of the export, and it is tried again, until it exports or nothing is left to rewrite.

```python
onnx = exportguard.to_onnx(model, (x,), dynamic_shapes=({0: "batch"},), rewrite="auto")
for step in onnx.rewriting_steps:
    print(step.report())                    # where it stopped, and the difference of the sources

with exportguard.torch_export_patches(rewrite="auto") as guard:    # the same around torch.export
    program = torch.export.export(model, guard((x,)), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
```

A loop that makes a dynamic axis a constant is no error for torch; such loops are rewritten as well, if the axis stays
dynamic then. When nothing helps, torch's own error is raised with a note on what was tried, and the model, its
functions and its attributes are what they were.

`rewrite=` also takes what is to be rewritten: a module, or a list of methods, classes, `(class, "name")` pairs and
dicts of a `"target"` with options of `transform_method`; `"auto"` may be one item of the list. `dump_rewriting=folder`
writes the sources before and after and their difference.

## Keeping the result

```python
result = exportguard.export_with_rewriting(model, (x,), dynamic_shapes=...)
result.save("rewritten.py")                 # or save_rewritten([step.patch for step in onnx.rewriting_steps], path)

exportguard.to_onnx(model, (x,), options=ExportOptions(guard={"custom_patches": ["rewritten.py"]}))
```

The file holds each rewritten function with the path of its original, a digest of the source that it was made from and
the version of the package. If a source has changed since, the guard refuses the file with one message that names all
functions that have. The bytes of the file do not depend on `PYTHONHASHSEED`.

## How it decides

Whether a test depends on tensor data is decided while the model is traced: a test on a Python value stays the test
that it was. A test on what buffers hold that the call does not write, and on nothing else, is decided by what they hold
at the export, without any rewriting; what a call writes, and parameters, are data.

| source | becomes |
|---|---|
| `if`, `elif`, the conditional expression on data | `cond` |
| `and`, `or`, `not`, `a < b < c` on data | logical operators on tensors |
| `bool(t)`, `int(t)`, `float(t)` | a bool tensor, a symbolic number, a tensor of rank 0 |
| `for` over the rows of a dynamic axis, `range(n)` of a symbolic n | `scan` |
| `for` with a `break` on data, `range(start, n)`, a range whose length is data, `while` on data | `while_loop` |
| a loop whose length Python knows | stays a loop, which the trace unrolls |
| comprehensions, `any`, `all`, `sum`, `min`, `max` | loops over what they go through |
| `[0, 1] * n`, `[row] * n` with a size `n` | the numbers or tensors repeated |
| `[None] * n`, then `out[i] = …` | rows of a tensor with a mask; to read one that is None ends a run |
| `start = None`, then `if start is None: start = i`; `return None` beside `return row` | a value with a flag |
| `map`, `filter`, `list`, `tuple`, `sorted`, `[*rows]`, `reduce` and most of `itertools` | loops over rows |
| `y[i], y[j] = y[j].clone(), y[i].clone()` | one assignment after the other, of what was computed before |
| `layers[k]`, `{0: f, 1: g}[k]`, `scales[k]`, `counts[k] += 1` with a `k` of data | a look-up, or branches |
| `y[:k] = 0`, `y[a:b] += 1` between bounds of data | a slice between symbolic numbers |
| a `while` that fills a list, as with two pointers | a `while_loop` that counts its steps, and a `scan` |
| `def rows(x): … yield row`, `(f(row) for row in x)` | one loop of its steps and of those of what goes through it |
| `for part in x.split(lengths.tolist())`, `torch.split(x, 2)` | a loop over where the parts start and stop |
| `parts = x.split(lengths.tolist())` | a list that such a loop fills |
| `while (n := …) > 1` | a `while` that is left where the test fails |
| `return` inside a loop, `else` behind one | a number that says how the loop was left, and tests of it |
| `break`, `continue`, `return` on data inside of `with` or `try` | a number, and tests of it behind the block |
| comprehensions with several `for` or with `:=` | the loops that they are, in front of their statement |
| `torch.equal`, `torch.allclose`, `is_nonzero`, `in` | bool tensors |
| a step that leaves a tensor longer or shorter | a `while_loop` that carries it under sizes of the run |
| `while` on sizes, `len(x)`, `float(n)`, `math.sqrt(n)` of sizes | `while_loop`, symbolic numbers, tensors of rank 0 |
| `if x.shape[0] > 4`, `if n % 2`, `if len(x) == 1` | a program for each way, and `If` on the sizes |
| `if a and (m := b) > 1`, `next((a for b in c if d), e)`, a `__bool__` of a class of the model's | branches and loops |
| `match` on data: values, sequences, mappings, classes, guards | tests of types, lengths and parts |
| `assert`, `raise` on one side of a test on data | a check in the program where nothing catches it; none in a file |

What a branch writes - variables, attributes, entries, elements, globals, variables of enclosing functions, in-place
changes of tensors, caches - comes out of the graph as its results. A variable that nothing reads behind the test may be
anything. Where the branches leave what no graph can hold, such as None and a tensor, `rewrite="auto"` moves what
follows the test into its branches (`absorb_rest=True` of `transform_method`).

The functions of `torch.distributions`, which check their arguments on data, are rewritten as those of a model are.
"""

_LIMITS = """\
## What is left as it is

- `global` or `nonlocal` inside a loop, a `return` in a `with` or `try` inside a loop, and an `if` that holds the
  `break` or `continue` of a loop that is left as it is; coroutines; lambdas at the level of a module.
- `x is None`, `isinstance(…)`, `in`, comparisons with a string and `self.training` are Python tests by their form.
- torch takes a `scan` of one step for a constant: a loop over rows is exported with two or more of them, and runs with
  any number.
- `strict=True`: torch's own tracer does not go through rewritten code.
"""


def _source(cls: type) -> str:
    definition = ast.parse(textwrap.dedent(inspect.getsource(cls.forward))).body[0]
    definition.decorator_list = []
    return ast.unparse(definition)


def _rewritten(cls: type) -> str:
    own = (transform_method(method) for name, method in vars(cls).items() if name in ("forward", "is_large", "clamped"))
    return "\n\n".join(r.source for r in own if r.is_changed).replace("_exportguard_rewrite", "_rt")


def _example(cls: type) -> str:
    lines = (applied.split(": ", 1)[1] for applied in transform_method(cls.forward).applied)
    what = f" ({', '.join(dict.fromkeys(lines))})".replace(" ()", "")
    return (
        f"<details><summary>{cls.__name__}{what}</summary>\n\n```python\n{_source(cls)}\n```\n\nbecomes\n\n"
        f"```python\n{_rewritten(cls)}\n```\n\n</details>\n"
    )


def _table(title: str, programs: list[type]) -> str:
    return f"## {title}\n\n{len(programs)} programs.\n\n" + "\n".join(_example(cls) for cls in programs)


def _error(cls: type) -> str:
    try:
        exported(cls(), (up(3),))
    except RewriteError as error:
        return str(error)
    raise AssertionError(f"{cls.__name__} is exported")


def _refusal(cls: type, reason: str) -> str:
    return (
        f"<details><summary>{cls.__name__}: {reason}</summary>\n\n```python\n{_source(cls)}\n```\n\nbecomes\n\n"
        f"```python\n{_rewritten(cls)}\n```\n\nand is refused:\n\n```\n{_error(cls)}\n```\n\n</details>\n"
    )


def _places() -> str:
    names = "\n".join(f"- {name}" for name in test_transformers_places.PLACES)
    return (
        '## Places in transformers\n\nExported with `rewrite="auto"` and no patch of transformers, and equal to eager '
        f"mode on both sides of the test:\n\n{names}\n"
    )


def document() -> str:
    """The text of the page."""
    tables = "\n".join(_table(title, programs) for title, programs in _TABLES.items())
    refused = "\n".join(_refusal(cls, reason) for cls, reason in _REFUSED.items())
    title = "## What no graph can hold\n\nEach fails with the line and the reason, and leaves everything as it was.\n"
    return f"{_HEAD}\n{_PROMISES}\n{_places()}\n{tables}\n{_LIMITS}\n{title}\n{refused}"


if __name__ == "__main__":
    PATH.write_text(document(), encoding="utf-8")
