"""A model as it is, without patches, called at one size after the other."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

from exportguard.containers import file_of_module
from exportguard.declaration.interrupts import DeferredInterrupts
from exportguard.devices import QUICK_PRODUCTS, threads_for
from exportguard.errors import ExportGuardError
from exportguard.inputs import CallInputs
from exportguard.interrupted import interrupts_come_out
from exportguard.model_code import is_installed, is_users
from exportguard.module_tree import named_buffers, named_parameters
from exportguard.rewrites.calls import Called
from exportguard.rewrites.kept_tables import KeptTables
from exportguard.rewrites.state import KeptModule, is_fake
from exportguard.rewrites.written import Before

from .called_again import require_same_when_called_again
from .data_tests import data_tests
from .ending import Ending, EndlessError, Watched
from .known_ways import ways_of
from .left_behind import Key, Places, Written
from .low_rank import LowRankWeights
from .numbers_at_hand import numbers_at_hand
from .resizing import is_of_reals, with_other_data
from .rounding import agree
from .silence import torch_silent
from .symbolic_sizes import Asked, SymbolicSizes, asks_for_data
from .whole_numbers import with_numbers_within

logger = logging.getLogger(__name__)

_FEW_WEIGHTS = 2**22  # which are copied in a few milliseconds
_IN_A_ROW = 3  # calls of other sizes

# A model is run in full for no more than this many rows of inputs (attention compares each with each) and products with
# weights, which take some 0.1 s; and for no more than these products, which take a second, if it has to be.
_QUICK_ROWS = 1100
_MANY_PRODUCTS = 2**27  # with weights, which take longer than to ask of every operator whether it is a product
AFFORDABLE_PRODUCTS = 2**34


_IN_VAIN = 4  # times that the kernels of a trace may tell no more than others


class ModelRun:
    """A module, called at one size after the other."""

    def __init__(self, model: torch.nn.Module, known: CallInputs) -> None:
        """`known` is a call that the module takes."""
        self._model, self.known = model, known
        self.structure: object = None  # of what the last call returned
        self.written: Written = {}  # what it left behind
        self._works_without_data: bool | None = None

    @functools.cached_property
    def _kept(self) -> KeptModule:
        return KeptModule(self._model)

    @functools.cached_property
    def _tables(self) -> KeptTables:
        """What modules hold outside of the model, where no fake tensor is to stay."""
        return KeptTables(Called.by(self._model).modules)

    def is_possible(self) -> bool:
        """Whether the module has data to run with."""
        return not self.without_data()

    def without_data(self) -> str:
        """The first weight or buffer that has no data, as on the meta device; nothing if all have."""
        named = itertools.chain(named_parameters(self._model), named_buffers(self._model))
        return next((name for name, tensor in named if tensor.is_meta or is_fake(tensor)), "")

    def of(self, call: CallInputs, *, is_brief: bool = False) -> TriedCall:
        """Another call of the module; a brief one is refused where it goes through many lines."""
        return TriedCall(self, call, is_brief=is_brief)

    @functools.cached_property
    def is_own(self) -> bool:
        """Whether the class of the module is the user's, and not of an installed package."""
        return _is_own(type(self._model))

    def is_buffer_of_own(self, name: str) -> bool:
        """Whether a buffer is that of a module whose class is the user's."""
        return _is_own(type(self._model.get_submodule(name.rpartition(".")[0])))

    @functools.cached_property
    def known_structure(self) -> object:
        """That of what the module returns for the call that it takes: its keys, and the lengths of its lists."""
        return self._known_call.structure if self._known_call.outputs() is not None else None

    @functools.cached_property
    def _known_call(self) -> TriedCall:
        return self.of(self.known)

    def takes(self, call: CallInputs) -> bool:
        """Whether the module runs with another call."""
        return not self.of(call).refused()

    def buffer(self, name: str) -> torch.Tensor | None:
        """What a buffer holds before any call; None if the module has none of this name."""
        return dict(named_buffers(self._model)).get(name)

    @functools.cached_property
    def weights(self) -> int:
        """How many numbers the module multiplies with."""
        return sum(weight.numel() for weight in self._model.parameters())

    @functools.cached_property
    def known_outputs(self) -> list[Any]:
        """What the module returns for the call that it takes; nothing if it does not take it after all."""
        return self._known_call.outputs() or []

    def result(self, call: CallInputs, *, is_brief: bool = False) -> tuple[list[Any] | None, bool]:
        """The leaves of what the module returns, None if it refuses the call, and whether it tests data on the way."""
        times = 0 if is_brief else self._times(call)
        with data_tests() as tests:
            try:
                with interrupts_come_out():
                    return self._ending.ended(lambda watched: self._leaves(call, watched), times=times), bool(tests)
            except ExportGuardError:
                raise
            except (Exception, EndlessError) as error:  # of any class: models have refusals of their own
                logger.debug("the model raises %s: %s", type(error).__name__, error)
                return None, bool(tests)

    @functools.cached_property
    def low_rank_weights(self) -> LowRankWeights:
        """Within which the module has weights that are quicker to multiply with."""
        return LowRankWeights(self._model.parameters())

    @contextlib.contextmanager
    def weights_times(self, factor: float) -> Iterator[None]:
        """Runs a short block with other weights, if they are few; signals wait until they are as before."""
        is_few = 0 < self.weights <= _FEW_WEIGHTS
        named = self._model.parameters() if is_few else ()
        weights = [weight for weight in named if is_of_reals(weight) and not weight.is_inference()]
        before = [Before.of(weight) for weight in weights]
        with DeferredInterrupts():
            try:
                with torch.no_grad():
                    for weight in weights:
                        weight.mul_(factor)
                yield
            finally:
                for state in before:
                    state.restore()

    def require_same_when_called_again(self, others: Iterable[TriedCall] = ()) -> None:
        """Refuses a model that does something else when it is called again, where it takes no time to find out."""
        if self._kept.changed and self.is_possible() and self.of(self.known).is_quick():
            quick = (other.inputs for other in others if self.is_own and other.is_quick() and not other.refused())
            require_same_when_called_again(self._kept, self.known, [*itertools.islice(quick, _IN_A_ROW)])

    def _leaves(self, call: CallInputs, watched: Watched) -> list[Any]:
        given = call.leaves()

        def was_written(key: Key, tensor: torch.Tensor) -> bool:
            if isinstance(key, str):
                return self._kept.has_written(tensor)
            return tensor.dtype != torch.complex32 and not agree([given[key]], [tensor])  # which torch does not compare

        with self._kept.call() as model:
            own = call.copied()
            places = Places(dict(named_buffers(model)), own.leaves())
            leaves, self.structure = pytree.tree_flatten(watched(lambda: model(*own.args, **own.kwargs)))
            with data_tests():  # these are not the model's
                self.written = places.written(dict(named_buffers(model)), was_written)
            return [self._kept.left(leaf) for leaf in leaves]

    @functools.cached_property
    def _ending(self) -> Ending:
        """A model that does not end for a call refuses it, so to say."""
        return Ending(lambda watched: self._leaves(self.known, watched))

    def _times(self, call: CallInputs) -> float:
        """How many times the entries of the known call another one has."""
        return _entries(call) / max(_entries(self.known), 1)

    def refuses_without_data(self, tried: TriedCall) -> bool | None:
        """Whether the module refuses fake tensors of the sizes of a call; None if that says nothing about the sizes.

        It may be fake tensors that are refused. Models refuse sizes soon, so with its data it does not take long
        either; if that could be much to compute, fake tensors of the known call tell.
        """
        if self._works_without_data is False:
            return None
        works = self._works(lambda: tried.inputs)
        if works is None:
            return None
        if works:
            self._works_without_data = True
            return False
        if self._works_without_data is None and tried.is_affordable():
            if tried.outputs() is not None:
                self._works_without_data = False
            return tried.outputs() is None
        if self._works_without_data is None:
            self._works_without_data = self._runs_without_data(self.known)
        return True if self._works_without_data else None

    def refuses_sizes(self, make: Callable[[], CallInputs | None]) -> bool:
        """Whether the module refuses inputs of sizes that are too large to be made: fake tensors of them, which `make`
        makes. It does not as far as is known if it takes no fake tensors at all."""
        if self._works_without_data is None:
            self._works_without_data = self._runs_without_data(self.known)
        return self._works_without_data and self._works(make) is False

    def _runs_without_data(self, call: CallInputs) -> bool:
        return bool(self._works(lambda: call))

    def _works(self, make: Callable[[], CallInputs | None]) -> bool | None:
        """Whether the module runs with fake tensors of a call; None if there is no call, or data are asked for."""
        # Not at the top: it takes long to import, and whoever exports has it by now.
        from torch._subclasses.fake_tensor import FakeTensorMode

        def is_run(watched: Watched) -> bool | None:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            with torch_silent(), self._kept.call(has_data=False) as model, mode:
                call = make()
                if call is None:
                    return None
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
                watched(lambda: model(*args, **kwargs))
                return True

        tables = self._tables
        try:
            with interrupts_come_out():
                return self._ending.ended(is_run)
        except (Exception, EndlessError) as error:  # the model's refusal, or that of fake tensors to tell their data
            logger.debug("without data the model raises %s: %s", type(error).__name__, error)
            return None if asks_for_data(error) else False
        finally:
            tables.restore()

    def asked(self, call: CallInputs, sizes: Sequence[Sequence[sympy.Expr]]) -> Asked:
        """What the module asks of the sizes of a call until it refuses it, or returns.

        `sizes` are the expressions of the axes of each leaf: those that are a symbol are what is told of.
        """
        found = self.asked_of_sizes(call, sizes)
        return self._asked(call, sizes, has_data=True) if found.is_cut_short else found

    def asked_of_sizes(self, call: CallInputs, sizes: Sequence[Sequence[sympy.Expr]]) -> Asked:
        """The same, of a model that is run without its data, whatever it asks of these."""
        ways = ways_of(self._model)
        known = ways.at(call, sizes)
        if known is None:
            known = self._asked(call, sizes, has_data=False)
            may_be_kernel = known.has_stopped_operator() or known.fixed_sizes()  # which has another one in a trace
            if may_be_kernel and ways.asked_in_vain < _IN_VAIN:
                traced = self._asked(call, sizes, has_data=False, is_as_traced=True)
                is_better = traced.tells_more_than(known)
                ways.asked_in_vain += not is_better
                known = traced if is_better else known
            ways.add(call, sizes, known)
        return known

    def _asked(
        self,
        call: CallInputs,
        sizes: Sequence[Sequence[sympy.Expr]],
        *,
        has_data: bool,
        is_as_traced: bool = False,
    ) -> Asked:
        # Not at the top: it takes long to import, and whoever exports has it by now.
        from torch._dispatch.python import enable_python_dispatcher

        def asked(watched: Watched) -> Asked:
            symbolic = SymbolicSizes(sizes, has_data=has_data)
            raised: Exception | None = None
            kernels = enable_python_dispatcher() if is_as_traced else contextlib.nullcontext()
            with torch_silent(), self._kept.call(has_data=False) as model, kernels, symbolic.mode:
                made = symbolic.call(call)
                try:
                    watched(lambda: model(*made.args, **dict(made.kwargs)))
                except Exception as error:  # the model's refusal, or that of fake tensors
                    logger.debug("with sizes alone the model raises %s: %s", type(error).__name__, error)
                    raised = error
            is_cut_short = raised is not None and asks_for_data(raised)
            return Asked(
                symbolic.conditions(),
                _numbers_where(raised),
                is_cut_short=is_cut_short,
                is_raised=_is_raised_by_own(raised),
                is_stopped=raised is not None,
                of_code=symbolic.conditions(of_code=True),
            )

        tables = self._tables
        try:
            with interrupts_come_out():
                return self._ending.ended(asked)
        except EndlessError:
            return Asked()
        finally:
            tables.restore()


class TriedCall:
    """A call of a module: whether it is refused, and what it returns. Both are found out when they are first asked."""

    def __init__(self, run: ModelRun, inputs: CallInputs, *, is_brief: bool = False) -> None:
        self.inputs, self.is_brief, self._run = inputs, is_brief, run
        self._refused: bool | None = None
        self._outputs: list[Any] | None = None
        self._tests_data = False
        #: Whether the program is known to compute no more than what is run in 0.1 s, for the one that knows it.
        self.is_little: Callable[[], bool] = lambda: False
        self.structure: object = None
        self.written: Written = {}

    def refused(self) -> bool:
        """Whether the module does not take the call.

        Where that is much to compute it is run without its data, if it can be, which takes the same time whatever the
        sizes.
        """
        if self._refused is None and not self.is_quick() and not self.is_little():
            self._refused = self._run.refuses_without_data(self)
        return self.outputs() is None if self._refused is None else self._refused

    def outputs(self) -> list[Any] | None:
        """The leaves of what the module returns; None if it refuses."""
        if not self._refused and self._outputs is None:
            with self.threads():
                self._outputs, self._tests_data = self._run.result(self.inputs, is_brief=self.is_brief)
                if self._outputs is None and not self.is_brief:
                    self._take_other_data()
                self.structure, self.written = self._run.structure, self._run.written
            self._refused = self._outputs is None
        return self._outputs

    def _take_other_data(self) -> None:
        """What was refused may be the data, and not its sizes: positions beyond an axis that is shorter, an assertion
        on a sum that is met by another one."""
        others = with_other_data(self.inputs) if self._tests_data else ()
        for inputs in itertools.chain(with_numbers_within(self.inputs, self._run.known), others):
            outputs, _ = self._run.result(inputs)
            if outputs is not None:
                self.inputs, self._outputs = inputs, outputs
                return

    @property
    def is_known_refused(self) -> bool:
        """Whether it was found out that the module does not take the call."""
        return bool(self._refused)

    def tests_data(self) -> bool:
        """Whether the module was seen to test tensor data, so that it may do something else for other data."""
        return self._tests_data

    def is_of_many_products(self) -> bool:
        """Whether weights of low rank are quicker to run it with, also where it is run once."""
        return self._run.weights > _FEW_WEIGHTS and self._work()[1] >= _MANY_PRODUCTS

    def take_over(self, other: TriedCall) -> None:
        """What was found out of the same call with other weights, but for what it returns."""
        self.inputs, self.structure, self.written = other.inputs, other.structure, other.written
        self._refused, self._tests_data = other._refused, other._tests_data

    def forget_outputs(self) -> None:
        """They are computed again if somebody asks for them."""
        self._outputs = None

    def is_quick(self) -> bool:
        """Whether to run it takes less time than to run it without its data, which is some 0.1 ms an operator."""
        rows, products = self._work()
        return rows <= _QUICK_ROWS and products <= QUICK_PRODUCTS

    def is_affordable(self) -> bool:
        """Whether it can be run, though it may take longer than without its data."""
        return self._work()[1] <= AFFORDABLE_PRODUCTS

    def threads(self) -> contextlib.AbstractContextManager[None]:
        """As many threads as are of use; the model and the program are to run with as many, for they sum alike."""
        return threads_for(self._work()[1])

    def _work(self) -> tuple[int, int]:
        """The rows of the longest input, and how often a weight is multiplied: about each of them with each row."""
        leaves = [leaf for leaf in self.inputs.leaves() if isinstance(leaf, torch.Tensor)]
        rows = max((leaf.numel() // (_width(leaf) or 1) for leaf in leaves), default=1)
        return rows, rows * self._run.weights


def _numbers_where(error: BaseException | None) -> Sequence[int]:
    """The numbers at hand in the innermost function of the user's that raised an error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)] if error is not None else []
    return numbers_at_hand([frame for frame in frames if is_users(frame.f_code.co_filename)][-1:])


def _is_raised_by_own(error: BaseException | None) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)] if error is not None else []
    file = frames[-1].f_code.co_filename if frames else ""
    return bool(file) and is_users(file) and not is_installed(file)


def _is_own(kind: type[torch.nn.Module]) -> bool:
    file = file_of_module(sys.modules.get(kind.__module__))
    return file is None or not is_installed(file)


def _entries(call: CallInputs) -> int:
    return sum(leaf.numel() for leaf in call.leaves() if isinstance(leaf, torch.Tensor))


def _width(leaf: torch.Tensor) -> int:
    return leaf.shape[-1] if leaf.is_floating_point() and leaf.dim() > 0 else 1
