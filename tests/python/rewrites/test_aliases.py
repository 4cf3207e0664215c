"""Names and views of one storage that meet at a test or in a loop: right, or refused when one is read that another
one's in-place change should have reached."""

# ruff: noqa: SIM108 - the programs are what users write

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, exported, up
from torch.nn import Module

from exportguard import RewriteError, to_onnx, torch_export_rewrite

PROGRAMS = Programs()


@PROGRAMS.add()
class OneNameIsGone(Module):
    def forward(self, x):
        h = x * 2
        if h.max() > 2:
            h = h.clamp(-1, 1)
        h += 1
        return h


@PROGRAMS.add()
class TwoNamesInALoop(Module):
    def forward(self, x):
        h = torch.zeros(4)
        prev = h
        out = torch.zeros(4)
        for row in x:
            h.add_(row)
            out = out + prev
        return out, h


@PROGRAMS.add()
class ReadBeforeTheWrite(Module):
    def forward(self, x):
        x = x * 1
        v = x[0]
        if x.sum() > 0:
            z = x.sum()
            v += 1
        else:
            z = x.mean()
        return x, z


@PROGRAMS.add()
class ATableOfRowsThatReadTheOneBefore(Module):
    def forward(self, x):
        table = torch.zeros_like(x)
        table[0] = x[0]
        before = table[0]
        for i in range(1, x.shape[0]):
            table[i] = before * 0.5 + x[i]
            before = table[i]
        return table


@PROGRAMS.add()
class ALoopInABranchChangesWhatItFinds(Module):
    def forward(self, x):
        h = x.sum(0)
        if x.sum() > 0:
            for row in x:
                h += row
                h[1:] *= 0.5
        return h


class ABufferThatALoopInABranchChanges(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x):
        if x.sum() > 0:
            for row in x:
                if row.sum() > 1:
                    self.state += row
        return self.state * 2


@PROGRAMS.add()
class AListOfBothBranches(Module):
    def forward(self, x):
        items = [x]
        if x.sum() > 0:
            items = [x * 2]
        items.append(x + 1)
        return items[0] + items[1]


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)


class MeetAtATest(Module):
    def forward(self, x):
        x = x * 1
        if x.sum() > 0:
            y = x
        else:
            y = x * 2
        y += 1
        return x, y


class AnAugmentedAssignmentReadsWhatATestBound(Module):
    def forward(self, x):
        y = x.clone()
        z = y
        if x.sum() > 0:
            z = y.clone()
        z += 1  # z is read by nothing else, and yet decides whether y changes
        return y


class AViewInABranch(Module):
    def forward(self, x):
        x = x * 1
        v = x[0]
        if x.sum() > 0:
            v += 1
            z = x.sum()
        else:
            z = x.mean()
        return x, z


class CollectedAndChanged(Module):
    def forward(self, x):
        h = torch.zeros(4)
        rows = []
        for row in x:
            h += row
            rows.append(h)
        return torch.stack(rows)


class CarriedAndChanged(Module):
    def forward(self, x):
        h = x.sum(0)
        prev, out = torch.zeros(4), torch.zeros(4)
        for row in x:
            h.add_(row)
            out = out + prev
            prev = h
        return out


class ABuffer(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x):
        s = self.state if x.sum() > 0 else x[0]
        s += 1
        return s


class AListThatIsChangedLater(Module):
    def forward(self, x):
        first = [x]
        items = first
        if x.sum() > 0:
            items = [x * 2]
        items.append(x + 1)
        return items[0], first[-1]


class ARowThatALoopLeft(Module):
    def forward(self, x):
        y = x * 2
        best = y[0]
        for row in y:
            if row.sum() > 1:
                best = row
                break
        best += 1
        return y


class ARowByTheNumberOfALoop(Module):
    def forward(self, x):
        y = x * 2
        for i in range(x.shape[0]):
            row = y[i]
            row += 1
        return y


class AWindowByTheNumberOfALoop(Module):
    def forward(self, x):
        y = x * 2
        for i in range(x.shape[0] - 1):
            rows = y[i : i + 2]
            rows += 1
        return y


REFUSED = [
    ARowThatALoopLeft,
    ARowByTheNumberOfALoop,
    AWindowByTheNumberOfALoop,
    MeetAtATest,
    AnAugmentedAssignmentReadsWhatATestBound,
    AViewInABranch,
    CollectedAndChanged,
    CarriedAndChanged,
    ABuffer,
    AListThatIsChangedLater,
]


@pytest.mark.parametrize("cls", REFUSED, ids=lambda cls: cls.__name__)
def test_a_change_that_a_graph_cannot_see_is_refused(cls: type[Module]) -> None:
    text = r"changes in place under another name|shares its memory|one of the two is changed later"
    with torch_export_rewrite(cls), pytest.raises(RewriteError, match=text):
        torch.export.export(cls(), (up(3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)


def test_a_buffer_holds_what_a_loop_in_a_branch_left_there() -> None:
    x, model = up(3, 2), ABufferThatALoopInABranchChanges()
    module = exported(ABufferThatALoopInABranchChanges(), (x,)).module()
    torch.testing.assert_close(module(x), model(x))
    torch.testing.assert_close(module.get_buffer("state"), model.get_buffer("state"))


class AnElementOfACollectedList(Module):
    def forward(self, x):
        outs = [x.sum(0)]
        for row in x:
            outs.append(row)
        last = outs[-1]
        last[::2] -= 0.5
        return x * 2


class AnElementThatDataLeavesOut(Module):
    def forward(self, x):
        outs = [x.sum(0)]
        for row in x:
            if row.sum() > 0:
                outs.append(row)
        last = outs[-1]
        last += 1
        return x * 2


@pytest.mark.parametrize("cls", [AnElementOfACollectedList, AnElementThatDataLeavesOut])
def test_a_collected_row_is_what_it_was_made_of(cls: type[Module]) -> None:
    with torch_export_rewrite(cls), pytest.raises(RewriteError, match="changes in place under another name"):
        torch.export.export(cls(), (up(3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)


class Held:
    """An object that a model keeps numbers in."""

    def __init__(self, value, count=0):
        self.value = value
        self.count = count


OBJECTS = Programs()


@OBJECTS.add()
class AnObjectWithOneName(Module):
    def forward(self, x):
        held = Held(x.sum(0))
        held = held if x.sum() > 0 else Held(x[0])
        held.value = held.value + 1
        return held.value


@OBJECTS.add()
class ObjectsThatNothingChanges(Module):
    def forward(self, x):
        held = Held(x.sum(0))
        other = held if x.sum() > 0 else Held(x[0])
        return held.value + other.value


@OBJECTS.add()
class AnObjectThatALoopReplaces(Module):
    def forward(self, x):
        held = Held(torch.zeros(4))
        for row in x:
            if row.sum() > 0:
                held = Held(row, held.count)
            held.count += 1
        return held.value, held.count


@OBJECTS.add()
class AnAttributeThatALoopReplaces(Module):
    def forward(self, x):
        self.held = Held(torch.zeros(4))
        for row in x:
            if row.sum() > 0:
                self.held = Held(row, self.held.count)
            self.held.count += 1
        return self.held.value, self.held.count


@pytest.mark.parametrize("cls", OBJECTS, ids=lambda cls: cls.__name__)
def test_an_object_that_is_replaced_is_the_new_one(cls: type[Module]) -> None:
    check(cls)


class AnObjectOfTwoNames(Module):
    def forward(self, x):
        held = Held(x.sum(0))
        other = held if x.sum() > 0 else Held(x[0])
        other.value = other.value + 1
        return held.value, other.value


class AnObjectOfAList(Module):
    def forward(self, x):
        several = [Held(x[0]), Held(x[0] * 2), Held(-x[0])]
        best = several[0]
        for held in several:
            if held.value.sum() > best.value.sum():
                best = held
        best.count = 5
        return several[0].count + several[1].count * 10


class AnObjectThatALoopMayLeave(Module):
    def forward(self, x):
        first = Held(x[0])
        held = first
        while held.value.sum() > 1:
            held = Held(held.value / 2)
        held.count = 10
        return first.count, held.count


class AListInATuple(Module):
    def forward(self, x):
        rows = [x[0]]
        pair = (rows, 1) if x.sum() > 0 else ([x[0] * 2], 1)
        pair[0].append(x[0])
        return len(rows), len(pair[0])


@pytest.mark.parametrize("cls", [AnObjectOfAList, AnObjectThatALoopMayLeave], ids=lambda cls: cls.__name__)
def test_an_object_that_has_another_name_is_not_changed(cls: type[Module]) -> None:
    with pytest.raises(RewriteError, match=r"line \d+: .*one of the two is changed later"):
        to_onnx(cls(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class IsTheTensor(Module):
    def forward(self, x):
        total, first = x.sum(0), x[0]
        chosen = total if x.sum() > 0 else first
        return chosen * 2 if chosen is total else chosen


class IsNotTheTensor(Module):
    def forward(self, x):
        total, first = x.sum(0), x[0]
        chosen = total if x.sum() > 0 else first
        if chosen is not first:
            chosen = chosen * 2
        return chosen


class IsTheObject(Module):
    def forward(self, x):
        one, other = Held(x.sum(0)), Held(x[0])
        chosen = one if x.sum() > 0 else other
        return chosen.value * 2 if chosen is one else chosen.value


class IsTheTensorBehindALoop(Module):
    def forward(self, x):
        first = x[0]
        chosen = first
        for row in x:
            if row.sum() > chosen.sum():
                chosen = row
        return chosen * 2 if chosen is first else chosen


def test_whether_two_names_are_one_object_is_refused_where_a_loop_decides() -> None:
    with pytest.raises(RewriteError, match=r"line \d+ of .*whether two names are one object"):
        to_onnx(IsTheTensorBehindALoop(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


@pytest.mark.parametrize(
    "cls",
    [AnObjectOfTwoNames, AListInATuple, IsTheTensor, IsNotTheTensor, IsTheObject],
    ids=lambda cls: cls.__name__,
)
def test_what_two_names_have_is_one_object_in_the_branch_that_goes_on_with_it(cls: type[Module]) -> None:
    model = cls()
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (up(3), -up(3), up(5), -up(1)):
        expected = model(x)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        for got, want in zip(onnx.run({"x": x}).values(), wanted, strict=True):
            torch.testing.assert_close(got, torch.as_tensor(want))


def test_names_of_which_no_path_makes_one_are_two() -> None:
    class OtherNames(Module):
        def forward(self, x):
            total, first = x.sum(0), x[0]
            if x.sum() > 0:
                total = total + 1
            return total if first is total or total is x else total * 2

    onnx = to_onnx(OtherNames(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (up(2, -1), up(4)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), OtherNames()(x))
