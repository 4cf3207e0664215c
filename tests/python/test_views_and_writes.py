"""Random programs of views and writes into them: what comes out is what eager has, or the program is refused.

EXPORTGUARD_VIEW_PROGRAMS sets how many programs each test tries.
"""

from __future__ import annotations

import io
import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch.export import Dim, ExportedProgram

from exportguard import to_onnx
from exportguard.errors import ProgramError
from unchecked import WITHOUT_CHECKS

PROGRAMS = int(os.environ.get("EXPORTGUARD_VIEW_PROGRAMS", "60"))
TRACED = (4, 6)
OTHERS = [(5, 7), (3, 3), (2, 5), (1, 4), (4, 1), (6, 4)]

SOURCES = ["x.clone()", "x * 1", "x.t() + 0", "x.clone().t()", "torch.cat([x, x])", "x"]
WRITES = [
    "{v}.zero_()",
    "{v}.add_(1)",
    "{v}.copy_({v} * 3)",
    "{v}.fill_(7)",
    "{v}[...] = 5",
    "{v}.clamp_(min=0.3)",
    "{v}.sub_({v}.mean())",
    "{v}.masked_fill_({v} > 0.5, 0.25)",
    "{v} += 2",
    "torch.exp({v}, out={v})",
    "{v}.index_fill_(0, torch.tensor([0]), 3.0)",
    "{v}[{v} > 0.6] = 0.1",
]


def some_view(choose: random.Random, v: str, of: torch.Tensor) -> str:
    rank = of.dim()
    views = [".detach()", ".to(torch.float32)", f".expand_as({v})", f".reshape({v}.shape)"]
    if rank >= 1:
        a = choose.randrange(rank)
        part = ", ".join([":"] * a + [choose.choice(["1:", "::2", ":-1", ":1", "-1:"])])
        views += [f".select({a}, 0)", f".select({a}, -1)", f".narrow({a}, 0, 1)", f".unbind({a})[0]", f"[{part}]"]
        views += [f".unsqueeze({choose.randrange(rank + 1)})", ".flatten()", ".reshape(-1)", ".ravel()"]
        views += [".contiguous()", f".unfold({a}, 2, {choose.choice([2, 3])})", f".chunk(2, {a})[0]"]
    if rank >= 2:
        a, b = choose.sample(range(rank), 2)
        order = tuple(choose.sample(range(rank), rank))
        views += [f".transpose({a}, {b})", f".permute({order})", f".diagonal(0, {a}, {b})", ".flatten(0, 1)", ".mT"] * 2
        views += [f".reshape({v}.shape[0], -1)", f".reshape(-1, {v}.shape[-1])", ".flatten(-2)", f".movedim({a}, {b})"]
    return choose.choice(views)


@dataclass(frozen=True)
class Program:
    """The source of `run(x)` and the function itself."""

    source: str
    run: Callable[[torch.Tensor], Any]


def compiled(lines: Sequence[str]) -> Program:
    source = "\n    ".join(["def run(x):", *lines])
    names: dict[str, Any] = {"torch": torch}
    exec(source, names)
    return Program(source, names["run"])


def random_program(seed: int) -> Program:
    """Views of views of one tensor with writes between them; every line runs in eager."""
    choose = random.Random(seed)
    lines = [f"b = {choose.choice(SOURCES)}"]
    names: dict[str, Any] = {"torch": torch, "x": torch.rand(TRACED)}
    exec(lines[0], names)
    tensors = ["b"]
    for step in range(choose.randrange(3, 9)):
        v = choose.choice(tensors[-3:])
        line = f"v{step} = {v}{some_view(choose, v, names[v])}" if step % 3 else choose.choice(WRITES).format(v=v)
        try:
            exec(line, names)
        except (RuntimeError, IndexError):  # eager does not take it: the program goes without
            continue
        lines.append(line)
        tensors += [f"v{step}"] if step % 3 and names[f"v{step}"].numel() > 0 else []
    given = choose.sample(tensors, min(len(tensors), 3))
    return compiled([*lines, f"return [one * 1 for one in ({', '.join(given)},)]"])


class Runs(torch.nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.run = program.run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(x)


def exported(program: Program, *, is_dynamic: bool) -> ExportedProgram | None:
    """None if torch.export bounds an axis that should stay free."""
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} if is_dynamic else None
    try:
        return torch.export.export(Runs(program), (torch.rand(TRACED),), dynamic_shapes={"x": axes}, strict=False)
    except (ValueError, RuntimeError, torch._dynamo.exc.UserError):
        return None


def reloaded(program: ExportedProgram) -> ExportedProgram:
    """The program as a file gives it back: example values share no storage any more."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def assert_same(program: Program, session: ort.InferenceSession, size: tuple[int, int]) -> None:
    x = torch.rand(size, generator=torch.Generator().manual_seed(3))
    before = x.numpy().copy()
    try:
        expected = program.run(x)
    except (RuntimeError, IndexError):
        return  # eager does not take this size
    found = session.run(None, {value.name: before for value in session.get_inputs()})
    names = [value.name for value in session.get_outputs()]
    wanted = [*expected, *([x] if "x_mutated" in names else [])]
    assert len(found) == len(wanted), program.source
    for name, tensor, array in zip(names, wanted, found, strict=True):
        where = f"{name} at {size} of\n{program.source}"
        assert array.shape == tuple(tensor.shape), where
        assert np.allclose(array, tensor.numpy(), rtol=1e-5, atol=1e-6), where


def try_program(seed: int, *, is_dynamic: bool, is_reloaded: bool = False) -> bool:
    """Whether the program was converted, and compared with eager; False: torch or the importer refuses it."""
    program = random_program(seed)
    traced = exported(program, is_dynamic=is_dynamic)
    if traced is None:
        return False
    try:
        model = to_onnx(reloaded(traced) if is_reloaded else traced, options=WITHOUT_CHECKS)
    except ProgramError as error:
        if "clone" not in str(error):
            raise
        return False
    session = ort.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    for size in [TRACED, *(OTHERS if is_dynamic else [])]:
        assert_same(program, session, size)
    return True


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_programs_of_fixed_sizes_do_what_eager_does() -> None:
    assert sum(try_program(seed, is_dynamic=False) for seed in range(PROGRAMS)) > 0.9 * PROGRAMS


def test_programs_of_open_sizes_do_what_eager_does_or_are_refused() -> None:
    assert sum(try_program(seed, is_dynamic=True) for seed in range(PROGRAMS)) > 0.6 * PROGRAMS


def test_programs_that_were_read_from_a_file_do_what_eager_does() -> None:
    seeds = range(PROGRAMS // 3)
    assert sum(try_program(seed, is_dynamic=False, is_reloaded=True) for seed in seeds) > 0.9 * len(seeds)


def check(run: Callable[[torch.Tensor], Any], *, is_dynamic: bool = False) -> None:
    program = Program(run.__name__, run)
    traced = exported(program, is_dynamic=is_dynamic)
    assert traced is not None
    session = ort.InferenceSession(
        to_onnx(traced, options=WITHOUT_CHECKS).to_bytes(), providers=["CPUExecutionProvider"]
    )
    for size in [TRACED, *(OTHERS if is_dynamic else [])]:
        assert_same(program, session, size)


def test_a_reshape_of_one_column_is_a_view() -> None:
    def column(x: torch.Tensor) -> Any:
        y = x.clone()
        y[:, 0].reshape(-1).zero_()
        return [y]

    check(column, is_dynamic=True)


def test_windows_side_by_side_are_written_through() -> None:
    def windows(x: torch.Tensor) -> Any:
        y = x.clone()
        y.unfold(1, 2, 2).mul_(3)
        return [y]

    check(windows, is_dynamic=True)


def test_strides_are_written_through() -> None:
    def strided(x: torch.Tensor) -> Any:
        y = x.clone()
        y.as_strided((2, 3), (12, 2), 1).zero_()
        return [y]

    check(strided)


def test_the_real_part_is_written_through() -> None:
    def parts(x: torch.Tensor) -> Any:
        z = torch.complex(x, x * 2)
        z.real.zero_()
        z.imag.add_(1)
        return [torch.view_as_real(z)]

    check(parts)


def test_grids_of_a_vector_that_is_written_are_refused() -> None:
    def grids(x: torch.Tensor) -> Any:
        a = x[0].clone()
        rows, columns = torch.meshgrid(a, a, indexing="ij")
        a.zero_()
        return [rows, columns]

    with pytest.raises(ProgramError, match=r"meshgrid.*clone the result"):
        check(grids)


def test_a_copy_of_one_part_leaves_the_other_part_as_it_is() -> None:
    def parts(x: torch.Tensor) -> Any:
        both = torch.stack([x, x + 1])
        first = both[0].t().contiguous()
        first *= 2  # at one row this writes into both[0] too
        return [first, both[1]]

    check(parts, is_dynamic=True)


def test_a_copy_that_is_a_view_at_size_one_is_refused() -> None:
    def one_row(x: torch.Tensor) -> Any:
        y = x.clone()
        y.t().reshape(-1).zero_()
        return [y]

    check(one_row)
    with pytest.raises(ProgramError, match=r"sizes decide whether aten.zero_.*clone the tensor"):
        check(one_row, is_dynamic=True)
