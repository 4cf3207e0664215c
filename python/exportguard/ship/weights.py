"""The weights of a written file while it is changed: read where they lie, written one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy

from exportguard.optional import OptionalModule

onnx: Any = OptionalModule("onnx")
numpy_helper: Any = OptionalModule("onnx.numpy_helper")

Array = Any  # numpy.ndarray, whose element types are found at run time

_LEAST_EXTERNAL = 1024  # bytes of a tensor that lies beside the file
_EXTERNAL_FROM = 1 << 20  # bytes of all weights from which on any does
_PAGE, _WORD = 4096, 64


class Weights(Protocol):
    """Where numbers are read from and go to."""

    def array(self, tensor: object) -> Array:
        """The numbers of an initializer, which is not to be changed."""

    def tensor(self, name: str, kind: int, dims: tuple[int, ...], data: Array) -> Any:
        """An initializer of that element type with these bytes."""


class WeightsInMemory:
    """Of a model whose tensors hold their numbers themselves."""

    def array(self, tensor: object) -> Array:
        return numpy_helper.to_array(tensor)

    def tensor(self, name: str, kind: int, dims: tuple[int, ...], data: Array) -> Any:
        return onnx.helper.make_tensor(name, kind, dims, data.tobytes(), raw=True)


class WeightsOnDisk:
    """Of a model that was loaded without its external data; no more than one tensor is in memory.

    New tensors go to a data file of their own, which takes the place of the first one when `finish` is called.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._data = file.with_name(f"{file.name}.data")
        self._next = file.with_name(f"{file.name}.data.next")
        self._stream = self._next.open("wb")
        self._new: set[int] = set()

    def array(self, tensor: Any) -> Array:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        return self._bytes_of(tensor).view(dtype).reshape(tuple(tensor.dims))

    def tensor(self, name: str, kind: int, dims: tuple[int, ...], data: Array) -> Any:
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=dims)
        self._write(tensor, data)
        return tensor

    def finish(self, model: Any) -> None:
        """Takes over what the model still has of the first data file, and writes the model.

        A model without large weights holds them itself, and has no file beside it.
        """
        for tensor in tensors_of(model.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL and self._location(tensor) != self._next.name:
                self._write(tensor, self._bytes_of(tensor))
        size = self._stream.tell()
        self._stream.close()
        for tensor in tensors_of(model.graph):
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            if size <= _EXTERNAL_FROM:
                tensor.raw_data = self._bytes_of(tensor, self._next).tobytes()
                del tensor.external_data[:]
                tensor.data_location = onnx.TensorProto.DEFAULT
            else:
                entries_of(tensor)["location"].value = self._data.name
        onnx.save(model, str(self._file))
        if size <= _EXTERNAL_FROM:
            self._next.unlink()
            self._data.unlink(missing_ok=True)
        else:
            self._next.replace(self._data)

    def _write(self, tensor: Any, data: Array) -> None:
        raw = numpy.ascontiguousarray(data).reshape(-1).view(numpy.uint8)
        if raw.size < _LEAST_EXTERNAL:
            tensor.raw_data = raw.tobytes()
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            return
        step = _PAGE if raw.size >= _PAGE else _WORD
        self._stream.write(bytes(-self._stream.tell() % step))
        place = {"location": self._next.name, "offset": self._stream.tell(), "length": raw.size}
        self._stream.write(raw.data)
        del tensor.external_data[:]
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        tensor.data_location = onnx.TensorProto.EXTERNAL

    def _location(self, tensor: object) -> str:
        name: str = entries_of(tensor)["location"].value
        return name

    def _bytes_of(self, tensor: object, file: Path | None = None) -> Array:
        entries = {name: entry.value for name, entry in entries_of(tensor).items()}
        source = file or self._file.with_name(entries["location"])
        return numpy.memmap(source, numpy.uint8, "r", int(entries.get("offset", 0)), (int(entries["length"]),))


def tensor_bytes(tensor: Any) -> int:
    """The size of the numbers of an initializer, wherever they are."""
    count: int = math.prod(tensor.dims)
    if tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4):
        return math.ceil(count / 2)
    size: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return count * size


def graphs_of(attribute: Any) -> list[Any]:
    """The graphs that an attribute of a node holds."""
    return [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


def tensors_of(graph: Any) -> Iterator[Any]:
    """Every initializer, those of graphs inside of others too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                yield from tensors_of(inner)


def entries_of(tensor: Any) -> dict[str, Any]:
    """Where the numbers of an initializer lie, by key; {} for one that holds them."""
    return {entry.key: entry for entry in tensor.external_data}
