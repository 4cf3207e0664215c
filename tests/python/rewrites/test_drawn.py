"""What makes elements does nothing behind the one at which Python stops, and an iterator is where Python leaves it."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import RewriteError, to_onnx

#: What asks the rows of `{source}` one after the other; `self.ask` counts how often it is asked.
ASKING = {
    "any": "any(self.ask(r) for r in {source})",
    "all": "all(self.ask(r) for r in {source})",
    "any of some": "any(self.ask(r) for r in {source} if self.ask(-r))",
    "all of some": "all(self.ask(r) for r in {source} if self.ask(r * 2))",
    "any of mapped": "any(map(self.ask, {source}))",
    "all of mapped": "all(map(self.ask, {source}))",
    "any of a filter": "any(self.ask(r) for r in filter(self.ask, {source}))",
    "not any": "not any(self.ask(r) for r in {source})",
    "in a test": "1 if any(self.ask(r) for r in {source}) and self.ask(x) else 2",
    "next": "next((1 for r in {source} if self.ask(r)), 0)",
    "largest": "max(self.ask(r) * 1.0 for r in {source})",
    "sum": "sum(self.ask(r) * 1.0 for r in {source})",
    "list": "len([r for r in {source} if self.ask(r)])",
    "generator": "any(self.ask(r) for r in self.made({source}))",
    "bits of a list": "any([self.ask(r) for r in {source}])",
}
SOURCES = {
    "rows": "x",
    "a tuple": "(x, -x, x * 2)",
    "columns": "x.unbind(1)",
    "a range": "(x * k for k in range(-1, 2))",
}

_PROGRAM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.asked = 0
        self.register_buffer("last", torch.zeros(()))

    def ask(self, row):
        self.asked += 1
        self.last = row.sum()
        return row.sum() > 0.5

    def made(self, rows):
        for row in rows:
            yield row

    def forward(self, x):
        self.asked = 0
        answer = {asking}
        return x.sum() * 0 + answer, x.sum() * 0 + self.asked, self.last
"""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("asking", ASKING)
def test_no_element_is_made_behind_the_one_that_decides(asking: str, source: str) -> None:
    text = _PROGRAM.format(asking=ASKING[asking].format(source=SOURCES[source]))
    model = model_of(text, f"/drawn/{asking} {source}.py")
    onnx = to_onnx(model, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows, seed in itertools.product((1, 2, 5), range(4)):
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))
        for found, wanted in zip(onnx.run({"x": x}).values(), model_of(text, "/drawn/eager.py")(x), strict=False):
            torch.testing.assert_close(found, torch.as_tensor(wanted), check_dtype=False)


#: Programs that take more of an iterator than Python would.
FURTHER = {
    "a generator that counts": "for v in self.counted(x):\n            if v.sum() > 1: break",
    "a generator that writes": "for v in self.written(x):\n            if v.sum() > 1: break",
    "a generator that rebinds": "for v in rebinding():\n            if v.sum() > 1: break",
    "one in another": "for k, v in enumerate(self.counted(x)):\n            if v.sum() > 1: break",
    "one that yields from it": "for v in self.outer(x):\n            if v.sum() > 1: break",
    "any": "v = x * any(v.sum() > 1 for v in self.counted(x))",
    "next behind": "it = iter([x, x * 2, x * 3])\n        for v in it:\n            if v.sum() > 1: break\n"
    "        v = next(it, x)",
    "sum behind": "it = iter([x, x * 2, x * 3])\n        any(v.sum() > 1 for v in it)\n        v = sum(it, x)",
    "list behind": "it = iter([x, x * 2, x * 3])\n        for v in it:\n            if v.sum() > 1: break\n"
    "        v = x * len(list(it))",
    "loop behind": "it = iter([x, x * 2, x * 3])\n        for v in it:\n            if v.sum() > 1: break\n"
    "        for v in it:\n            x = x + v",
    "a list that grows": "lst = [x, x * 2]\n        for v in lst:\n            if v.sum() > 1: lst.append(v - 1)\n"
    "            if len(lst) > 5: break\n        v = sum(lst)",
}

#: Those of which the rewriting makes a loop that ends where Python ends it.
RIGHT = ("a generator that rebinds",)

_FURTHER = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.made = 0
        self.register_buffer("state", torch.zeros(()))

    def counted(self, x):
        for k in range(3):
            self.made += 1
            yield x * k

    def written(self, x):
        for k in range(3):
            self.state.add_(1)
            yield x * k

    def outer(self, x):
        yield from self.counted(x)

    def forward(self, x):
        calls = 0

        def rebinding():
            nonlocal calls
            for k in range(3):
                calls += 1
                yield x * k

        self.made = 0
        {loop}
        return v + self.made, calls
"""


@pytest.mark.parametrize("name", FURTHER)
def test_a_program_that_goes_further_than_python_is_right_or_refused(name: str) -> None:
    text = _FURTHER.format(loop=FURTHER[name])
    model = model_of(text, f"/drawn/further {name}.py")
    if name not in RIGHT:
        with pytest.raises(RewriteError, match="line"):
            to_onnx(model, (torch.randn(3, 4).abs(),), dynamic_shapes=({0: "rows"},), rewrite="auto")
        return
    onnx = to_onnx(model, (torch.randn(3, 4).abs(),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for seed in range(4):
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))
        for found, wanted in zip(onnx.run({"x": x}).values(), model_of(text, "/drawn/eager.py")(x), strict=False):
            torch.testing.assert_close(found, torch.as_tensor(wanted), check_dtype=False)


#: Iterators of three or more tensors.
ITERATORS = {
    **{"list": "iter([x, x * 2, x * 3])", "dict": "iter({'a': x, 'b': x * 2}.values())"},
    **{"reversed": "reversed([x, x * 2, x * 3])", "generator": "self.made(x)", "map": "mapped([x, x * 2, x * 3])"},
    **{"cursor": "Cursor([x, x * 2, x * 3])", "chain": "itertools.chain([x], [x * 2, x * 3])"},
    **{
        "zip": "zip([x, x * 2], [x, x * 3])",
        "expression": "(x * k for k in (1, 2, 3))",
        "columns": "iter(x.unbind(1))",
    },
}
#: What leaves them where tensor data says so.
WAYS_OUT = {
    "break": "for v in it:\n            if first(v).sum() > 1: break",
    "any": "v = any(first(v).sum() > 1 for v in it)",
    "another iterator": "for k, v in enumerate(it):\n            if first(v).sum() > 1: break",
    "a function": "v = until(it)",
    "takewhile": "v = len(list(itertools.takewhile(lambda v: first(v).sum() < 1, it)))",
}
#: How they are used afterwards, with what is done before they are left: none of this is a part of the rewriting's.
LATER = {
    **{"list": ("", "len(list(it))"), "star": ("", "count(*it)"), "function": ("", "rest(it)"), "returned": ("", "it")},
    **{"alias": ("other = it", "rest(other)"), "attribute": ("self.kept = it", "rest(self.kept)")},
    **{"container": ("box = {'it': it}", "rest(box['it'])"), "closure": ("later = lambda: rest(it)", "later()")},
    **{"default": ("def later(held=it): return rest(held)", "later()"), "yield from": ("", "rest(again(it))")},
    **{
        "partial": ("later = functools.partial(rest, it)", "later()"),
        "over it": ("more = enumerate(it)", "rest(more)"),
    },
    **{"method": ("later = it.__iter__", "rest(later())"), "join": ("", "len(''.join('a' for _ in it))")},
    **{"global": ("KEPT.append(it)", "rest(KEPT.pop())"), "position": ("", "getattr(it, 'i', rest(it))")},
}

_LEFT_BY_DATA = """
import functools, itertools, torch

KEPT = []

def first(v): return v[0] if isinstance(v, tuple) else v
def rest(it): return sum(1 for _ in it)
def count(*rows): return len(rows)
def again(it): yield from it
def mapped(rows): return map(torch.tanh, rows)
def until(it):
    for v in it:
        if first(v).sum() > 1: return 1
    return 0

class Cursor:
    def __init__(self, rows): self.rows, self.i = rows, 0
    def __iter__(self): return self
    def __next__(self):
        if self.i >= len(self.rows): raise StopIteration
        self.i += 1
        return self.rows[self.i - 1]

class Model(torch.nn.Module):
    def made(self, x):
        for k in (1, 2, 3): yield x * k

    def forward(self, x):
        it = {iterator}
        {before}
        {way_out}
        return x, rest({later}) if {is_returned} else {later}
"""


def _program(iterator: str, way_out: str, later: str) -> str:
    before, after = LATER[later]
    parts = {"iterator": ITERATORS[iterator], "before": before or "pass", "way_out": WAYS_OUT[way_out], "later": after}
    return _LEFT_BY_DATA.format(**parts, is_returned=later == "returned")


EVERY = [*itertools.product(ITERATORS, WAYS_OUT, LATER)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", EVERY[::23], ids=" ".join)
def test_an_iterator_that_data_left_is_not_used_again(case: tuple[str, str, str]) -> None:
    """The example does not leave it, so that only the search for who uses it stops the export."""
    model = model_of(_program(*case), f"/drawn/left {' '.join(case)}.py")
    with pytest.raises(RewriteError, match="line"):
        to_onnx(model, (-torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_an_iterator_that_data_left_and_nobody_uses_again_is_none_of_them(way_out: str) -> None:
    text = _program("cursor", way_out, "list").replace("len(list(it))", "v")
    model = model_of(text, f"/drawn/last {way_out}.py")
    onnx = to_onnx(model, (-torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (-torch.ones(2, 4), torch.ones(1, 4), torch.ones(3, 4) * 0.1):
        found = [*onnx.run({"x": x}).values()][-1]
        torch.testing.assert_close(found, torch.as_tensor(model(x)[1]), check_dtype=False)
