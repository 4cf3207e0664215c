"""Runs an ONNX model in onnxruntime on torch tensors, whatever their dtype and device, without a copy through numpy."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.dlpack

from ..errors import ExportGuardError, InvalidArgumentError
from ..optional import OptionalModule
from .memory import require_readable
from .names import require_same

onnxruntime: Any = OptionalModule("onnxruntime")

_CHECK = re.compile(r"Name:'(only sizes with [^']*)'")

# Numbers of the ONNX element types.
_ELEMENT_TYPES: Mapping[torch.dtype, int] = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.uint16: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.uint32: 12,
    torch.uint64: 13,
    torch.complex64: 14,
    torch.complex128: 15,
    torch.bfloat16: 16,
    torch.float8_e4m3fn: 17,
    torch.float8_e4m3fnuz: 18,
    torch.float8_e5m2: 19,
    torch.float8_e5m2fnuz: 20,
}
_DTYPES = {number: dtype for dtype, number in _ELEMENT_TYPES.items()}


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Where a model runs, and with how many threads (0: as many as onnxruntime likes).

    Without `packs_weights` they stay where they are in the data file, mapped, instead of being laid out in memory for
    the kernels: it starts at once and runs slower. Threads that do not spin (`spins`) sleep while they wait for work,
    and leave the processor to others. `profile` is the beginning of the name of a file that onnxruntime writes its
    times to.
    """

    device: str = "cpu"
    threads: int = 0
    packs_weights: bool = True
    spins: bool = True
    profile: Path | None = None


class OrtSession:
    """A loaded model. `run` takes and returns torch tensors on the session's device."""

    def __init__(self, model: bytes | str | Path, options: SessionOptions = SessionOptions()) -> None:
        """Loads a file, or the bytes of a model without external data.

        Raises:
            InvalidArgumentError: a device for which this onnxruntime has no provider.
            ExportGuardError: a node for which it has no kernel there.
        """
        self._device = torch.device(options.device)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.log_severity_level = 3  # what it says about its own optimizations is no news to the user
        if not options.packs_weights:
            settings.add_session_config_entry("session.disable_prepacking", "1")
        if not options.spins:
            settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if options.profile is not None:
            settings.enable_profiling = True
            settings.profile_file_prefix = str(options.profile)
        source = model if isinstance(model, bytes) else str(model)
        try:
            self._session = onnxruntime.InferenceSession(source, settings, providers=_providers(self._device))
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
            raise ExportGuardError(
                f"onnxruntime has no kernel on {self._device} for a node of the model; "
                f"try another dtype or device. {error}"
            ) from error
        self.input_names: list[str] = [value.name for value in self._session.get_inputs()]
        #: Those of float32; models of half precision may take some of their inputs so.
        self.wide_inputs = {value.name for value in self._session.get_inputs() if value.type == "tensor(float)"}
        self.output_names: list[str] = [value.name for value in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The outputs in order. Inputs are moved to the session's device.

        Raises:
            InvalidArgumentError: an input is missing, unknown, without numbers in memory, or of a dtype that ONNX does
                not have.
            ExportGuardError: onnxruntime stopped at a node, or the file at sizes at which it is not the model.
        """
        require_same(self.input_names, list(inputs))
        binding = self._session.io_binding()
        # The tensors must live until the run is over: the binding only has their addresses.
        held = [self._bind(binding, name, tensor) for name, tensor in inputs.items()]
        for name in self.output_names:
            binding.bind_output(name, self._device.type, self._device.index or 0)
        try:
            self._session.run_with_iobinding(binding)
        except _failures() as error:
            raise ExportGuardError(_as_told(str(error))) from error
        del held
        return [_as_tensor(value) for value in binding.get_outputs()]

    def require_fitting(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Checks what a caller gives; onnxruntime stops at it while it runs.

        Raises:
            InvalidArgumentError: an input is missing, unknown, of another dtype, or of a size that the model has not.
        """
        require_same(self.input_names, list(inputs))
        for value in self._session.get_inputs():
            given = inputs[value.name]
            expected = value.type.removeprefix("tensor(").removesuffix(")")
            sizes = value.shape or list(given.shape)  # without any where the rank is not known
            fits = len(sizes) == given.dim() and all(
                size == length for size, length in zip(sizes, given.shape, strict=True) if isinstance(size, int)
            )
            if expected != _name_of(given.dtype) or not fits:
                wanted = ", ".join(map(str, sizes))
                raise InvalidArgumentError(
                    f"input '{value.name}' must be {expected}[{wanted}], got {_name_of(given.dtype)}{[*given.shape]}"
                )

    def end_profiling(self) -> Path:
        """The file with the times of all runs so far; only of a session that was asked for a profile."""
        return Path(self._session.end_profiling())

    def _bind(self, binding: Any, name: str, tensor: torch.Tensor) -> torch.Tensor:
        require_readable(name, tensor)
        if tensor.dtype not in _ELEMENT_TYPES:
            raise InvalidArgumentError(f"input {name} is of dtype {tensor.dtype}, which ONNX does not have")
        held = tensor.detach().to(self._device).contiguous()
        # torch's empty tensors have no address, and kernels of onnxruntime follow a null pointer.
        memory = held if held.numel() else torch.empty(1, dtype=held.dtype, device=self._device)
        binding.bind_input(
            name,
            self._device.type,
            self._device.index or 0,
            _ELEMENT_TYPES[held.dtype],
            list(held.shape),
            memory.data_ptr(),
        )
        return memory


def _providers(device: torch.device) -> list[Any]:
    if device.type == "cpu":
        return ["CPUExecutionProvider"]
    available = onnxruntime.get_available_providers()
    if device.type == "cuda" and "CUDAExecutionProvider" in available:
        return [("CUDAExecutionProvider", {"device_id": device.index or 0}), "CPUExecutionProvider"]
    raise InvalidArgumentError(
        f"the installed onnxruntime cannot run on {device}: it has {', '.join(available)}; "
        "install onnxruntime-gpu or pass device cpu"
    )


def _name_of(dtype: torch.dtype) -> str:
    """As onnxruntime calls it."""
    name = str(dtype).removeprefix("torch.")
    return {"float32": "float", "float64": "double"}.get(name, name.replace("float8_", "float8"))


def _as_tensor(value: Any) -> torch.Tensor:
    dtype = _DTYPES[value.element_type()]
    if value.device_name().lower() != "cpu":
        shared: torch.Tensor = torch.utils.dlpack.from_dlpack(value._get_c_value())
        return shared.view(dtype)
    # DLPack has no name for some of the dtypes, and none for an empty tensor's address.
    size = value.tensor_size_in_bytes()
    if not size:
        return torch.empty(value.shape(), dtype=dtype)
    raw = bytearray(ctypes.string_at(value.data_ptr(), size))
    return torch.frombuffer(raw, dtype=dtype).reshape(value.shape())


def _failures() -> tuple[type[Exception], ...]:
    """What a run that stops raises."""
    errors = onnxruntime.capi.onnxruntime_pybind11_state
    return RuntimeError, errors.Fail, errors.RuntimeException


def _as_told(error: str) -> str:
    """What onnxruntime says where a run stops; a check of sizes is a node that is called after its condition."""
    check = _CHECK.search(error)
    told = f"the inputs have sizes at which the file is not the model: {check[1]}. " if check is not None else ""
    return f"{told}onnxruntime stopped: {error}"
