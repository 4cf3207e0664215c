"""The functions of torch's tracer that take part in replaying, made from those that are there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import Graph

from exportguard.phases import phase
from exportguard.repeats.answers import Answers
from exportguard.repeats.asked import asking_operator
from exportguard.repeats.markers import MARKER, expand_graph
from exportguard.repeats.plan import Plan, current_plan
from exportguard.repeats.questions import WATCHED, sets_its_own_data
from exportguard.repeats.region import NOT_REPLAYED, Region
from exportguard.repeats.session import Session

#: The trace that is going on, by the identity of its tracer. Traces of bodies inside it have tracers of their own.
_SESSIONS: dict[int, Session] = {}

#: What is known of fake kernels, while the tracer of such a trace makes one call of an operator.
_ANSWERS: ContextVar[Answers | None] = ContextVar("exportguard.answers", default=None)


def tracing_once(original: Callable[..., Graph]) -> Callable[..., Graph]:
    """`_ModuleStackTracer.trace`: the trace of a model, with a session."""

    @functools.wraps(original)
    def trace(tracer: object, root: object, *args: Any, **kwargs: Any) -> Graph:
        plan = current_plan()
        if _SESSIONS:
            return original(tracer, root, *args, **kwargs)
        with phase("torch.export: tracing"):
            return trace_model(plan, tracer, root, *args, **kwargs)

    def trace_model(plan: Plan, tracer: Any, root: Any, *args: Any, **kwargs: Any) -> Graph:
        if not plan.traces_once:
            with _answered_by(Answers(remembers=False)):
                return _without_failed_calls(original(tracer, root, *args, **kwargs))
        session = Session(tracer, tracer.scope_root)
        _SESSIONS[id(tracer)] = session
        plan.counts.append(session.memory.counts)
        try:
            graph = original(tracer, root, *args, **kwargs)
            session.require_answers()
        finally:
            del _SESSIONS[id(tracer)]
        _without_failed_calls(graph)
        if not plan.keeps_markers or _is_split_between_markers(graph):
            expand_graph(graph)
        return graph

    return trace


def _without_failed_calls(graph: Graph) -> Graph:
    """Takes out the nodes of operator calls that raised, which the model caught: they have no value, and no user.

    Torch adds the node of a call before it finds out what the call returns.
    """
    for node in list(graph.nodes):
        is_operator = (
            node.op == "call_function"
            and isinstance(node.target, torch._ops.OpOverload)
            and not node.target._schema.is_mutable
        )
        if is_operator and "val" not in node.meta and not node.users and node.target._schema.returns:
            graph.erase_node(node)
    return graph


def _is_split_between_markers(graph: Graph) -> bool:
    """Whether passes of torch make graphs of their own of what lies between changes of a mode.

    A marker and the values that are asked of it may then come to lie in two graphs.
    """
    nodes = list(graph.nodes)
    first = next((at for at, node in enumerate(nodes) if node.target is MARKER), len(nodes))
    return any(node.target in _SPLITTING for node in nodes[first:])


_SPLITTING = (torch._C._set_grad_enabled, torch.amp.autocast_mode._enter_autocast)


def calling_modules(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_ModuleStackTracer.call_module`: the forward of a repeated module runs as a block."""

    @functools.wraps(original)
    def call_module(tracer: Any, module: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        session = _SESSIONS.get(id(tracer))
        if session is None or session.region is not None:
            return original(tracer, module, forward, args, kwargs)

        def block(*args: Any, **kwargs: Any) -> Any:
            with session.block(module):
                return forward(*args, **kwargs)

        return original(tracer, module, block, args, kwargs)

    return call_module


def creating_nodes(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_ModuleStackTracer.create_node`: nodes are noted for the block that is running."""

    @functools.wraps(original)
    def create_node(tracer: object, kind: str, target: object, *args: Any, **kwargs: Any) -> Any:
        session = _SESSIONS.get(id(tracer))
        if session is None:
            return original(tracer, kind, target, *args, **kwargs)
        if args and session.modes.changes_nothing(target, args[0]):
            return session.modes.node_of_nothing(target)
        region = session.region
        if target is MARKER or kind == "placeholder":
            with _without_stack_trace(tracer):
                return original(tracer, kind, target, *args, **kwargs)
        if region is None or not region.is_open:
            return original(tracer, kind, target, *args, **kwargs)
        region.note_node(target, kind)
        node = original(tracer, kind, target, *args, **kwargs)
        region.add_node(node)
        return node

    return create_node


@contextmanager
def _without_stack_trace(tracer: Any) -> Iterator[None]:
    """While a node is made that no line of the model calls for: a stack trace takes longer than the node."""
    records, tracer.record_stack_traces = tracer.record_stack_traces, False
    try:
        yield
    finally:
        tracer.record_stack_traces = records


def watching_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    """`PreDispatchTorchFunctionMode.__torch_function__`: what the model asks of tensors beside calling operators."""

    @functools.wraps(original)
    def torch_function(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WATCHED:
            if sets_its_own_data(func, args):
                return None
            session = _SESSIONS.get(id(mode.tracer))
            if session is not None:
                session.note_function(func, args)
        return original(mode, func, types, args, kwargs)

    return torch_function


def dispatching(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ProxyTorchDispatchMode.__torch_dispatch__`: an operator call is replayed, or traced."""

    @functools.wraps(original)
    def torch_dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        session = _SESSIONS.get(id(mode.tracer))
        if session is None:
            return original(mode, func, types, args, kwargs)
        answers, region = session.memory.answers, session.region

        def trace() -> Any:
            with _answered_by(answers):
                return original(mode, func, types, args, kwargs)

        if region is None or not region.is_open or region.is_tracing:
            return trace()
        return region.call(func, args, kwargs or {}, trace)

    return torch_dispatch


@contextmanager
def _answered_by(answers: Answers | None) -> Iterator[None]:
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def asking_kernels(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensorMode._dispatch_impl`: how the results of a call look is asked once."""

    @functools.wraps(original)
    def dispatch_impl(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        answers = _ANSWERS.get()
        if answers is None:
            return original(mode, func, types, args, kwargs)

        def ask() -> Any:
            # A kernel that calls other operators makes small questions of a large one.
            with _answered_by(None), asking_operator():
                return original(mode, func, types, args, kwargs)

        return answers.of(mode, (func, args, kwargs), ask)

    return dispatch_impl


def finding_kernels(original: Callable[..., Any]) -> Callable[..., Any]:
    """`OpOverload._get_dispatch`: a call that is replayed goes no further, and no mode is taken off for it."""
    is_of_tracer: dict[Any, bool] = {}

    def is_traced_by(key: Any) -> bool:
        known = is_of_tracer.get(key)
        if known is None:
            known = is_of_tracer[key] = torch._C._to_functionality_key(key) == torch._C.DispatchKey.PreDispatch  # type: ignore[attr-defined]
        return known

    @functools.wraps(original)
    def get_dispatch(operator: Any, key: Any) -> Any:
        region = _region_that_replays() if _SESSIONS and is_traced_by(key) else None
        if region is None:
            return original(operator, key)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            result = region.replayed(operator, args, kwargs)
            return original(operator, key)(*args, **kwargs) if result is NOT_REPLAYED else result

        return kernel

    return get_dispatch


def _region_that_replays() -> Region | None:
    """The block of the trace that an operator call here is of; None if something else is asked before the tracer."""
    modes = torch._ops.mode_stack_state_for_pre_dispatch()  # type: ignore[no-untyped-call]
    mode = modes.get(0)  # the tracer's; functionalization's is 1
    if mode is None or modes.get(1) is not None or modes._schema_check_mode is not None:
        return None
    session = _SESSIONS.get(id(mode.tracer))
    region = None if session is None else session.region
    is_watched = not torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python)
    return region if region is not None and region.replays and is_watched else None


def dispatching_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """`handle_sym_dispatch`: arithmetic of sizes that an earlier block made, for which no mode is taken off."""

    @functools.wraps(original)
    def handle_sym_dispatch(func: Any, args: Any, kwargs: Any) -> Any:
        mode = torch._ops.mode_stack_state_for_pre_dispatch().get(0) if _SESSIONS else None  # type: ignore[no-untyped-call]
        session = None if mode is None else _SESSIONS.get(id(mode.tracer))
        region = None if session is None else session.region
        if region is None or not region.is_open or region.is_tracing or kwargs:
            return original(func, args, kwargs)
        assert session is not None
        return session.memory.size(func, args, lambda: original(func, args, kwargs))

    return handle_sym_dispatch
