"""An element of a list, a dict or a module that only the run knows: a layer, a function, a number, a tensor, a list."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict

import pytest
import torch
from control_flow_program import Programs, check, up
from random_programs import model_of
from torch.nn import Module

from exportguard import RewriteError, to_onnx, torch_export_rewrite
from exportguard.rewrites.conditional import Condition

PROGRAMS = Programs()


class Experts(Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.biases = torch.nn.ParameterList([torch.nn.Parameter(torch.full((4,), k + 0.5)) for k in range(3)])
        self.steps = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(4, 4))


@PROGRAMS.add()
class OneExpert(Experts):
    def forward(self, x):
        k = (x.sum() > 0).long() + (x.sum() > 10).long()
        return self.experts[k.item()](x) + self.experts[int(k)].weight[0]


@PROGRAMS.add()
class AnExpertForEachRow(Experts):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(self.experts[int(row.argmax()) % 3](row))
        return torch.stack(outs)


@PROGRAMS.add()
class OtherContainers(Experts):
    def forward(self, x):
        k = int(x.sum() > 0)
        return self.steps[k](x) + self.biases[k - 1]


@PROGRAMS.add()
class Functions(Module):
    def doubled(self, x):
        return x * 2 if x.sum() > 3 else x - 1

    def forward(self, x):
        k = int(x.sum().sign())
        return [torch.sin, self.doubled, torch.tanh][k](x) + {0: torch.cos, 1: torch.exp, -1: torch.sigmoid}[k](x)


@PROGRAMS.add()
class Numbers(Module):
    def forward(self, x):
        k = int(x.sum().abs()) % 3
        scales, counts = (0.5, 1.0, 2.0), [1, 2, 3]
        scale = {True: 3.0, False: 4.0}[bool(x.sum() > 0)]
        return x * scales[k] * scale, counts[k - 1], x * {0: 0.5}.get(k, 7.0)


@PROGRAMS.add()
class Tensors(Module):
    def forward(self, x):
        k = x.sum().abs().long() % 3
        alike, others = [x, x * 2, x - 1], [x.sum(), x[:, 0].sum() + x.sum(0).max(), x.mean()]
        return alike[k], others[k - 3]


@PROGRAMS.add()
class Counts(Module):
    def forward(self, x):
        counts, sums, seen = [0, 0, 0], [torch.zeros(4), torch.ones(4)], {0: 0, 1: 0}
        for row in x:
            counts[int(row.argmax()) % 3] += 1
            k = (row.sum() > 1).long()
            sums[k] = sums[k] + row
            seen[k.item()] += 2
        return torch.tensor(counts), torch.stack(sums), seen[0], seen[1]


@PROGRAMS.add()
class Buckets(Module):
    def forward(self, x):
        buckets = [[] for _ in range(3)]
        for row in x:
            k = 0 if row.sum() < -1 else 1 if row.sum() < 2 else 2
            buckets[k].append(row)
        return [torch.stack(rows).sum(0) if len(rows) else torch.zeros(4) for rows in buckets]


@PROGRAMS.add()
class AMethodThatIsHeld(Module):
    def forward(self, x):
        rows, table = [x.sum(0)], {"a": x[0]}
        add, put = rows.append, table.__setitem__
        if x.sum() > 0:
            add(x.sum(0) * 2)
            put("a", x[-1])
        return torch.stack(rows).sum(0), table["a"]


class Registry(dict):
    """Asked with what it makes a key of; there is no default to give."""

    def get(self, cls):
        return super().get(cls.__name__) or {}


class OneBehind(dict):
    def __getitem__(self, key):
        return super().__getitem__(int(key) - 1)


@PROGRAMS.add()
class MethodsOfOnesOwn(Module):
    def __init__(self) -> None:
        super().__init__()
        self.registry, self.behind = Registry(Module={"scale": 2.0}), OneBehind({0: 3.0, 1: 5.0})

    def forward(self, x):
        scale = self.registry.get(Module).get("scale", 1.0)
        if x.sum() > 0:
            x = x * self.behind[2]
        return x * scale


@PROGRAMS.add()
class DefaultsOfCounters(Module):
    def forward(self, x):
        counts, made = Counter({0: 3, 1: 5}), defaultdict(lambda: 7.0, {1: 2.0})
        k = int(x.sum().abs())
        return counts.get(k, 1) * x, x * made.get(k, 0.5)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_what_is_chosen_by_data_is_right(cls: type[Module]) -> None:
    check(cls)


class MayBeCaught(Module):
    def forward(self, x):
        try:
            return [torch.sin, torch.cos][int(x.sum())](x)
        except IndexError:
            return x


class NewEntries(Module):
    def forward(self, x):
        table = {0: x.sum()}
        for row in x:
            table[int(row.argmax())] = row.sum()
        return table[0]


class Words(Module):
    def forward(self, x):
        return {"a": x, "b": x * 2}[int(x.sum())]


class MakesWhatIsMissing(Module):
    def forward(self, x):
        return x * defaultdict(lambda: 7.0, {0: 2.0, 1: 3.0})[int(x.sum())]


class Groups(Module):
    def forward(self, x):
        groups = defaultdict(list)
        for row in x:
            groups[int(row.argmax())].append(row)
        return x * len(groups)


class CountsInADict(Module):
    def forward(self, x):
        counts = {}
        for row in x:
            k = int(row.argmax())
            counts[k] = counts.get(k, 0) + 1
        return x * counts.get(0, 0)


class GoesThrough(Module):
    def forward(self, x):
        return sum([[x, x * 2], [x]][int(x.sum())])


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (MayBeCaught, "IndexError is raised where tensor data says so, and the `except` at line"),
        (NewEntries, "a dict is given an entry under a key that only the run knows"),
        (Words, "a dict with keys that are no numbers is asked for one that only the run knows"),
        (MakesWhatIsMissing, r"a defaultdict makes what it does not have.*write the default out: table.get\("),
        (Groups, r"a defaultdict makes what .*have a tensor with a place for each key.*a mask: x\[keys == key\]"),
        (CountsInADict, "an empty dict is asked for a key that only the run knows; .* have a tensor with a place"),
        (GoesThrough, "the model counts, or takes apart, what it chose from a container"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_cannot_be_chosen_is_refused(cls: type[Module], text: str) -> None:
    with torch_export_rewrite(cls), pytest.raises(RewriteError, match=text):
        torch.export.export(cls(), (up(3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)


class AWordByATest(Module):
    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleDict({"one": torch.nn.Linear(4, 2), "other": torch.nn.Linear(4, 2)})

    def forward(self, x):
        name = "one" if x.sum() > 0 else "other"
        return self.heads[name](x)


class AFunctionByTests(Module):
    def forward(self, x):
        function = torch.relu if x.sum() > 5 else torch.tanh if x.sum() > 0 else torch.sigmoid
        return function(function(x) + 1)


class AMethodByATest(Module):
    def up(self, x):
        return x + 1

    def down(self, x):
        return x - 1

    def forward(self, x):
        name = "up" if x.sum() > 0 else "down"
        return getattr(self, name)(x)


@pytest.mark.parametrize("cls", [AWordByATest, AFunctionByTests, AMethodByATest], ids=lambda cls: cls.__name__)
def test_what_a_conditional_expression_chooses_is_asked_in_its_branch(cls: type[Module]) -> None:
    model = cls().eval()
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (up(2, -1), up(5, 4), up(4, 0.3), up(1)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))


class Forest(torch.nn.Module):
    """A list of numbers whose elements become other ones of the list, in a loop."""

    def forward(self, x):
        parent = list(range(x.shape[0]))
        for i in range(x.shape[0]):
            if x[i, 0] > 0:
                parent[i] = parent[i - 1]
        return torch.tensor(parent)


class Mixed(torch.nn.Module):
    """Functions, of which each is a branch."""

    def __init__(self):
        super().__init__()
        self.functions = [lambda x, k=k: x * k + 1 for k in range(16)]

    def forward(self, x):
        return self.functions[int(x.abs().sum()) % 16](x)


@pytest.mark.parametrize("cls", [Forest, Mixed])
def test_a_choice_among_many_does_not_trace_its_branches_again_and_again(
    cls: type[torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = itertools.count(1)
    build = Condition.build

    def counted(condition: Condition, predicate: object) -> object:
        assert next(built) < 2000
        return build(condition, predicate)

    monkeypatch.setattr(Condition, "build", counted)
    model, x = cls().eval(), torch.randn(8, 4)
    rows = {0: "rows"} if cls is Forest else {}
    onnx = to_onnx(model, (x,), dynamic_shapes=(rows,), rewrite="auto")
    for _ in range(20):
        x = torch.randn(random.randint(1, 12) if rows else 8, 4)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))


#: What a place of data is looked up in, with the places that are there.
LOOKED_UP = {
    "layers": ("self.layers[k](x)", range(-3, 3)),
    "steps": ("self.steps[k](x)", range(-3, 3)),
    "functions": ("[torch.sin, torch.cos, torch.tanh][k](x)", range(-3, 3)),
    "a tuple of them": ("(torch.sin, self.layers[0])[k](x)", range(-2, 2)),
    "a dict": ("{0: torch.sin, 2: torch.cos}[k](x)", (0, 2)),
    "tensors of several sizes": ("[x, x[:1], x + 1][k].sum(0)", range(-3, 3)),
    "numbers": ("x * [0.5, 2.0, 3.0][k]", range(-3, 3)),
    "tensors": ("x + (x, x * 2, x * 3)[k]", range(-3, 3)),
    "one of one": ("[torch.sin][k](x)", (-1, 0)),
    "in a branch": ("(self.layers[k](x) if x.sum() > 0 else self.layers[k](-x))", range(-3, 3)),
    "in a loop": ("sum([self.layers[k](row) for row in x], torch.zeros(2))", range(-3, 3)),
}
_LOOK_UP = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
        self.steps = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))

    def forward(self, x, places):
        for k in places.tolist():
            x = x + {look_up}
        return x
"""


@pytest.mark.parametrize("name", LOOKED_UP)
def test_what_is_not_there_ends_a_run(name: str) -> None:
    look_up, there = LOOKED_UP[name]
    model = model_of(_LOOK_UP.format(look_up=look_up), f"/looked up/{name}.py").eval()
    example = (torch.randn(4, 2), torch.tensor([0, 0]))
    onnx = to_onnx(model, example, dynamic_shapes=({0: "rows"}, {0: "places"}), rewrite="auto")
    for place, before in itertools.product((-100, -4, -3, -2, -1, 0, 1, 2, 3, 100), ([], [0])):
        inputs = {"x": torch.randn(3, 2), "places": torch.tensor([*before, place])}
        if place in there:
            (got,) = onnx.run(inputs).values()
            torch.testing.assert_close(got, model(**inputs))
        else:
            with pytest.raises((IndexError, KeyError)):
                model(**inputs)
            with pytest.raises(Exception, match="Gather"):
                onnx.run(inputs)


WHOLE = {
    "int": "int(x.sum())",
    "of one": "int(x[0])",
    "of an item": "int(x.sum().item() * 2)",
    "rounded before": "int(torch.round(x.sum()))",
}


@pytest.mark.parametrize("name", WHOLE)
def test_no_whole_number_is_made_of_nan_or_infinity(name: str) -> None:
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        k = {WHOLE[name]}\n        return x * k, x[:k]\n"
    )
    model = model_of(source, f"/whole/{name}.py").eval()
    onnx = to_onnx(model, (torch.rand(4),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for first in (2.0, -1.0, 0.25, 1e6):
        x = torch.tensor([first, 0.5, 1.0])
        for got, expected in zip(onnx.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(got, expected)
    for first in (float("nan"), float("inf"), -float("inf"), 1e30):
        with pytest.raises(Exception, match="Gather"):
            onnx.run({"x": torch.tensor([first, 0.5, 1.0])})
