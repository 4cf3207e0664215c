"""The guard is a transaction: whatever happens, every touched object is the identical object afterwards."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from transformers import DynamicCache, EncoderDecoderCache, StaticCache, cache_utils
from transformers.models.xlstm.modeling_xlstm import xLSTMCache

from exportguard import GuardError, InvalidArgumentError, _core, torch_export_patches
from exportguard.declaration.targets import TargetMissingError, resolve
from exportguard.guard import (
    register_additional_serialization_functions,
    register_cache_serialization,
    unregister_cache_serialization,
)
from exportguard.patches import Patch, all_patches, does_not_fit, not_needed


class Plain:
    value = 1

    def method(self) -> str:
        return "method"

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @property
    def prop(self) -> str:
        return "prop"


class Child(Plain):
    """Inherits everything."""


class Branches(torch.nn.Module):
    """Its test depends on tensor data: it is rewritten."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


def function() -> str:
    return "original"


HERE = __name__
MODULE = sys.modules[__name__]


def patch(target: str, value: Any, **options: Any) -> Patch:
    return Patch(
        name=f"test {target}", kind="custom", target=target, reason="a test", replace=lambda _: value, **options
    )


def applying(name: str, apply: Any) -> Patch:
    return Patch(name=name, kind="custom", target=f"test.{name}", reason="a test", apply=apply)


def failing(error: BaseException) -> Patch:
    def apply(changes: Any) -> None:
        changes.set_attribute(MODULE, "function", lambda: "half")
        raise error

    return applying("failing", apply)


def custom_silu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return x * torch.sigmoid(x)


def complete(stop_if_static: int = 0) -> dict[str, Any]:
    """Arguments of a guard that installs every kind of patch: whoever wants to stop wants no complaint logged."""
    return {
        "stop_if_static": stop_if_static,
        "patch_diffusers": True,
        "custom_patches": [{"torch.nn.functional.silu": custom_silu}, PatchedPlain],
        "rewrite": [Branches.forward],
    }


def identities(owner: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(owner).items()}


def touched_owners() -> list[Any]:
    """The modules and classes that the known patches change, and the registries of pytree."""
    owners: list[Any] = [MODULE, Plain, Child, Branches, cache_utils, pytree, torch, torch.nn.functional, torch.export]
    for declared in all_patches():
        for target in declared.targets:
            with suppress(TargetMissingError):
                owner = resolve(target).owner
                module = sys.modules.get(getattr(owner, "__module__", None) or owner.__name__)
                owners += [owner] if module is None else [owner, module]  # an operator of torch.ops is in none
    return owners


def snapshot() -> Any:
    owners = [identities(owner) for owner in touched_owners()]  # first: this imports modules, which register classes
    registries = (pytree.SUPPORTED_NODES, pytree.SUPPORTED_SERIALIZED_TYPES, pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE)
    pending = [id(entry) for entry in pytree._cxx_pytree_pending_imports]
    items = [{key: id(value) for key, value in registry.items()} for registry in registries]
    finders = [id(finder) for finder in sys.meta_path]
    anchors = set(getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", ()))  # from torch 2.12 on
    return owners, items, pending, finders, anchors, set(torch.serialization.get_safe_globals())


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Fails if anything that the guard may touch is another object after the test."""
    for declared in all_patches():
        declared.load()
    with torch_export_patches(**complete()):
        pass  # what is created lazily, once, exists from here on
    before = snapshot()
    yield
    assert snapshot() == before
    assert _core.guard_depth() == 0


pytestmark = pytest.mark.usefixtures("unchanged")


@pytest.mark.parametrize(("stop", "kind"), [(0, "constraints"), (1, "static_check")])
def test_every_touched_object_is_the_identical_one_after_the_block(stop: int, kind: str) -> None:
    before = snapshot()
    with torch_export_patches(**complete(stop)) as guard:
        installed = {line.kind for line in guard.report if line.outcome == "installed"}
        assert installed >= {kind, "custom", "rewrite", "serializer", "torch", "transformers"}
        assert {DynamicCache, xLSTMCache} <= set(pytree.SUPPORTED_NODES)
        changed = [one for one, other in zip(snapshot()[0], before[0], strict=True) if one != other]
        assert len(changed) >= 5
    assert snapshot() == before


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_everything_is_restored_when_the_body_raises(error: type[BaseException]) -> None:
    before = snapshot()
    with pytest.raises(error), torch_export_patches(**complete()):
        raise error
    assert DynamicCache not in pytree.SUPPORTED_NODES
    assert snapshot() == before


def test_everything_is_restored_when_an_export_fails() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("in the model")

    before = snapshot()
    with pytest.raises(ValueError, match="in the model"), torch_export_patches(**complete()):
        torch.export.export(Fails(), (torch.zeros(2),))
    assert snapshot() == before


def test_a_function_is_replaced_and_comes_back() -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.function", lambda: "patched")]):
        assert function() == "patched"
    assert function() == "original"


@pytest.mark.parametrize("name", ["value", "method", "static", "of_class", "prop"])
def test_the_identical_object_comes_back_whatever_kind_of_attribute(name: str) -> None:
    before = vars(Plain)[name]
    with torch_export_patches(custom_patches=[applying("p", lambda c: c.set_attribute(Plain, name, 7))]):
        assert vars(Plain)[name] == 7
    assert vars(Plain)[name] is before


def test_a_static_method_stays_one_while_it_is_patched() -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.Plain.static", lambda: "patched")]):
        assert type(vars(Plain)["static"]) is staticmethod
        assert Plain().static() == "patched"


def test_a_class_method_stays_one_while_it_is_patched() -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.Plain.of_class", lambda cls: f"patched {cls.__name__}")]):
        assert Child.of_class() == "patched Child"


def test_an_inherited_attribute_is_not_copied_down() -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.Child.method", lambda self: "patched")]):
        assert (Child().method(), Plain().method()) == ("patched", "method")
    assert "method" not in vars(Child)


def test_a_parameter_of_a_module_comes_back() -> None:
    linear = torch.nn.Linear(2, 2)
    weight, other = linear.weight, torch.nn.Parameter(torch.zeros(2, 2))
    with torch_export_patches(custom_patches=[applying("p", lambda c: c.set_attribute(linear, "weight", other))]):
        assert linear.weight is other
    assert linear.weight is weight


def test_a_forward_set_on_an_instance_is_taken_away_again() -> None:
    linear = torch.nn.Linear(2, 2)
    with torch_export_patches(custom_patches=[applying("p", lambda c: c.set_attribute(linear, "forward", abs))]):
        assert linear.forward is abs
    assert "forward" not in vars(linear)


def test_items_of_a_mapping_come_back() -> None:
    old = object()
    mapping = {"a": old, "b": 2}

    def apply(changes: Any) -> None:
        changes.set_item(mapping, "a", 10)
        changes.set_item(mapping, "new", 30)
        changes.delete_item(mapping, "b")

    with torch_export_patches(custom_patches=[applying("p", apply)]):
        assert mapping == {"a": 10, "new": 30}
    assert mapping == {"a": old, "b": 2}
    assert mapping["a"] is old


def test_calls_are_undone_last_first() -> None:
    log: list[str] = []

    def apply(changes: Any) -> None:
        for name in "ab":
            changes.call(lambda name=name: log.append(f"+{name}"), lambda name=name: log.append(f"-{name}"), name)

    with torch_export_patches(custom_patches=[applying("p", apply)]):
        pass
    assert log == ["+a", "+b", "-b", "-a"]


def test_a_failing_install_leaves_nothing_behind_and_shows_the_error_as_it_was() -> None:
    before = snapshot()
    error = ValueError("no luck")
    with pytest.raises(ValueError, match="no luck") as raised, torch_export_patches(custom_patches=[failing(error)]):
        pytest.fail("the body must not run")
    assert raised.value is error
    assert snapshot() == before


class FailingAtStep:
    """Stands in for the changes of a patch; counts them, and fails before one of them."""

    def __init__(self, changes: Any, counter: list[int], fail_at: int) -> None:
        self._changes, self._counter, self._fail_at = changes, counter, fail_at

    def __getattr__(self, name: str) -> Any:
        def change(*arguments: Any) -> Any:
            if self._counter[0] == self._fail_at:
                raise RuntimeError(f"step {self._fail_at}")
            self._counter[0] += 1
            return getattr(self._changes, name)(*arguments)

        return change


def steps_of_install(monkeypatch: pytest.MonkeyPatch, fail_at: int) -> int:
    """Opens a guard whose `fail_at`-th change fails; returns how many changes were made before."""
    counter = [0]
    install = Patch.install
    monkeypatch.setattr(Patch, "install", lambda self, changes: install(self, FailingAtStep(changes, counter, fail_at)))
    with suppress(RuntimeError), torch_export_patches(**complete()):
        pass
    monkeypatch.undo()
    return counter[0]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("first", range(4))
def test_a_failure_at_any_step_of_the_install_is_undone(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    before = snapshot()
    total = steps_of_install(monkeypatch, fail_at=-1)
    assert total > 40
    for step in range(first, total, 4):
        assert steps_of_install(monkeypatch, fail_at=step) == step
        assert snapshot() == before, f"step {step}"


def test_a_failing_restore_is_told_and_the_rest_is_restored() -> None:
    def undo() -> None:
        raise OSError("it is gone")

    def apply(changes: Any) -> None:
        changes.set_attribute(MODULE, "function", lambda: "patched")
        changes.call(lambda: None, undo, "the thing")

    expected = r"1 of the guard's changes could not be restored: the thing: OSError: it is gone"
    before = snapshot()
    options = complete()
    options["custom_patches"] += [applying("p", apply)]
    with pytest.raises(GuardError, match=expected), torch_export_patches(**options):
        assert function() == "patched"
    assert snapshot() == before


def test_the_error_of_the_body_is_not_hidden_by_a_failing_restore() -> None:
    def undo() -> None:
        raise OSError("it is gone")

    custom = [applying("p", lambda c: c.call(lambda: None, undo, "the thing"))]
    with pytest.raises(KeyError) as raised, torch_export_patches(custom_patches=custom):
        raise KeyError("body")
    assert "could not be restored: the thing" in raised.value.__notes__[0]


def test_changes_kept_beyond_the_install_are_refused() -> None:
    kept: list[Any] = []
    with (
        torch_export_patches(custom_patches=[applying("p", kept.append)]),
        pytest.raises(GuardError, match="only be made while it is being installed"),
    ):
        kept[0].set_attribute(Plain, "value", 2)


def test_a_nested_guard_leaves_the_outer_one_in_force() -> None:
    with torch_export_patches(**complete()):
        inside = snapshot()
        with torch_export_patches(**complete()) as inner:
            assert _core.guard_depth() == 2
            assert {line.outcome for line in inner.report if line.kind != "rewrite"} <= {"already installed", "skipped"}
        assert snapshot() == inside
        with pytest.raises(KeyError), torch_export_patches(patch=False):
            raise KeyError
        assert snapshot() == inside


def test_a_nested_guard_adds_its_own_patches() -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.function", lambda: "outer")]):
        mine = Patch(
            name="inner", kind="custom", target=f"{HERE}.function", reason="-", replace=lambda _: lambda: "inner"
        )
        with torch_export_patches(custom_patches=[mine]):
            assert function() == "inner"
        assert function() == "outer"


def in_thread(code: Any) -> BaseException | None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            code()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    return caught[0] if caught else None


def open_and_close() -> None:
    with torch_export_patches(**complete()):
        pass


def test_another_thread_cannot_open_a_guard_meanwhile() -> None:
    with torch_export_patches():
        error = in_thread(open_and_close)
    assert isinstance(error, GuardError)
    assert "end that guard first, or export in one thread" in str(error)


def test_another_thread_can_open_a_guard_afterwards() -> None:
    open_and_close()
    assert in_thread(open_and_close) is None


def test_another_thread_cannot_close_the_guard() -> None:
    with torch_export_patches() as guard:
        error = in_thread(guard.close)
        assert guard.is_open
    assert isinstance(error, GuardError)
    assert "cannot close the guard from thread" in str(error)


def test_many_threads_that_race_for_the_guard_leave_everything_as_it_was() -> None:
    outcomes: list[str] = []

    def race() -> None:
        for _ in range(5):
            try:
                open_and_close()
                outcomes.append("opened")
            except GuardError:
                outcomes.append("refused")

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(outcomes) == 20
    assert "opened" in outcomes


def test_a_guard_that_is_forgotten_restores_when_it_is_collected() -> None:
    manager = torch_export_patches()
    manager.__enter__()
    del manager
    gc.collect()
    assert DynamicCache not in pytree.SUPPORTED_NODES


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "import atexit; atexit.register(guard.close)"])
@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "waiting"])
def test_a_guard_that_is_open_at_shutdown_does_no_harm(ending: str, loaded: bool) -> None:
    program = textwrap.dedent(
        f"""
        import sys
        from exportguard import torch_export_patches
        from exportguard.patches import all_patches
        for patch in all_patches() if {loaded} else ():
            patch.load()
        manager = torch_export_patches(stop_if_static=1, patch_diffusers=True)
        guard = manager.__enter__()
        print("open", flush=True)
        {ending}
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "open"), done.stderr
    assert "Error" not in done.stderr


def test_patch_false_installs_the_serializers_alone() -> None:
    with torch_export_patches(patch=False) as guard:
        assert {line.kind for line in guard.report if line.outcome == "installed"} == {"serializer"}


def test_the_serializers_can_be_installed_alone_by_their_own_function() -> None:
    with register_additional_serialization_functions(patch_transformers=True):
        assert {DynamicCache, StaticCache, EncoderDecoderCache} <= set(pytree.SUPPORTED_NODES)
    assert DynamicCache not in pytree.SUPPORTED_NODES


def test_the_serializers_can_stay_without_a_guard() -> None:
    names = register_cache_serialization()
    assert "serializer of DynamicCache" in names
    with pytest.raises(GuardError, match="call unregister_cache_serialization first"):
        register_cache_serialization()
    unregister_cache_serialization()
    assert DynamicCache not in pytree.SUPPORTED_NODES
    with pytest.raises(GuardError, match="register_cache_serialization was not called"):
        unregister_cache_serialization()


def test_an_earlier_registration_comes_back_identically() -> None:
    def flatten(cache: Any) -> Any:
        return [], None

    pytree.register_pytree_node(
        DynamicCache, flatten, lambda leaves, context: DynamicCache(), serialized_type_name="mine.DynamicCache"
    )
    node = pytree.SUPPORTED_NODES[DynamicCache]
    pending = list(pytree._cxx_pytree_pending_imports)
    try:
        with torch_export_patches():
            assert pytree.SUPPORTED_NODES[DynamicCache] is not node
        assert pytree.SUPPORTED_NODES[DynamicCache] is node
        assert pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE["mine.DynamicCache"] is DynamicCache
        assert pytree._cxx_pytree_pending_imports == pending
    finally:
        pytree._deregister_pytree_node(DynamicCache)
        pytree._cxx_pytree_pending_imports[:] = [e for e in pending if e[0][0] is not DynamicCache]


def test_a_patch_whose_target_is_missing_is_skipped_with_the_reason() -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.Plain.nothing", 1)]) as guard:
        line = next(line for line in guard.report if line.name.endswith("Plain.nothing"))
    assert line.outcome == "skipped"
    assert line.reason == "target missing: Plain has no attribute nothing"


@pytest.mark.parametrize("verdict", [not_needed("fixed in 2.0"), does_not_fit("another signature")])
def test_a_patch_that_a_probe_declines_is_skipped_with_the_reason(verdict: Any) -> None:
    with torch_export_patches(custom_patches=[patch(f"{HERE}.function", 1, probe=lambda: verdict)]) as guard:
        assert function() == "original"
        assert guard.report[-1].reason == f"{verdict.fit}: {verdict.reason}"


def test_a_custom_patch_takes_the_place_of_a_known_one() -> None:
    target = "transformers.cache_utils.DynamicSlidingWindowLayer.get_mask_sizes"
    original = cache_utils.DynamicSlidingWindowLayer.get_mask_sizes
    with torch_export_patches(custom_patches=[patch(target, original)]) as guard:
        line = next(line for line in guard.report if line.name == "sliding window mask sizes")
    assert line.reason.startswith("replaced by the custom patch")


def test_two_custom_patches_of_one_target_are_refused() -> None:
    first, second = patch(f"{HERE}.function", 1), applying("other", lambda changes: None)
    same = Patch(name="same", kind="custom", target=f"{HERE}.function", reason="-", replace=lambda _: 2)
    with pytest.raises(GuardError, match="both claim"), torch_export_patches(custom_patches=[first, second, same]):
        pass


class PatchedPlain:
    """Patches Plain."""

    _PATCHES_ = ("method", "static")
    _PATCHED_CLASS_ = Plain

    def method(self) -> str:
        return "patched method"

    @staticmethod
    def static() -> str:
        return "patched static"


def test_a_class_with_patches_and_patched_class_is_a_custom_patch() -> None:
    with torch_export_patches(custom_patches=[PatchedPlain]):
        assert (Plain().method(), Plain.static()) == ("patched method", "patched static")
    assert (Plain().method(), Plain.static()) == ("method", "static")


def test_a_function_that_names_its_target_is_a_custom_patch() -> None:
    def replacement() -> str:
        return "patched"

    replacement._PATCHED_FUNCTION_ = function  # type: ignore[attr-defined]
    with torch_export_patches(custom_patches=[replacement]):
        assert function() == "patched"


def test_a_mapping_of_paths_is_a_custom_patch() -> None:
    with torch_export_patches(custom_patches=[{f"{HERE}.function": PatchedPlain.static}]):
        assert function() == "patched static"


def test_a_class_of_a_version_without_the_target_is_no_patch() -> None:
    gone = types.new_class("Gone", exec_body=lambda ns: ns.update(_PATCHES_=["x"], _PATCHED_CLASS_=None))
    with torch_export_patches(custom_patches=[gone]) as guard:
        assert all(line.kind != "custom" for line in guard.report)


def test_what_is_no_patch_is_refused_with_the_remedy() -> None:
    expected = "custom_patches may hold patches, classes"
    with pytest.raises(InvalidArgumentError, match=expected), torch_export_patches(custom_patches=[3]):
        pass


def test_the_prepared_inputs_are_new_containers_of_the_same_tensors() -> None:
    cache = DynamicCache()
    cache.update(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    with torch_export_patches() as prepare:
        prepared = prepare({"past_key_values": cache})["past_key_values"]
        prepared.update(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 0)
    assert (cache.get_seq_length(), prepared.get_seq_length()) == (3, 4)


def test_verbose_logs_the_report(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="exportguard"), torch_export_patches(verbose=1):
        pass
    assert "serializer of DynamicCache" in caplog.text


def test_a_patch_needs_a_replacement() -> None:
    with pytest.raises(GuardError, match="needs either replace or apply"):
        Patch(name="p", kind="custom", target="a.b", reason="-")


def test_every_known_patch_says_why_and_of_what_kind() -> None:
    assert all(
        declared.reason and declared.kind and (declared.targets or declared.searches) for declared in all_patches()
    )
    assert [declared.name for declared in all_patches()] == _core.patch_names()
