"""Checkpoints that are larger than memory: parameters that are views of the files on disk, read when they are used.

transformers' own loading has every weight in memory, and two copies of a shard while it converts it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import FileError

logger = logging.getLogger(__name__)

#: Of the weights in the dtype that is asked for; smaller models are loaded by transformers.
MAPPED_FROM = 1 << 30

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies in a file of safetensors; `start` counts bytes from the beginning of the file."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor in the safetensors files of a checkpoint, from their headers alone; {} if it has none such.

    Raises:
        FileError: a file is cut short, or its header is none.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {index}: {error}; copy it again") from error
        except (LookupError, AttributeError, TypeError) as error:
            raise FileError(f"cannot read {index}: it has no table of weights and files; copy it again") from error
        files = [folder / name for name in sorted(shards)]
    else:
        files = [path for path in [folder / "model.safetensors"] if path.is_file()]
    return {name: tensor for file in files for name, tensor in _header(file).items()}


def mapped_model(
    model: torch.nn.Module, stored: Mapping[str, StoredTensor], dtype_of: Callable[[str], torch.dtype]
) -> bool:
    """Gives a model that was made on the meta device its weights; False where the checkpoint has other names than the
    model, or lacks some.

    A tensor of another dtype than that of its name is converted into a file that has no name any more, and is read from
    there.
    """
    wanted = model.state_dict(keep_vars=True)
    if set(stored) - set(wanted) or any(wanted[name].shape != tensor.shape for name, tensor in stored.items()):
        return False
    files = _Files(sum(one.count * dtype_of(name).itemsize for name, one in stored.items()))
    for name, one in stored.items():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        tensor = files.tensor(one, dtype_of(name))
        if leaf in module._parameters:
            module._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
        else:
            module._buffers[leaf] = tensor.clone()
    tie: Any = getattr(model, "tie_weights", None)
    if tie is not None:
        tie()
    left = [name for name, value in model.state_dict(keep_vars=True).items() if value.is_meta]
    if left:
        logger.info("%d weights are not in the checkpoint: %s", len(left), ", ".join(left[:4]))
    return not left


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Parameters of modules that are made in the block have no memory; buffers, which are computed, have theirs."""
    register = torch.nn.Module.register_parameter

    def registered(module: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        register(module, name, param)
        if param is not None and not param.is_meta:
            module._parameters[name] = torch.nn.Parameter(param.to("meta"), requires_grad=False)

    torch.nn.Module.register_parameter = registered  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]


class _Files:
    """The files of a checkpoint as storages, and one file for what is converted."""

    def __init__(self, size: int) -> None:
        """`size` is that of all that may be converted, in bytes."""
        self._storages: dict[Path, Any] = {}
        self._most = size + _ALIGNMENT * 4096
        self._converted: Any = None
        self._end = 0

    def tensor(self, stored: StoredTensor, dtype: torch.dtype) -> torch.Tensor:
        """A view of the file, or of what was converted from it."""
        raw = self._view(stored)
        if not raw.is_floating_point() or raw.dtype == dtype:
            return raw
        target = self._room(stored, dtype)
        target.copy_(raw)
        return target

    def _view(self, stored: StoredTensor) -> torch.Tensor:
        if stored.file not in self._storages:
            size = stored.file.stat().st_size
            self._storages[stored.file] = torch.UntypedStorage.from_file(str(stored.file), shared=False, nbytes=size)
        storage = self._storages[stored.file]
        offset, rest = divmod(stored.start, stored.dtype.itemsize)
        if rest:  # not where a tensor of its dtype may begin
            raw = _view_of(storage, torch.uint8, stored.start, (stored.count * stored.dtype.itemsize,))
            return raw.clone().view(stored.dtype).reshape(stored.shape)
        return _view_of(storage, stored.dtype, offset, stored.shape)

    def _room(self, stored: StoredTensor, dtype: torch.dtype) -> torch.Tensor:
        """A tensor in a file, so that the system may write it out instead of keeping it."""
        if self._converted is None:
            # Without a name behind the block, and there as long as it is mapped.
            with tempfile.NamedTemporaryFile(prefix="exportguard-") as file:
                self._converted = torch.UntypedStorage.from_file(file.name, shared=True, nbytes=self._most)
        offset = self._end // dtype.itemsize
        size = stored.count * dtype.itemsize
        self._end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return _view_of(self._converted, dtype, offset, stored.shape)


def _view_of(storage: Any, dtype: torch.dtype, offset: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Elements of a storage from `offset` on, which counts elements."""
    tensor = torch.empty(0, dtype=dtype)
    return tensor.set_(storage, offset, shape, torch.empty(shape, device="meta").stride())


def _header(file: Path) -> dict[str, StoredTensor]:
    """The table at the beginning: its length in 8 bytes, then JSON (safetensors 0.3 and later)."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= size - 8:
                raise FileError(f"{file} is cut short, or no file of safetensors; copy it again")
            table = json.loads(stream.read(length))
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {file}: {error}") from error
    found = {}
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype = _DTYPES.get(entry["dtype"])
        if dtype is None:
            return {}  # of few bits: transformers knows what to do with them
        if 8 + length + end > size:
            raise FileError(f"{file} is cut short: {name} ends at byte {8 + length + end} of {size}; copy it again")
        found[name] = StoredTensor(file=file, dtype=dtype, shape=tuple(entry["shape"]), start=8 + length + start)
    return found
