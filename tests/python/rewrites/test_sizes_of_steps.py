"""Loops whose tensors have another size behind each step: queues, filters, results that grow, halving."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from control_flow_program import Programs, check, up
from resizing_programs import outcome
from torch.nn import Module

from exportguard import AxisError, RewriteError, to_onnx

PROGRAMS = Programs()
ROWS = ((up(3),), (up(1),), (up(5, -1),), (torch.linspace(-1, 1, 28).reshape(7, 4),), (torch.empty(0, 4),))
BROKEN_DOWN = ((up(4),), (up(1),), (up(8, -1),), (up(2),), (up(3),))


def boxes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes that overlap here and there, with their scores."""
    generator = torch.Generator().manual_seed(count)
    corner = torch.rand(count, 2, generator=generator) * 4
    size = torch.rand(count, 2, generator=generator) * 3 + 0.5
    return torch.cat([corner, corner + size], 1), torch.rand(count, generator=generator)


def iou(box: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """What a box has in common with each other one, as a part of both together."""
    low, high = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    common = (high - low).clamp(min=0).prod(1)
    return common / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - common)


BOXES = (boxes(6), boxes(1), boxes(9), boxes(20), boxes(0))


@PROGRAMS.add(ROWS)
class Queue(Module):
    def forward(self, x):
        total = torch.zeros(4)
        rest = x
        while rest.shape[0] > 0:
            total = total * 0.5 + rest[0]
            rest = rest[1:]
        return total


@PROGRAMS.add(ROWS)
class WhatIsLeft(Module):
    def forward(self, x):
        rest = x
        steps = 0
        while len(rest) > 2 and steps < 3:
            rest = rest[:-1]
            steps += 1
        return rest * 2, steps


@PROGRAMS.add(ROWS)
class WhileThereAreElements(Module):
    def forward(self, x):
        rest, total = x, x.new_zeros(4)
        while rest.numel():
            total = total + rest[-1] * rest.shape[0]
            rest = rest[:-1]
        return total


@PROGRAMS.add(ROWS)
class ActiveRows(Module):
    def forward(self, x):
        bound = torch.zeros(())
        active = x
        while active.shape[0] > 2:
            active = active[active.sum(1) > bound]
            bound = bound + 0.5
        return active, bound


@PROGRAMS.add(ROWS)
class KeepsWhatIsPositive(Module):
    def forward(self, x):
        kept = x[:0]
        for row in x:
            if row.sum() > 0:
                kept = torch.cat([kept, row[None]], 0)
        return kept


@PROGRAMS.add(ROWS)
class GrowsByItsLastRow(Module):
    def forward(self, x):
        made = x[:1]
        for row in x:
            made = torch.cat([made, row[None] + made[-1:]], 0)
        return made


@PROGRAMS.add(ROWS[:-1])
class GrowsUntilDataSays(Module):
    def forward(self, x):
        y, made, steps = x, x, 0
        while y.abs().sum() < 50 and steps < 7:
            y = y * 2 + 1
            steps += 1
            made = torch.cat([made, y], 0)
        return made


TOKENS = tuple((torch.arange(length).reshape(-1, 1),) for length in (3, 5, 1))


@PROGRAMS.add(TOKENS)
class Generates(Module):
    def forward(self, ids):
        done = torch.zeros((), dtype=torch.bool)
        while not done:
            following = (ids.sum(0) * 3 + 1) % 11
            ids = torch.cat([ids, following[None]], 0)
            done = (following == 4).all() | (ids.shape[0] > 12)
        return ids


@PROGRAMS.add(BROKEN_DOWN)
class Halves(Module):
    def forward(self, x):
        while x.shape[0] > 1:
            x = x[0::2] + x[1::2]
        return x


@PROGRAMS.add((*BROKEN_DOWN, (up(7),), (up(6),)))
class HalvesAnyNumber(Module):
    def forward(self, x):
        while x.shape[0] > 1:
            if x.shape[0] % 2:
                x = torch.cat([x, torch.zeros(1, 4)])
            x = x[0::2] + x[1::2]
        return x


@PROGRAMS.add(BOXES[:-1])
class SuppressesByAMask(Module):
    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0]
            keep.append(i)
            rest = order[1:]
            order = rest[iou(boxes[i], boxes[rest]) <= 0.3]
        return torch.stack(keep)


@PROGRAMS.add(BOXES)
class SuppressesByNumbers(Module):
    def forward(self, boxes, scores):
        order = torch.argsort(scores, descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0].item()
            keep.append(i)
            if order.numel() == 1:
                break
            overlap = iou(boxes[i], boxes[order[1:]])
            order = order[(overlap <= 0.3).nonzero()[:, 0] + 1]
        return torch.tensor(keep, dtype=torch.long)


@PROGRAMS.add(BOXES)
class SuppressesIntoATensor(Module):
    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        keep = order[:0]
        while order.shape[0] > 0:
            keep = torch.cat([keep, order[:1]])
            order = order[iou(boxes[order[0]], boxes[order]) <= 0.3]
        return boxes[keep]


@PROGRAMS.add(ROWS)
class ListOfFilteredRows(Module):
    def forward(self, x):
        rest, sums, sizes = x, [], []
        while len(rest) > 0:
            sizes.append(rest.shape[0])
            if rest[0].sum() > 1:
                sums.append(rest.sum(0))
            rest = rest[1:]
        total = torch.zeros(4)
        for part in sums:
            total = total * 0.5 + part
        return total, len(sums), sum(sizes)


@PROGRAMS.add(ROWS)
class TwoTensorsOfOtherSizes(Module):
    def forward(self, x):
        waiting, taken, k = x, x[:0], 0
        while waiting.shape[0] > taken.shape[0]:
            k = waiting.shape[0]
            taken = torch.cat([taken, waiting[:1] * k])
            waiting = waiting[1:]
        return waiting, taken, k, taken.shape[0] * 2


@PROGRAMS.add(ROWS[:-1])
class QueueThatGrows(Module):
    def forward(self, x):
        queue, total, steps = x, torch.zeros(4), 0
        while len(queue) > 0:
            item, queue = queue[0], queue[1:]
            total = total * 0.5 + item
            steps += 1
            if item.sum() > 1 and steps < 9:
                queue = torch.cat([queue, (item * 0.5)[None]])
        return total, steps


@PROGRAMS.add(tuple((torch.tensor(values),) for values in ([1.0, 2, 3, 4, 5], [9.0, 8, 7], [0.0, 1])))
class AsksAMask(Module):
    def forward(self, x):
        bound = torch.zeros(())
        while x[x > bound].numel() > 2:
            bound = bound + 1
        return bound


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_loop_carries_a_tensor_of_another_size_in_each_step(cls: type[Module]) -> None:
    check(cls)


def test_such_a_loop_takes_nothing_for_granted_of_its_sizes() -> None:
    """What the trace asks at the sizes of the example is asked of no step: the report has no bound."""
    onnx = to_onnx(HalvesAnyNumber(), (up(6),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 3, 5, 9, 16):
        assert torch.allclose(onnx.run({"x": up(rows)})["output_0"], up(rows).sum(0, keepdim=True), atol=1e-5)


class QueueOfElements(Module):
    def forward(self, x):
        queue, total = deque([x[0]]), torch.zeros(4)
        while queue:
            item = queue.popleft()
            total = total + item
            if item.sum() > 1:
                queue.append(item * 0.5)
        return total


class AppendsOtherSizes(Module):
    def forward(self, x):
        rest, parts = x, []
        while rest.shape[0] > 1:
            parts.append(rest)
            rest = rest[1:]
        return torch.cat(parts)


class OfAnotherRank(Module):
    def forward(self, x):
        while x.sum() < 9:
            x = torch.stack([x, x])
        return x


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (QueueOfElements, r"makes a deque longer, .* have a tensor for the queue: queue = torch.cat\("),
        (OfAnotherRank, r"a loop over tensors carries `x`, which is a float32 tensor of shape .* behind a step"),
    ],
)
def test_what_has_no_rows_of_one_size_is_refused(cls: type[Module], text: str) -> None:
    with pytest.raises((RewriteError, AxisError), match=text):
        to_onnx(cls(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_a_list_holds_what_the_steps_leave() -> None:
    onnx = to_onnx(AppendsOtherSizes(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (2, 3, 6):
        (found,) = onnx.run({"x": up(rows)}).values()
        torch.testing.assert_close(torch.as_tensor(found), AppendsOtherSizes()(up(rows)))


@pytest.mark.parametrize("seed", [0, 2, 3, 5, 9, 12])
def test_random_programs_are_right(seed: int) -> None:
    assert outcome(seed) == "right"


class Scan(Module):
    """The sums of all rows up to each, by shifts of twice as many rows in each step."""

    def forward(self, x):
        d, n = 1, x.shape[0]
        while d < n:
            x = x + torch.cat([torch.zeros_like(x[:d]), x[:-d]])
            d *= 2
        return x


class ScanByRolling(Module):
    """The same in the words of the refusal."""

    def forward(self, x):
        d, places = 1, torch.arange(x.shape[0])
        while d < x.shape[0]:
            x = x + torch.where((places >= d)[:, None], x.roll(d, 0), 0)
            d *= 2
        return x


@pytest.mark.parametrize("cls", [Scan, ScanByRolling])
def test_a_size_is_used_in_steps_of_other_sizes(cls: type[Module]) -> None:
    onnx = to_onnx(cls().eval(), (up(6),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 3, 7, 16, 17):
        (found,) = onnx.run({"x": up(rows)}).values()
        torch.testing.assert_close(torch.as_tensor(found), Scan()(up(rows)))
