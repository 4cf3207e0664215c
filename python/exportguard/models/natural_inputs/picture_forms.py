"""The forms in which models take pictures: which arguments say how they were cut, and what those look like."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from .pixels import pictures
from .tensors import source_of, values

Form = dict[str, torch.Tensor]
_KERNELS = (torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)
_COLUMNS = 2  # of blocks of patches that a model merges; how many rows is a size of the inputs
_MERGES = ("spatial_merge_size", "merge_size", "spatial_patch_merge_size")
_PAIRS_OF_MERGES = ("merge_kernel_size", "insert_layer_merge")


def forms(model: object, names: Collection[str], rows: Sequence[int]) -> Iterator[Form]:
    """What pictures of so many `rows` each may look like for a model with these arguments; the likely first."""
    for name, form in _FORMS.items():
        if name in names:
            yield from form(model, name, rows)


def _grids(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """Patches of all pictures behind each other, flat or not, and how many each has: frames, rows, columns."""
    merge = merge_size(model)
    dimensions = 3 if name.endswith("thw") else 2
    sides = [[1, merge * count, merge * _COLUMNS][-dimensions:] for count in rows]
    grid = torch.tensor(sides, device=source_of(model).device)
    merges = torch.full((len(rows),), merge, device=grid.device)
    kernel = _patch_kernel(model)
    patches = sum(merge * count * merge * _COLUMNS for count in rows)
    for shape in ((patches, kernel.numel()), (patches, *kernel.shape)):
        yield {"pixel_values": values(model, shape), name: grid, "image_merge_sizes": merges, "merge_sizes": merges}


def _positions(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """Flat patches and the column and row of each; as many as are pooled into one, in each direction."""
    pool = int(_field(model, ("pooling_kernel_size",)) or 1)
    width = _patch_kernel(model).numel()
    height, columns = pool * max(rows), pool * _COLUMNS
    places = torch.cartesian_prod(torch.arange(columns), torch.arange(height)).expand(len(rows), -1, -1)
    device = source_of(model).device
    yield {"pixel_values": values(model, (len(rows), height * columns, width)).sigmoid(), name: places.to(device)}


def _shapes(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """Flat patches, how many there are in each direction, and which of them count."""
    merge = merge_size(model)
    width = merge * _COLUMNS
    device = source_of(model).device
    shapes = torch.tensor([[merge * count, width] for count in rows], device=device)
    longest = merge * max(rows) * width
    counted = torch.arange(longest, device=device) < shapes.prod(-1, keepdim=True)
    yield {
        "pixel_values": values(model, (len(rows), longest, _patch_kernel(model).numel())),
        name: shapes,
        "pixel_attention_mask": counted.to(torch.int64),
    }


def _strips(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """All patches of all pictures side by side as one picture that is one patch high."""
    kernel = _patch_kernel(model)
    sides = torch.tensor([[4 * count, 4 * _COLUMNS] for count in rows])
    pixels = values(model, (1, *kernel.shape[:-1], int(sides.prod(-1).sum()) * kernel.shape[-1]))
    yield {"pixel_values": pixels, name: sides.to(pixels.device)}


def _sizes(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """Pictures with their heights and widths, the lower ones filled up to the height of the highest.

    Or each, less wide than its tiles, behind one tile of the whole.
    """
    patch = merge_size(model) * _patch_kernel(model).shape[-1]
    count, width = len(rows), patch * _COLUMNS
    device = source_of(model).device
    whole = pictures(model, model.config, count)
    sides = torch.tensor([[patch * height, width] for height in rows], device=device)
    yield {"pixel_values": values(model, (count, 3, patch * max(rows), width)), name: sides}
    tiles = values(model, (count, 1 + _COLUMNS, *whole.shape[1:]))
    narrow = max(_COLUMNS * whole.shape[-1] - max(rows) * _patch_kernel(model).shape[-1], 1)
    yield {"pixel_values": tiles, name: _rows(count, whole.shape[-2], narrow).to(device)}


def _rows(count: int, *sides: int) -> torch.Tensor:
    return torch.tensor([sides] * count)


def _tiles(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """A picture for each text in as many tiles as there may be, and the number of the ratio of its sides."""
    count, vision = len(rows), model.config.vision_config
    single = pictures(model, model.config, count)
    tiles = int(vision.max_num_tiles)
    device = single.device
    yield {
        "pixel_values": values(model, (count, 1, tiles, *single.shape[1:])),
        name: torch.ones(count, 1, dtype=torch.int64, device=device),
        "aspect_ratio_mask": torch.ones(count, 1, tiles, dtype=torch.int64, device=device),
    }


def _several(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """One picture for each text, in a list of them; with a mask of the list where it is asked for."""
    count = len(rows)
    single = pictures(model, model.config, count)
    yield {"pixel_values": single.unsqueeze(1)}
    mask = torch.ones(count, 1, dtype=torch.int64, device=single.device)
    yield {"pixel_values": single, name: mask}
    yield {"pixel_values": single.unsqueeze(1), name: mask.bool()}


def _flat(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """Patches behind their row and column."""
    width = _patch_kernel(model).numel()
    places = torch.cartesian_prod(torch.arange(1, max(rows) + 1), torch.arange(1, _COLUMNS + 1)).to(
        source_of(model).dtype
    )
    patches = values(model, (len(rows), len(places), width))
    form = {name: torch.cat([places.to(patches.device).expand(len(rows), -1, -1), patches], dim=-1)}
    if model.main_input_name == name:  # the mask is that of the patches
        form["attention_mask"] = torch.ones(patches.shape[:2], dtype=torch.int64, device=patches.device)
    yield form


def _plain(model: Any, name: str, rows: Sequence[int]) -> Iterator[Form]:
    """Pictures of the configured size, in two resolutions if the model sees both; or all patches of each."""
    count, finer = len(rows), getattr(model.config, "high_res_vision_config", model.config)
    yield {name: pictures(model, model.config, count), "high_res_pixel_values": pictures(model, finer, count)}
    yield {name: values(model, (count, max(rows) * _COLUMNS, _patch_kernel(model).numel()))}


#: The arguments that tell the form, the more particular ones first.
_FORMS: dict[str, Callable[[Any, str, Sequence[int]], Iterator[Form]]] = {
    "image_grid_thw": _grids,
    "image_grid_hw": _grids,
    "grid_thw": _grids,
    "grid_hw": _grids,
    "image_position_ids": _positions,
    "pixel_position_ids": _positions,
    "spatial_shapes": _shapes,
    "target_sizes": _strips,
    "image_sizes": _sizes,
    "aspect_ratio_ids": _tiles,
    "pixel_attention_mask": _several,
    "image_attention_mask": _several,
    "flattened_patches": _flat,
    "pixel_values": _plain,
}


def merge_size(model: object) -> int:
    """How many patches in each direction a model makes one token of."""
    single = _field(model, _MERGES)
    pair = _field(model, _PAIRS_OF_MERGES)
    factor = single or (pair[0] if isinstance(pair, (list, tuple)) else None)
    return int(factor or _field(model, ("downsample_factor",)) or 2)


def _field(model: Any, names: tuple[str, ...]) -> Any:
    parts = (getattr(model.config, "vision_config", None), model.config)
    found = (getattr(part, name, None) for name in names for part in parts)
    return next((value for value in found if value is not None), None)


def _patch_kernel(model: torch.nn.Module) -> torch.Tensor:
    """The weight that one patch is multiplied with, for one channel of the result."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _KERNELS)]
    of_patches = [module for word in ("patch", "vision") for name, module in layers if word in name]
    return (of_patches or [module for _, module in layers])[0].weight[0]
