"""One clear error for an export that torch stops: the line of the model, torch's reason, and what to do."""

from __future__ import annotations

import linecache
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from types import FrameType, TracebackType
from typing import Any, TextIO, cast

from .errors import ExportError, ExportGuardError, TextOfASymbolError
from .interrupted import interrupts_come_out
from .model_code import is_users

_REASON_LINES = 6

_ON_VALUES = (
    'the program depends on the values of a tensor there; pass rewrite="auto" to have such tests and loops rewritten, '
    "or write them with torch.where, torch.cond or torch._check"
)
_ON_TEXTS = (
    "test the number itself, `n == 4`, rather than a text made of it; such a text may stand in messages, of `raise`, "
    "`assert`, print, logging, warnings and functions that check"
)
_ON_SIZES = "ask for fewer dynamic axes, or give the axes that have to be equal the same name"
#: Words of torch or of a model for what is known by them, and what to do instead: most are inputs of a wrong kind.
_BY_WORDS = (
    (r"Unsupported input type <class '(set|frozenset)'>", r"pass a list for the \1: inputs have an order"),
    (
        r"Found <class '([^']*)'> in output",
        r"return a tuple, a list or a dictionary from forward, or tell how a \1 is taken apart, "
        r"torch.export.register_dataclass(cls) for a dataclass, "
        r"exportguard.register_class_serialization(cls, flatten, unflatten) for another class",
    ),
    (
        r"at least two devices, (?:meta and \S+|\S+ and meta)!",
        r"what is on the meta device has no numbers: load the weights into the model before it is exported, and pass "
        r"inputs with data",
    ),
    (r"at least two devices, (\S+) and (\S+)!", r"move the model and its inputs to one device: they are on \1 and \2"),
    (
        r"NestedTensorImpl|NestedIntNode|_nested_tensor_from",
        r"a program takes and makes no nested tensor: take torch.nested.to_padded_tensor(x, 0), and lengths or a mask",
    ),
    (
        r"Sparse\w*TensorImpl|_sparse_|to_sparse",
        r"a program takes and makes no sparse tensor, as no runtime computes with them: keep x.to_dense(), and write "
        r"torch.matmul for torch.sparse.mm, torch.softmax for torch.sparse.softmax",
    ),
    (
        r"[Ii]nference tensors? (?:outside|cannot)",
        r"tensors that were made under torch.inference_mode() cannot be traced: make the model and its inputs under "
        r"torch.no_grad(), or none of both",
    ),
    (
        r"Cannot call (?:sizes|strides|numel)\(\) on tensor with symbolic",
        r"an operator there asks in C++ for a size that changes, as some do within torch.vmap: write such a loop out, "
        r"torch.stack([f(w) for w in weights]), or leave the axis out of dynamic_shapes",
    ),
    (r"quantized nyi in meta tensors", r"a program takes no quantized tensor: pass x.dequantize(), or x.int_repr()"),
    (
        r"Unsupported input type <class '([^']*)'>",
        r"tell how a \1 is taken apart, torch.export.register_dataclass(cls) for a dataclass, for another class "
        r"exportguard.register_class_serialization(cls, flatten, unflatten), where flatten(x) returns its tensors and "
        r"what else makes it up",
    ),
    (
        r"'(tuple|list)' object has no attribute '(?:get_|update|layers|is_|max_)\w*'",
        r"pass a cache for the \1 of keys and values, exportguard.make_dynamic_cache([(key, value), …])",
    ),
    (
        r"argument #1 'indices' to have one of the following scalar types",
        r"an index has to be an integer: pass input_ids.long()",
    ),
    (r"must be Tensor, not (list|tuple|int|float)", r"pass a tensor for the \1, torch.tensor(…)"),
    (
        r"forward changes the input itself",
        r"leave the input as it is, and go on with a tensor of another shape: y = x.unsqueeze(0)",
    ),
    (r"the data of a tensor is set while", r"write x = y in the place of x.data = y, or x.copy_(y) if the shape stays"),
    (
        r"(?:jacrev|in forward mode).* (?:is|are) not traced",
        r"torch.autograd.functional.jacobian and torch.autograd.functional.hessian are traced: call these",
    ),
)
#: The same, whatever was rewritten.
_BY_WORDS_OF_PYTHON = (
    (
        r"unhashable type: non-nested Sym",
        r"a dynamic size is a key of a dict, an element of a set, or what a cached function goes by, and Python wants "
        r"its value there: compare the sizes themselves, `a == b`, or look them up in a tensor",
    ),
    (
        r"\.numpy\(\) is not supported for tensor subclasses",
        r"functions of numpy are no operators of a program: write them with those of torch, which has most of them "
        r"under the same name",
    ),
    (
        r"can't convert np.ndarray of type numpy.object_",
        r"numpy keeps dynamic sizes as objects, of which no tensor is made: ask torch, torch.arange(n), "
        r"torch.tensor([*x.shape])",
    ),
    (
        r"loop of ufunc does not support argument \d+ of type Sym\w+ which has no callable (\w+) method",
        r"numpy is asked for the \1 of a dynamic size, which it cannot tell: write math.\1(n) and pass "
        r'rewrite="auto", or ask a tensor, torch.\1(torch.scalar_tensor(n))',
    ),
)
_IN_THE_MODEL = (
    "call the model with these inputs without export: if that fails too, the inputs are wrong; if not, "
    "ask for fewer dynamic axes, or give the axes that have to be equal the same name"
)


@contextmanager
def explained_export() -> Iterator[None]:
    """Turns what torch or the model raises while it is exported into an `ExportError` that has it as its cause."""
    try:
        with without_partial_graph():
            yield
    except ExportGuardError:
        raise
    except Exception as error:
        raise ExportError(_text(error)) from error


_SHAPES = logging.getLogger("torch.fx.experimental.symbolic_shapes")


def _is_no_failed_suggestion(entry: logging.LogRecord) -> bool:
    # torch 2.11 to 2.13; the second comes with a traceback, of conditions that sympy does not put into one
    return not str(entry.msg).startswith(("Unable to find user code", "Failed to reduce inequalities"))


@contextmanager
def without_partial_graph() -> Iterator[None]:
    """Keeps off stderr the graph that torch prints as far as it came; the error still has it (`partial_fx_graph`).

    So does what torch logs of symbols that it has no suggestion for. An interrupt comes out whatever torch raises while
    it does.
    """
    _SHAPES.addFilter(_is_no_failed_suggestion)
    try:
        # contextlib's annotation asks for all that a file has, of which the rest is handed on
        with redirect_stderr(cast(TextIO, _WithoutPartialGraph(sys.stderr))), interrupts_come_out():
            yield
    finally:
        _SHAPES.removeFilter(_is_no_failed_suggestion)


class _WithoutPartialGraph:
    """A stream without the graph of an error that is being handled, which torch 2.11 to 2.13 print for each export."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_behind_graph = False

    def write(self, text: str) -> int:
        """Hands a text on, but for a graph and the end of its line."""
        is_end, self._is_behind_graph = self._is_behind_graph and text == "\n", False
        if is_end:
            return len(text)
        if text and text == getattr(sys.exc_info()[1], "partial_fx_graph", None):
            self._is_behind_graph = True
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _text(error: Exception) -> str:
    stop = behind_handlers(error)
    if isinstance(stop, ExportGuardError):
        return f"{stop}\n{_made_of_it(error)}"
    place = place_in_model(stop)
    where = f" at {place}" if place else ""
    reason = f"{type(stop).__name__}: {_reason(stop)}"
    lines = [f"torch.export stopped{where}", reason, *([] if stop is error else [_made_of_it(error)])]
    return "\n".join([*lines, f"What to do: {_remedy(stop)}"])


def _made_of_it(error: Exception) -> str:
    return f"which the model raises again as {type(error).__name__}: {_reason(error)} ({place_in_model(error)})"


def behind_handlers(error: Exception) -> Exception:
    """What stopped an export: the error itself, or the one that a handler of the model made it of.

    `except RuntimeError as e: raise MemoryError("too large") from e` hides that torch wanted the value of a tensor.
    """
    current, first = error, error
    seen: set[int] = set()
    while id(current) not in seen:
        if isinstance(current, (ExportGuardError, *stops())):
            return current
        seen.add(id(current))
        hidden = current.__cause__ or current.__context__
        catcher = _that_caught(hidden, current)
        if not isinstance(hidden, Exception) or catcher is None:
            break
        current = hidden
        first = hidden if is_users(catcher.f_code.co_filename) else first
    return first


def _that_caught(hidden: BaseException | None, error: BaseException) -> FrameType | None:
    """The frame that an error came through and that caught another one; None if that was caught elsewhere."""
    caught = None if hidden is None or hidden.__traceback__ is None else hidden.__traceback__.tb_frame
    return next((trace.tb_frame for trace in _traces(error.__traceback__) if trace.tb_frame is caught), None)


def stops() -> tuple[type[Exception], ...]:
    """What torch 2.11 to 2.13 raise where they want the value of a tensor, or a size that data decide."""
    # Importing these takes a second, which torch.export has taken already.
    from torch._dynamo.exc import UserError
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return UserError, GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException


def _reason(error: Exception) -> str:
    """The first lines of torch's message, before what it offers for debugging."""
    message = without_addresses(str(error))
    # "Exception raised from" is C++'s, with its frames.
    for beginning in ("\nCaused by:", "\nFor more", "\nException raised from ", "\nThe error above occurred"):
        message = message.partition(beginning)[0]
    return "\n".join([line.rstrip() for line in message.splitlines() if line.strip()][:_REASON_LINES])


#: How torch 2.11 to 2.13 and Python show objects: a symbol with its class and number, others with their address, and a
#: range without an end.
_SHOWN = (
    (r"\s*\(<class '[\w.]+'>, \d+\)\s*", " "),
    (r"<([\w.]+) object at 0x[0-9a-fA-F]+>", r"\1"),
    (r" at 0x[0-9a-fA-F]+", ""),
    (r"-int_oo\b", "no beginning"),
    (r"\bint_oo\b", "no end"),
)


def without_addresses(text: str) -> str:
    """A text of torch's without what says nothing to a user: places of objects in memory, which differ in each run, and
    torch's word for a range without an end.

    >>> without_addresses("u3 (<class 'torch.SymInt'>, 139)is not tracked with proxy for <fx.Tracer object at 0x7f>")
    'u3 is not tracked with proxy for fx.Tracer'
    >>> without_addresses("not within VR[2, int_oo]")
    'not within VR[2, no end]'
    """
    for shown, instead in _SHOWN:
        text = re.sub(shown, instead, text)
    return text


def is_asked_by_operator(error: BaseException) -> bool:
    """Whether it is an operator that stopped, and not Python code of the model: it was called behind that."""
    functions = [(file, function) for file, _, function in _lines(error.__traceback__)]
    behind = next((at for at, (file, _) in enumerate(reversed(functions)) if is_users(file)), len(functions))
    return any(function == "OpOverload.__call__" for _, function in functions[len(functions) - behind :])


def _remedy(error: Exception) -> str:
    # Importing these takes a second, which torch.export has taken already.
    from torch._dynamo.exc import UserError, UserErrorType
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

    tried = [note for note in getattr(error, "__notes__", ()) if note.startswith("exportguard: ")]
    for pattern, remedy in (*_BY_WORDS_OF_PYTHON, *(() if tried else _BY_WORDS)):
        found = re.search(pattern, str(error))
        if found:
            return found.expand(remedy)
    if tried:
        return f"write that line with torch.where, torch.cond or torch._check; {tried[0].removeprefix('exportguard: ')}"
    if isinstance(error, TextOfASymbolError):
        return _ON_TEXTS
    if isinstance(error, GuardOnDataDependentSymNode | DataDependentOutputException):
        return _ON_VALUES
    if isinstance(error, ConstraintViolationError):
        return _ON_SIZES
    if isinstance(error, UserError):
        return _ON_SIZES if error.error_type == UserErrorType.CONSTRAINT_VIOLATION else _ON_VALUES
    return _IN_THE_MODEL


def place_in_model(error: BaseException) -> str:
    """The innermost line of the model that the error, or else what caused it, came through."""
    current: BaseException | None = error
    seen: set[int] = set()
    # What is raised again in its own handler makes a circle.
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        for file, line, function in reversed([*_lines(current.__traceback__)]):
            if is_users(file):
                return f"{file}:{line} in {function}: {linecache.getline(file, line).strip()}"
        current = current.__cause__ or current.__context__
    return ""


def _lines(traces: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    for trace in _traces(traces):
        code = trace.tb_frame.f_code
        yield code.co_filename, trace.tb_lineno, code.co_qualname


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next
