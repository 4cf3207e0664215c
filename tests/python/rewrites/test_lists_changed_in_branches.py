"""Lists that branches make longer and shorter: append, pop, del, clear, insert, slices, one after another.

`python test_lists_changed_in_branches.py --count 1000` checks others than a test run does.
"""

from __future__ import annotations

import random
import textwrap

import pytest
import torch
from drawn_programs import HEAD, Share, check_by_hand, model_with, outcome_at_rows, require_right

from exportguard import RewriteError, to_onnx

#: Elements of one size, and of several.
ELEMENTS = (("x", "x + 1", "x * 2", "x.flip(0)"), ("x", "x[:2]", "x[2:]", "x * 2"))
CONDITIONS = ("x.sum() > 0", "x[0, 0] > x[-1, 1]", "(x > 0).all()", "x.max() > 1", "x.shape[0] > 3", "len(rows) > 1")
CHANGES = (
    "rows.append({value})",
    "rows.append({value})",
    "rows.insert(0, {value})",
    "rows.extend([{value}, {value}])",
    "rows += [{value}]",
    "rows = rows + [{value}]",
    "rows = rows[1:]",
    "rows.pop()",
    "rows.pop(0)",
    "rows.pop(1)",
    "del rows[-1]",
    "del rows[1]",
    "del rows[-2]",
    "rows.clear()",
    "rows.reverse()",
    "rows[-1] = {value}",
    "last = rows.pop()\nrows.append(last * 2)",
)
READS = (
    "return torch.cat(rows)",
    "return torch.cat([*rows, x[:1]])",
    "return x[0] * len(rows)",
    "return rows[-1] * 1",
    "return rows[0] + 0",
    "y = x[0]\nfor one in rows:\n    y = y * 0.5 + one.sum(0)\nreturn y",
    "return torch.cat(rows).sum(0) * len(rows)",
)


def source_of(seed: int) -> str:
    """The program of a number."""
    draw = random.Random(seed)
    elements = ELEMENTS[draw.random() < 0.3]

    def change() -> str:
        return draw.choice(CHANGES).replace("{value}", draw.choice(elements))

    def within(head: str) -> str:
        return f"{head}\n{textwrap.indent(change(), '    ')}"

    lines = [f"rows = [{', '.join(draw.choice(elements) for _ in range(draw.choice((0, 1, 2, 3, 3))))}]"]
    for _ in range(draw.randint(2, 4)):
        kind = draw.random()
        condition = f"if {draw.choice(CONDITIONS)}:"
        lines.append(change() if kind < 0.25 else within(condition))
        lines += [within("else:")] if kind > 0.65 else []
    lines.append(draw.choice(READS))
    return HEAD + textwrap.indent("\n".join(lines), " " * 8) + "\n"


def outcome(seed: int) -> str:
    """What became of the program of a number."""
    return outcome_at_rows(f"/changed/{seed}.py", source_of(seed), seed)


_SHARE = Share(count=300, every=6, at_once=10, right=2)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_lists_that_branches_change_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            parts = [x[:2]]
            if x.sum() > 0:
                parts.append(x[2:])
            return torch.cat(parts)
            """,
            id="elements of two sizes",
        ),
        pytest.param(
            """
            parts = []
            if x.sum() > 0:
                parts.append(x[:, :1])
            if x[0, 0] > -1:
                parts.append(x)
            parts.append(x * 2)
            return torch.cat(parts, 1) * len(parts)
            """,
            id="a length asked behind two branches",
        ),
        pytest.param(
            """
            rows = [x, x + 1, x * 2]
            if x.sum() > 0:
                del rows[-1]
            if x[0, 0] > 0:
                del rows[0]
            else:
                rows.pop(1)
            return torch.cat(rows)
            """,
            id="del and pop",
        ),
        pytest.param(
            """
            rows = [x[:2]]
            if x.max() > 1:
                rows.append(x)
            else:
                rows += [x]
            del rows[-1]
            if x.sum() > 0:
                del rows[-1]
            return x[0] * sum(one.sum() for one in rows) + len(rows)
            """,
            id="a branch that gives fewer rows than the example has",
        ),
    ],
)
def test_what_people_write_is_right(body: str) -> None:
    require_right(model_with("/changed/written.py", body))


def test_a_run_ends_where_a_list_has_no_element_to_take() -> None:
    body = """
    rows = [x, x + 1]
    if x.sum() > 0:
        rows.clear()
    if x[0, 0] > 0:
        rows.append(x * 2)
    rows.pop()
    return x[0] * len(rows)
    """
    onnx = to_onnx(
        model_with("/changed/none.py", body), (-torch.ones(5, 2),), dynamic_shapes=({0: "n"},), rewrite="auto"
    )
    (found,) = onnx.run({"x": -torch.ones(3, 2)}).values()
    assert torch.equal(found, -torch.ones(2))
    with pytest.raises(RuntimeError, match="Gather"):
        onnx.run({"x": torch.tensor([[-1.0, 5.0]])})


def test_the_reason_is_what_stops_the_trace_that_tells_the_length() -> None:
    body = """
    rows = []
    if x.sum() > 0:
        rows.append(x * 2)
    rows.append(x)
    if len(rows) > 1:
        rows = rows + [x]
    if (x > 0).all():
        rows = rows[1:]
    rows.pop()
    return x[0] * len(rows)
    """
    model = model_with("/changed/reason.py", body)
    with pytest.raises(RewriteError, match="`rows` a list or dict from before it, or another one"):
        to_onnx(model, (torch.randn(5, 2),), dynamic_shapes=({0: "n"},), rewrite="auto")


def test_a_stack_of_tensors_of_any_size_is_refused_with_its_line() -> None:
    body = """
    stack, out = [x], []
    while stack:
        part = stack.pop()
        if part.shape[0] > 2 and part.sum() > 0:
            half = part.shape[0] // 2
            stack.append(part[:half])
            stack.append(part[half:])
        else:
            out.append(part * 2)
    return torch.cat(out)
    """
    with pytest.raises(RewriteError, match=r"(?s)stack\.py:\d+.*several sizes") as error:
        to_onnx(model_with("/changed/stack.py", body), (torch.randn(5, 2),), dynamic_shapes=({0: "n"},), rewrite="auto")
    assert "dict[" not in str(error.value)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
