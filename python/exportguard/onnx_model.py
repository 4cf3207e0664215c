"""A converted model: what `to_onnx` returns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from . import _core
from .arguments import path_of, require_choice, require_count, require_flags, require_kind, require_named
from .axis_report import AxisOutcome
from .errors import FileError, InvalidArgumentError
from .notebook_tables import bars, page, table
from .optimization import OptimizationReport, OwnPattern, PatternUse, Target
from .phases import phase, recorded_phases
from .runners.evaluator import EvaluatorSession
from .runners.memory import require_readable

if TYPE_CHECKING:
    from .rewrites.automatic import RewritingStep
    from .runners.onnxruntime import OrtSession

ExternalData = Literal["auto", "always", "never"]
EXTERNAL_DATA = get_args(ExternalData)
Runner = Literal["onnxruntime", "evaluator"]
_LONGEST_NAME = 255  # bytes, on all file systems of Linux; the data file has five more


@dataclass(frozen=True)
class ValueInfo:
    """An input or output: its name, element type such as `f32`, and sizes, a number or the name of a changing axis.

    The shape is None where not even the rank is known.
    """

    name: str
    dtype: str
    shape: tuple[str | int, ...] | None


class OnnxModel:
    """An ONNX model whose weights are still the tensors of the model it came from: saving it copies none."""

    def __init__(
        self,
        core: _core.Model,
        opset: int,
        axes: Sequence[AxisOutcome] = (),
        rewriting_steps: Sequence[RewritingStep] = (),
    ) -> None:
        """Takes over a lowered model."""
        self._core = core
        self._sessions: dict[tuple[str, str], OrtSession | EvaluatorSession] = {}
        self._report: OptimizationReport | None = None
        self.is_made_here = True  # what a file says of types is inferred again
        self.opset = opset
        self.axes = tuple(axes)
        self.rewriting_steps = tuple(rewriting_steps)  # of `rewrite="auto"`
        self.seconds: dict[str, float] = {}  # of each phase of the export and the conversion, and of saving

    @property
    def inputs(self) -> list[ValueInfo]:
        """The inputs in order."""
        return [_value_info(*value) for value in self._core.inputs]

    @property
    def outputs(self) -> list[ValueInfo]:
        """The outputs in order."""
        return [_value_info(*value) for value in self._core.outputs]

    @property
    def node_count(self) -> int:
        """The number of nodes of the main graph."""
        return self._core.node_count

    @property
    def keeps_caches_in_one_buffer(self) -> bool:
        """Whether all inputs of four axes are caches that may lie in buffers longer than what they hold, as
        `optimize="onnxruntime-genai"` makes them where it can."""
        return _core.keeps_caches_in_one_buffer(self._core)

    def optimize(
        self,
        *,
        target: Target = "portable",
        patterns: Sequence[str | OwnPattern] = (),
        inline_functions: bool = False,
        positions: int | None = None,
    ) -> OptimizationReport:
        """Fuses and simplifies nodes in place, and tells what was done.

        `patterns` has those to try, by name or as `exportguard.Pattern` of one's own; all built-in ones if empty, and
        `[*builtin_patterns(), own]` for both. With `inline_functions` local functions are written out first.
        `positions` are the most that a text has, `max_position_embeddings` of many configurations: for
        "onnxruntime-genai" attention turns queries and keys itself, by tables of as many rows.

        Raises:
            InvalidArgumentError: `target` or a name among `patterns` is unknown, `positions` is no positive integer, a
                pattern's match or replacement is not right, or what one makes is matched again and again.
            GraphError: a function to be inlined calls itself.
        """
        require_flags(inline_functions=inline_functions)
        if positions is not None:
            require_count("positions", positions, 1)
        own = [pattern for pattern in patterns if not isinstance(pattern, str)]
        for pattern in own:
            if not isinstance(pattern, OwnPattern):
                raise InvalidArgumentError(f"a pattern must be a name or an exportguard.Pattern, got {pattern!r}")

        self._sessions.clear()  # before: that of the evaluator reads the graph which is changed
        done = _core.optimize(
            self._core,
            target=target,
            only=[pattern if isinstance(pattern, str) else pattern.name for pattern in patterns],
            inline_functions=inline_functions,
            own=[pattern.described(self._core.opsets.get("", 0)) for pattern in own],
            are_types_inferred=self.is_made_here,
            positions=positions or 0,
        )
        uses = [PatternUse(*part) for part in done["patterns"]]
        self._report = OptimizationReport(uses, done["nodes_before"], done["nodes_after"], done["seconds"])
        return self._report

    def report(self) -> OptimizationReport | None:
        """What the last optimization did; None for a model that was not optimized."""
        return self._report

    def describe(self, metadata: Mapping[str, str]) -> None:
        """Adds to what the file says of itself beside the graph (`metadata_props`)."""
        require_named("metadata", metadata)
        self._core.metadata = {**self._core.metadata, **metadata}

    def text(self, sources: bool = False) -> str:
        """The graph as text; with `sources` each node says where it comes from in the user's model."""
        return self._core.text(sources=sources)

    def save(self, path: str | os.PathLike[str], external_data: ExternalData = "auto") -> Path:
        """Writes the model to `path`, large weights to `path + ".data"`. Neither name ever shows a partial file.

        A data file that an earlier model left there and this one does not need is removed.

        Raises:
            FileError: with the path and the system's reason; what stood there before is still there.
        """
        target = require_writable(path, "path")
        require_choice("external_data", external_data, EXTERNAL_DATA)
        with recorded_phases() as seconds, phase("saving"):
            _core.save(self._core, str(target), external_data=external_data)
        self.seconds.update(seconds)
        return target

    def to_bytes(self) -> bytes:
        """The model as the bytes of a ModelProto, weights inside.

        Raises:
            FileError: above 2 GB; save it with external data instead.
        """
        return _core.to_bytes(self._core)

    def infer_types(self) -> None:
        """Infers types and shapes of every node again: a file need not have them, and patterns decline without them.

        Raises:
            GraphError: for a node that no input could make right.
        """
        self._sessions.clear()
        _core.infer_types(self._core)

    def check(self, full: bool = False) -> None:
        """Runs onnx's checker, with shape inference if `full`.

        Raises:
            GraphError: with the checker's text.
        """
        require_flags(full=full)
        _core.check(self.to_bytes(), full=full)

    def run(
        self, inputs: Mapping[str, torch.Tensor], runner: Runner = "onnxruntime", device: str = "cpu"
    ) -> dict[str, Any]:
        """Runs the model and returns its outputs by name.

        `onnxruntime` is what the model is for; `evaluator` runs it with torch's kernels, in every dtype of torch.

        Raises:
            InvalidArgumentError: an input is missing, unknown, no tensor, or of another element type, rank or size, or
                there is no such runner or device.
            ExportGuardError: a node cannot be run.
        """
        if runner != "evaluator":  # which takes sequences and optionals as well, and checks by itself
            self._require_inputs(inputs)
        session = self._session(runner, device)
        return dict(zip(session.output_names, session.run(inputs), strict=True))

    def _session(self, runner: Runner, device: str) -> OrtSession | EvaluatorSession:
        key = (runner, device)
        if key not in self._sessions:
            self._sessions[key] = self._new_session(runner, device)
        return self._sessions[key]

    def _new_session(self, runner: Runner, device: str) -> OrtSession | EvaluatorSession:
        if runner == "evaluator":
            return EvaluatorSession(self._core, device)
        if runner != "onnxruntime":
            raise InvalidArgumentError(f"runner must be 'onnxruntime' or 'evaluator', got {runner!r}")
        from .runners.onnxruntime import (  # onnxruntime is asked for by those who run a model alone
            OrtSession,
            SessionOptions,
        )

        return OrtSession(self.to_bytes(), SessionOptions(device=device))

    def _require_inputs(self, inputs: Any) -> None:
        require_named("inputs", inputs)
        known = {value.name: value for value in self.inputs}
        missing, unknown = set(known) - set(inputs), set(inputs) - set(known)
        if missing or unknown:
            problem = f"lacks {', '.join(sorted(missing))}" if missing else f"has {', '.join(sorted(unknown))} beside"
            raise InvalidArgumentError(f"inputs {problem}; the model takes {', '.join(known) or 'none'}")
        for name, value in inputs.items():
            _require_input(known[name], value)

    def _repr_html_(self) -> str:
        """What a notebook shows: inputs and outputs, the axes that were asked to change, how many of each operator."""
        ends = [("input", value) for value in self.inputs] + [("output", value) for value in self.outputs]
        values = [(kind, value.name, value.dtype, _shape_text(value.shape)) for kind, value in ends]
        axes = [(axis.input, axis.axis, axis.asked, "kept" if axis.kept else "not kept", axis) for axis in self.axes]
        return page(
            f"OnnxModel, opset {self.opset}, {self.node_count} nodes",
            (
                table("inputs and outputs", ("", "name", "dtype", "shape"), values),
                table("axes that were asked to change", ("input", "axis", "asked", "", "how"), axes),
                bars("operators", self._core.operators),
                bars("seconds", self.seconds, "{:.2f}"),
            ),
        )

    def __repr__(self) -> str:
        names = ", ".join(f"{name}: {text}" for name, text, _, _ in self._core.inputs)
        return f"OnnxModel(opset {self.opset}, {self.node_count} nodes, inputs {names})"


def load(source: str | os.PathLike[str] | bytes) -> OnnxModel:
    """Reads an ONNX model of any producer from a file, or from the bytes of one without external data.

    External data is mapped, not copied, and must lie in the model's folder.

    Raises:
        FileError: what cannot be read, with the node or tensor; files may come from anywhere.
        GraphError: names in it collide.
    """
    core = _core.from_bytes(source) if isinstance(source, bytes) else _core.load(str(path_of("source", source)))
    model = OnnxModel(core, core.opsets.get("", 0))
    model.is_made_here = False
    return model


def _require_input(known: ValueInfo, value: Any) -> None:
    require_kind(f"input {known.name}", value, torch.Tensor, "a tensor")
    require_readable(known.name, value)
    dtype = _name_of(value.dtype)
    has_rank = known.shape is None or value.dim() == len(known.shape)
    if dtype not in (known.dtype, "") or not has_rank:
        rank = "" if known.shape is None else f" of rank {len(known.shape)}"
        raise InvalidArgumentError(
            f"input {known.name} must be {known.dtype}{rank}, got {value.dtype} of rank {value.dim()}"
        )
    sizes = zip(known.shape or (), value.shape, strict=False)
    if any(isinstance(wanted, int) and wanted != size for wanted, size in sizes):
        raise InvalidArgumentError(
            f"input {known.name} must have the sizes {_shape_text(known.shape)}, got {list(value.shape)}"
        )


def _name_of(dtype: torch.dtype) -> str:
    """The name of a dtype in graphs; empty for those of few bits, which have several."""
    if dtype in (torch.bool, torch.bfloat16):
        return {torch.bool: "bool", torch.bfloat16: "bf16"}[dtype]
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return ""
    kind = "f" if dtype.is_floating_point else "c" if dtype.is_complex else "i" if dtype.is_signed else "u"
    return f"{kind}{8 * dtype.itemsize}"


def _shape_text(shape: Sequence[int | str] | None) -> str:
    return "any rank" if shape is None else " × ".join(map(str, shape)) or "a number"


def first_difference(a: OnnxModel, b: OnnxModel) -> str:
    """Why two models are not known to compute the same; empty if every output is computed by the same expression.

    Operators, attributes and the contents of weights count, and the names of inputs and outputs; the order of nodes and
    the names of other values do not.
    """
    return _core.first_difference(a._core, b._core)


def _value_info(name: str, _: str, dtype: str, shape: Sequence[str | int] | None) -> ValueInfo:
    return ValueInfo(name, dtype, None if shape is None else tuple(shape))


def require_writable(path: str | os.PathLike[str], name: str = "path") -> Path:
    """The path, if a file can be written there; `name` is that of the argument.

    Raises:
        InvalidArgumentError: it is no path.
        FileError: the folder is missing or cannot be written to, its name is too long, or it is a folder or a device.
    """
    target = path_of(name, path)
    folder = target.parent
    if not folder.is_dir():
        what = "is a file; pass another name" if folder.exists() else "does not exist; create it first"
        raise FileError(f"cannot write {target}: the folder {folder} {what}")
    if len(os.fsencode(target.name)) + len(".data") > _LONGEST_NAME:
        raise FileError(f"cannot write {target}: the name is too long; choose a shorter one")
    if target.exists() and not target.is_file() and not target.is_dir():
        raise FileError(f"cannot write {target}: it is no file, and only files are replaced; pass another name")
    if target.is_dir():
        raise FileError(f"cannot write {target}: it is a folder; pass the name of a file in it")
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {target}: no permission to write to the folder {folder}")
    return target


def made_folder(path: Path) -> Path:
    """The folder, made with those above it if there is none.

    Raises:
        FileError: with the path and the system's reason.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {path}: {error.strerror}; pass another one") from error
    return path
