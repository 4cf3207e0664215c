"""Inputs for a model that comes without: of the types it declares, at sizes that are asked for or different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .. import _core
from ..arguments import require_count, require_named
from ..errors import InvalidArgumentError
from ..onnx_model import OnnxModel, ValueInfo

_DTYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
_SIZES = (2, 3, 5, 7, 4, 6, 8, 9)  # of the axes that have none, each another one


def random_inputs(model: OnnxModel, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, torch.Tensor]:
    """One tensor for each input: floats of a normal distribution, integers 0 and 1, which any table has rows for.

    `sizes` are those of the axes by name.

    Raises:
        InvalidArgumentError: `sizes` has a name that no axis has, or an input is of unknown rank or element type, or
            too large for the memory.
    """
    known = _all_sizes(model.inputs, sizes or {})
    generator = torch.Generator().manual_seed(seed)
    return {value.name: _random(value, known, generator) for value in model.inputs}


def _all_sizes(inputs: Sequence[ValueInfo], given: Mapping[str, int]) -> dict[str, int]:
    names = dict.fromkeys(
        name for value in inputs for size in value.shape or () if isinstance(size, str) for name in _core.symbols(size)
    )
    require_named("sizes", given)
    for name, size in given.items():
        require_count(f"sizes[{name!r}]", size, at_least=0)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InvalidArgumentError(f"no axis is called {', '.join(unknown)}; there are {', '.join(names) or 'none'}")
    free = iter(_SIZES * (1 + len(names) // len(_SIZES)))
    return {name: given[name] if name in given else next(free) for name in names}


def _random(value: ValueInfo, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
    if value.shape is None or value.dtype not in _DTYPES:
        raise InvalidArgumentError(f"input {value.name} is of unknown rank or element type; pass inputs")
    shape = [size if isinstance(size, int) else _size(size, sizes, value) for size in value.shape]
    dtype = _DTYPES[value.dtype]
    try:
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        if dtype == torch.bool:
            return torch.ones(shape, dtype=dtype)
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    except RuntimeError as error:  # what torch raises where it gets no memory, or no number of bytes
        raise InvalidArgumentError(f"input {value.name} of shape {shape} cannot be made; give smaller sizes") from error


def _size(expression: str, sizes: Mapping[str, int], value: ValueInfo) -> int:
    size = _core.evaluate_size(expression, dict(sizes))
    if size is None or size < 0:
        raise InvalidArgumentError(f"the size {expression} of input {value.name} is not known at {dict(sizes)}")
    return size
