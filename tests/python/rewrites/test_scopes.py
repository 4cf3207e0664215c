"""Programs with global and nonlocal variables, caches, None, dicts, ranges of any length, breaks over rows, threads."""

# ruff: noqa: SIM108 - the programs are what users write

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from control_flow_program import Programs, check, up
from torch._higher_order_ops.map import map as map_rows
from torch.nn import Module
from transformers import DynamicCache

from exportguard import GuardError, export_with_rewriting, to_onnx, torch_export_patches, torch_export_rewrite

PROGRAMS = Programs()

#: Rows of several lengths, of which the loops below run over as many, or over one, two or three fewer.
LENGTHS = ((up(5),), (up(4, -1),), (up(3, 2),), (up(7, 0.5),))
#: Loops stop before, at and after the last row.
SIZES = ((up(5),), (up(4, 9),), (up(3, -1),), (up(1, 5),), (up(6, 2),))

_LAST = None
_COUNT = 0


@PROGRAMS.add()
class GlobalInABranch(Module):
    def forward(self, x):
        global _LAST
        if x.sum() > 0:
            _LAST = x + 1
        else:
            _LAST = x - 1
        return _LAST * 2


@PROGRAMS.add()
class GlobalWithReturn(Module):
    def forward(self, x):
        global _LAST
        _LAST = x
        if x.sum() > 0:
            _LAST = x + 1
            return x
        y = _LAST * 3
        _LAST = None
        _LAST = y
        return _LAST


@PROGRAMS.add()
class GlobalOfACalledFunction(Module):
    def forward(self, x):
        global _COUNT
        _COUNT = torch.zeros(())

        def note(y):
            global _COUNT
            _COUNT = _COUNT + y.sum()

        if x.sum() > 0:
            note(x)
        else:
            note(-x * 2)
        return x + _COUNT


@PROGRAMS.add()
class NonlocalInABranch(Module):
    def forward(self, x):
        total = x * 0

        def add(y):
            nonlocal total
            if y.sum() > 0:
                total = total + y
            else:
                total = total - 2 * y

        add(x)
        add(-x)
        return total


@PROGRAMS.add()
class NonlocalWithReturn(Module):
    def forward(self, x):
        last = x

        def signed(y):
            nonlocal last
            if y.sum() > 0:
                last = y + 1
                return y
            last = y - 1
            return -y

        return signed(x) + last


@PROGRAMS.add()
class NestedFunctionWithEarlyReturn(Module):
    def forward(self, x):
        def scaled(y, by=2):
            if y.max() > 2:
                return y / by
            return y * by

        return scaled(x) + scaled(x * 3, by=4)


@PROGRAMS.add()
class FunctionDefinedInABranch(Module):
    def forward(self, x):
        if x.sum() > 0:

            def change(y):
                return y + 1

            z = change(x)
        else:
            z = x
        return z


@PROGRAMS.add()
class CacheInABranch(Module):
    def forward(self, x):
        cache = DynamicCache()
        states = x[None, None]
        if x.sum() > 0:
            cache.update(states, states + 1, 0)
        else:
            cache.update(states * 2, states * 3, 0)
        keys, values = cache.update(states, states, 0)
        return keys + values


@PROGRAMS.add()
class CacheUpdatedAfterATest(Module):
    def forward(self, x):
        cache = DynamicCache()
        states = x[None, None]
        if x.max() > 2:
            states = states / 2
        cache.update(states, states, 0)
        return cache.layers[0].keys


@PROGRAMS.add()
class NoneOnBothPaths(Module):
    def forward(self, x):
        bias = None
        if x.sum() > 0:
            y, bias = x + 1, None
        else:
            y, bias = x - 1, None
        return y if bias is None else y + bias


@PROGRAMS.add()
class NoneThatNothingReads(Module):
    def forward(self, x):
        if x.sum() > 0:
            scratch = None
            y = x + 1
        else:
            scratch = x * 2
            y = scratch + x
        return y


@PROGRAMS.add()
class DictsOfDicts(Module):
    def forward(self, x):
        state = {"a": {"b": x}, "c": None}
        if x.sum() > 0:
            state = {"a": {"b": x * 2}, "c": None}
        return state["a"]["b"]


@PROGRAMS.add()
class EntryOfANestedDict(Module):
    def forward(self, x):
        state = {"a": {"b": x}, "n": 3}
        if x.sum() > 0:
            state["a"]["b"] = state["a"]["b"] * 2
        return state["a"]["b"] * state["n"]


@PROGRAMS.add()
class BoolOfAHelper(Module):
    @staticmethod
    def is_large(x):
        return bool((x.abs() > 2).any())

    def forward(self, x):
        return x / 2 if self.is_large(x) and not self.is_large(x / 3) else x


@PROGRAMS.add()
class FloatOfData(Module):
    def forward(self, x):
        level = float(x.abs().max())
        if level > 2:
            x = x / level
        return x - level


@PROGRAMS.add()
class IntOfDataAsASize(Module):
    def forward(self, x):
        count = int(x.abs().max().clamp(0, 3))
        if x.sum() > 0:
            y = x[:, :count].sum() + count
        else:
            y = x.sum()
        return x * y


@PROGRAMS.add(LENGTHS)
class RangeFromOne(Module):
    def forward(self, x):
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total * 0.5 + x[i]
        return total


@PROGRAMS.add(LENGTHS)
class RangeThatMayBeEmpty(Module):
    def forward(self, x):
        total = x[0]
        for i in range(3, x.shape[0]):
            total = total * 0.5 + x[i]
        return total


@PROGRAMS.add(LENGTHS)
class RangeWithAStep(Module):
    def forward(self, x):
        y = x.clone()
        for i in range(1, x.shape[0], 2):
            y[i] = -y[i]
        return y


@PROGRAMS.add(((up(5), torch.tensor(2)), (up(4), torch.tensor(0)), (up(3), torch.tensor(7)), (up(6), torch.tensor(1))))
class RangeOfDataThatMayBeEmpty(Module):
    def forward(self, x, n):
        for i in range(int(n)):
            x = x * 0.5 + i
        return x


@PROGRAMS.add(SIZES)
class BreakOverRows(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            if row.sum() > 3:
                break
            total = total + row
        return total


@PROGRAMS.add(SIZES)
class BreakBehindTheUpdate(Module):
    def forward(self, x):
        total, count = torch.zeros(4), 0
        for row in x:
            total = total + row
            count += 1
            if total.sum() > 3:
                break
        return total * count


@PROGRAMS.add(SIZES)
class BreakAndContinueOverRows(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for i, row in enumerate(x):
            if row.sum() < 1:
                continue
            if total.sum() > 5:
                break
            total = total + row * i
        return total


@PROGRAMS.add(SIZES)
class FirstRowThat(Module):
    def forward(self, x):
        found = torch.zeros(4)
        for row in x:
            if row.max() > 0.5:
                found = row
                break
        return found


@PROGRAMS.add(SIZES)
class BreakOverTwo(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row, scale in zip(x, x.sum(1)):  # noqa: B905
            if scale > 3:
                break
            total = total + row * scale
        return total


@PROGRAMS.add()
class MapOverRows(Module):
    def forward(self, x):
        rows = map_rows(lambda row: row * 2 + row.sum(), x)
        if rows.sum() > 0:
            rows = rows / 2
        return rows


@PROGRAMS.add()
class CacheOnOnePath(Module):
    def forward(self, x):
        cache = DynamicCache()
        cache.update(x[None, None], x[None, None], 0)
        if x.sum() > 0:
            cache.update(x[None, None], x[None, None] * 2, 0)
        return cache.layers[0].keys, cache.layers[0].values


@PROGRAMS.add()
class CacheMadeInABranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            cache = DynamicCache()
            cache.update(x[None, None], x[None, None], 0)
        else:
            cache = DynamicCache()
            cache.update(-x[None, None], x[None, None] * 2, 0)
        return cache.layers[0].keys + cache.layers[0].values


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_is_equal_to_eager(cls: type[Module]) -> None:
    global _LAST, _COUNT
    _LAST, _COUNT = None, 0
    check(cls)


class BreakWithAList(Module):
    cases = ((up(3),), (up(2, 2),), (up(5, 4),))

    def forward(self, x):
        rows = [x.sum(0)]
        for row in x:
            if row.sum() > 3:
                break
            rows.append(row)
        return torch.stack(rows).sum(0)


def test_a_list_that_a_break_ends_has_the_elements_before_it() -> None:
    code = BreakWithAList.forward.__code__
    check(BreakWithAList)
    assert BreakWithAList.forward.__code__ is code


def test_a_second_thread_cannot_export_while_one_rewrites_and_may_run_the_model() -> None:
    model = NonlocalInABranch()
    seen: list[object] = []

    def other() -> None:
        seen.append(copy.deepcopy(model)(up(2, -1)))
        try:
            export_with_rewriting(model, (up(3),))
        except GuardError as error:
            seen.append(error)

    with torch_export_rewrite(model):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    torch.testing.assert_close(seen[0], model(up(2, -1)))
    assert "thread" in str(seen[1])


def test_guards_that_rewrite_can_be_nested() -> None:
    rows = ({0: torch.export.Dim.DYNAMIC},)
    code = NonlocalInABranch.forward.__code__
    with torch_export_patches(rewrite="auto") as outer:
        with torch_export_patches(rewrite="auto"):
            torch.export.export(NonlocalInABranch(), (up(3),), dynamic_shapes=rows)
        assert len(outer.rewriting_steps) == 1
        torch.export.export(NonlocalInABranch(), (up(3),), dynamic_shapes=rows)
        assert len(outer.rewriting_steps) == 1
    assert NonlocalInABranch.forward.__code__ is code


def test_code_whose_globals_have_no_name_is_rewritten(tmp_path: Path) -> None:
    source = (
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        if x.shape[0] > 4:\n"
        "            x = x * 2\n"
        "        return x + 1 if x.sum() > 0 else x - 1\n"
    )
    file = tmp_path / "made.py"
    file.write_text(source)
    made: dict[str, Any] = {"torch": torch}
    exec(compile(source, str(file), "exec"), made)
    assert "__name__" not in made
    model = made["Model"]().eval()
    onnx = to_onnx(model, (torch.ones(3, 2),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (3, 6):
        for x in (torch.ones(rows, 2), -torch.ones(rows, 2)):
            torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))
