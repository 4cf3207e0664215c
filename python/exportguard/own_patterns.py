"""Rules of one's own for the optimizer, written as two functions with the graph builder."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _core
from .arguments import require_callable, require_kind
from .errors import InvalidArgumentError
from .graph_builder import DTypeLike, Shape, Subgraph
from .onnx_types import dtype_name

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Hole:
    """What an argument of a match takes; without anything said, any value.

    Names in `shape` stand for sizes, equal names for equal sizes. `elements` is for a list of sizes, such as that of
    Reshape: its numbers, and names as in shapes.
    """

    dtype: DTypeLike | None = None
    shape: Shape | None = None
    constant: bool = field(default=False, kw_only=True)
    elements: Sequence[int | str] | None = field(default=None, kw_only=True)


class Pattern:
    """A rule of the optimizer: what `match` writes is replaced by what `replacement` writes.

    `match(g, x, w)` writes a small graph with `g.op` and returns its outputs; its arguments are holes. `replacement`
    and `condition` are given, by the names of their parameters, what the holes met: values (`x.dtype`, `x.shape`,
    `x.constant`), sizes that `holes` names, and attributes. `condition` returns True, False, or the reason for
    declining.

    - operands of Add, Mul and the like are tried in both orders;
    - a number in the match meets a constant with that number, in the dtype that is there;
    - attributes must be those that the match gives, as they are written in the model; `attributes={"alpha":
      "LeakyRelu.alpha"}` lets one have any value and gives it to the two functions as `alpha`, None where it is left
      out;
    - values between that are no output of the match may be read by nothing else.

    >>> import exportguard
    >>> rule = Pattern(lambda g, x: g.op.Neg(g.op.Neg(x)), lambda g, x: x, name="neg_neg")
    >>> g = exportguard.GraphBuilder(opset=20)
    >>> x = g.input("x", "f32", ["n"])
    >>> y = g.output(g.op.Abs(g.op.Neg(g.op.Neg(x))), "y")
    >>> model = g.to_model()
    >>> print(model.optimize(patterns=[rule]).nodes_after)
    1
    """

    def __init__(
        self,
        match: Callable[..., Any],
        replacement: Callable[..., Any],
        *,
        name: str = "",
        condition: Callable[..., bool | str] | None = None,
        holes: Mapping[str, Hole] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Takes the functions; the graph of the match is written when the opset of a model is known.

        Raises:
            InvalidArgumentError: a function has parameters that nothing gives, or a hole is none of the match.
        """
        require_callable("match", match)
        require_callable("replacement", replacement)
        if condition is not None:
            require_callable("condition", condition)
        self.name = name or getattr(match, "__name__", "")
        self._match = match
        self._replacement = replacement
        self._condition = condition
        self._holes = _checked_holes(match, holes or {}, self.name)
        self._attributes = [(key, *_operator_and_attribute(key, text)) for key, text in (attributes or {}).items()]
        names = [*self._holes, *self._size_names(), *(key for key, _, _ in self._attributes)]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"pattern '{self.name}' has two things of one name among {', '.join(names)}")
        self._wanted = _wanted("replacement", replacement, names, skip=1)
        self._asked = _wanted("condition", condition, names, skip=0) if condition else []

    def described(self, opset: int) -> dict[str, Any]:
        """What `_core.optimize` takes, for models of that opset.

        Raises:
            InvalidArgumentError: what `match` writes is not right, or it returns no values.
        """
        model, holes = self._match_graph(opset)
        return {
            "name": self.name,
            "matches": inspect.getdoc(self._match) or "",
            "match": model,
            "holes": holes,
            "attributes": self._attributes,
            "condition": self._refusal if self._condition else None,
            "replacement": self._replaced,
        }

    def _match_graph(self, opset: int) -> tuple[_core.Model, list[dict[str, Any]]]:
        scope = _core.GraphScope({"": opset})
        graph = Subgraph(scope, {"": opset, "com.microsoft": 1})
        described = {name: _described(hole) for name, hole in self._holes.items()}
        arguments = []
        for name, hole in described.items():
            shape = [len(hole["elements"])] if hole["elements"] is not None else hole["shape"]
            arguments.append(graph.input(name, hole["dtype"] or None, shape))
        for i, output in enumerate(_listed(self._match(graph, *arguments))):
            require_kind(f"output {i} of the match of pattern '{self.name}'", output, _core.GraphValue, "a value")
            graph.output(output)
        return scope.model(), list(described.values())

    def _size_names(self) -> list[str]:
        """Sizes by name, each once."""
        texts = [
            text
            for hole in self._holes.values()
            for text in (*(hole.shape or ()), *(hole.elements or ()))
            if isinstance(text, str)
        ]
        return list(dict.fromkeys(name for text in texts for name in _NAME.findall(text)))

    def _captured(
        self, values: Sequence[Any], sizes: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {**dict(zip(self._holes, values, strict=True)), **sizes, **attributes}

    def _refusal(self, values: Sequence[Any], sizes: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
        captured = self._captured(values, sizes, attributes)
        assert self._condition is not None
        answer = self._condition(**{name: captured[name] for name in self._asked})
        if isinstance(answer, str):
            return answer
        require_kind(f"what the condition of pattern '{self.name}' returns", answer, bool, "True, False or a reason")
        return "" if answer else "the condition does not hold"

    def _replaced(
        self, scope: _core.GraphScope, values: Sequence[Any], sizes: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> list[Any]:
        captured = self._captured(values, sizes, attributes)
        graph = Subgraph(scope, {"": scope.opset, "com.microsoft": 1})
        return _listed(self._replacement(graph, **{name: captured[name] for name in self._wanted}))


def builtin_patterns() -> list[str]:
    """The names of the optimizer's own patterns and passes, for `optimize(patterns=[*builtin_patterns(), own])`."""
    return [*(row[0] for row in _core.optimizer_patterns()), *_core.optimizer_passes()]


def _listed(returned: object) -> list[Any]:
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _parameters(function: Callable[..., Any], skip: int) -> list[str]:
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidArgumentError(f"the functions of a pattern take their arguments by name, got '{parameter}'")
    return [parameter.name for parameter in parameters]


def _checked_holes(match: Callable[..., Any], holes: Mapping[str, Hole], name: str) -> dict[str, Hole]:
    """The hole of each argument of the match, in their order."""
    names = _parameters(match, skip=1)
    unknown = [key for key in holes if key not in names]
    if unknown:
        raise InvalidArgumentError(
            f"pattern '{name}' has holes {', '.join(unknown)} that its match does not take; it takes {', '.join(names)}"
        )
    for key, hole in holes.items():
        require_kind(f"hole {key}", hole, Hole, "a Hole")
    return {key: holes.get(key, Hole()) for key in names}


def _operator_and_attribute(key: str, text: object) -> tuple[str, str]:
    operator, _, attribute = text.rpartition(".") if isinstance(text, str) else ("", "", "")
    if not operator or not attribute:
        raise InvalidArgumentError(f"attribute {key} must be of the form 'LeakyRelu.alpha', got {text!r}")
    return operator, attribute


def _wanted(what: str, function: Callable[..., Any], names: Sequence[str], skip: int) -> list[str]:
    """The parameters of a function, each of which the match must give."""
    wanted = _parameters(function, skip)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InvalidArgumentError(
            f"the {what} asks for {', '.join(missing)}, which the match does not give; it gives {', '.join(names)}"
        )
    return wanted


def _described(hole: Hole) -> dict[str, Any]:
    dtype = "" if hole.dtype is None else dtype_name(hole.dtype)
    return {
        "constant": hole.constant,
        "dtype": "i64" if hole.elements is not None and not dtype else dtype,
        "shape": None if hole.shape is None else list(hole.shape),
        "elements": None if hole.elements is None else list(hole.elements),
    }
