"""Interrupts, forks, the limit of the recursion and registrations that overlap with a guard."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import exportguard
from exportguard import GuardError, _core, torch_export_patches
from exportguard.declaration import Patch
from interrupt_rounds import Target, run


def test_an_interrupt_at_any_moment_restores_everything_and_comes_out() -> None:
    rounds = run(40)
    assert rounds.interrupted > 10
    assert (rounds.lost, rounds.residues) == (0, 0)


def patch_by(apply: Callable[[], None], undo: Callable[[], None]) -> Patch:
    return Patch(
        name="by calls",
        kind="custom",
        target="interrupt_rounds.Target.value",
        reason="a test",
        apply=lambda changes: changes.call(apply, undo, "a call"),
    )


def test_an_undo_that_opens_a_guard_is_told_and_the_rest_is_restored() -> None:
    def opens_a_guard() -> None:
        with torch_export_patches():
            pass

    before = dict(pytree.SUPPORTED_NODES)
    guard = torch_export_patches(custom_patches=[patch_by(lambda: None, opens_a_guard)])
    with pytest.raises(GuardError, match="cannot be opened while another one restores"), guard:
        pass
    assert before == pytree.SUPPORTED_NODES
    assert _core.guard_depth() == 0
    with torch_export_patches():
        pass


def at_the_limit(function: Callable[[], Any]) -> Any:
    """Calls the function with ever less room on the stack, until there is enough."""

    def deeper(depth: int) -> Any:
        try:
            return deeper(depth + 1)
        except RecursionError:
            return function()

    return deeper(0)


@pytest.mark.parametrize("room", [40, 60, 90, 130, 200])
def test_a_recursion_error_while_a_guard_is_installed_is_an_error_as_others(room: int) -> None:
    before = dict(pytree.SUPPORTED_NODES)

    def down(left: int) -> None:
        if left > 0:
            down(left - 1)
            return
        with torch_export_patches(custom_patches=[patch_by(lambda: None, lambda: None)]):
            pass

    frames = 0
    frame = sys._getframe()
    while frame is not None:
        frames, frame = frames + 1, frame.f_back  # type: ignore[assignment]
    with contextlib.suppress(RecursionError, GuardError):
        down(sys.getrecursionlimit() - frames - room)
    assert before == pytree.SUPPORTED_NODES
    assert _core.guard_depth() == 0


class Kept:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def register() -> None:
    exportguard.register_class_serialization(Kept, lambda one: ([one.tensor], None), lambda leaves, _: Kept(*leaves))


def test_a_registration_within_a_guard_stays_behind_it_until_it_is_undone() -> None:
    before = dict(pytree.SUPPORTED_NODES)
    with torch_export_patches():
        register()
    assert Kept in pytree.SUPPORTED_NODES
    exportguard.unregister_class_serialization(Kept)
    assert before == pytree.SUPPORTED_NODES


def test_registrations_and_guards_that_overlap_end_where_they_began() -> None:
    before = dict(pytree.SUPPORTED_NODES)
    with torch_export_patches():
        exportguard.register_cache_serialization()
    exportguard.unregister_cache_serialization()
    assert before == pytree.SUPPORTED_NODES
    exportguard.register_cache_serialization()
    with torch_export_patches():
        exportguard.unregister_cache_serialization()
    assert before == pytree.SUPPORTED_NODES


def in_a_child(function: Callable[[], bool]) -> bool:
    """What the function says in a forked process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if function() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def opens_another() -> bool:
    with torch_export_patches():
        return _core.guard_depth() >= 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_is_forked_under_an_open_guard_can_open_others() -> None:
    with torch_export_patches():
        assert in_a_child(opens_another)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_another_thread_forks_takes_the_guards_over() -> None:
    answers: list[bool] = []
    with torch_export_patches():
        thread = threading.Thread(target=lambda: answers.append(in_a_child(opens_another)))
        thread.start()
        thread.join()
    assert answers == [True]


def test_a_weight_whose_storage_was_freed_is_named() -> None:
    model = torch.nn.Linear(4, 2)
    onnx = exportguard.to_onnx(model.eval(), (torch.zeros(1, 4),))
    model.weight.untyped_storage().resize_(0)
    with pytest.raises(exportguard.ExportGuardError, match="its storage was freed and has 0 bytes"):
        onnx.to_bytes()


@pytest.mark.parametrize(
    "text",
    ["-" * 50_000 + "a", "**".join("a" * 50_000), "(" * 50_000 + ")" * 50_000, "Max(" * 50_000 + ")" * 50_000],
    ids=["signs", "powers", "parentheses", "calls"],
)
def test_an_expression_without_end_is_refused(text: str) -> None:
    with pytest.raises(exportguard.ParseError, match="more than 200"):
        _core.Model.parse(f"graph(%x: f32[{text}]):\n  return (%x)")


@pytest.mark.parametrize("word", ["seq", "optional"])
def test_a_type_without_end_is_refused(word: str) -> None:
    with pytest.raises(exportguard.ParseError, match="more than 200"):
        _core.Model.parse(f"graph(%x: {(word + '(') * 100_000}")


def test_a_model_without_outputs_is_refused() -> None:
    class Nothing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> None:
            return None

    with pytest.raises(exportguard.ExportGuardError, match="no outputs"):
        exportguard.to_onnx(Nothing(), (torch.zeros(2),)).to_bytes()


@contextlib.contextmanager
def popping() -> Iterator[None]:
    """Its end raises, as torch's own blocks do where an interrupt came between two of their steps."""
    try:
        yield
    finally:
        [].pop()


class Interrupted(torch.nn.Module):
    """It is interrupted while torch traces it, or else only in eager mode."""

    def __init__(self, interrupt: BaseException, *, is_traced: bool) -> None:
        super().__init__()
        self.interrupt, self.is_traced = interrupt, is_traced

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with popping() if torch.compiler.is_exporting() == self.is_traced else contextlib.nullcontext():
            if torch.compiler.is_exporting() == self.is_traced:
                raise self.interrupt
        return x * 2


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "auto"])
@pytest.mark.parametrize("is_traced", [True, False], ids=["traced", "in eager mode"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt("now"), SystemExit(3)], ids=["interrupt", "exit"])
def test_an_interrupt_that_another_exception_hides_comes_out(
    interrupt: BaseException, is_traced: bool, rewrite: Any
) -> None:
    before = dict(pytree.SUPPORTED_NODES)
    model = Interrupted(interrupt, is_traced=is_traced).eval()
    with pytest.raises(type(interrupt)) as raised:
        exportguard.to_onnx(model, (torch.zeros(2, 3),), dynamic_shapes=({0: "rows"},), rewrite=rewrite)
    assert raised.value is interrupt
    assert before == pytree.SUPPORTED_NODES
    assert _core.guard_depth() == 0


def test_an_interrupt_that_was_handled_before_is_none_of_the_export() -> None:
    class Refusing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("not these")

    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(exportguard.ExportError, match="not these"):
            exportguard.to_onnx(Refusing().eval(), (torch.zeros(2),))


def test_an_error_that_is_raised_from_an_exit_has_dealt_with_it() -> None:
    class Translating(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                raise SystemExit(2)
            except SystemExit as error:
                raise ValueError("not these options") from error

    with pytest.raises(exportguard.ExportError, match="not these options"):
        exportguard.to_onnx(Translating().eval(), (torch.zeros(2),))


def test_the_target_of_the_tests_is_as_before() -> None:
    assert Target.value == "original"
