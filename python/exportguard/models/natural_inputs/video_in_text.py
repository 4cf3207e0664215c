"""Texts with films in them, as `image_in_text` has pictures."""

from __future__ import annotations

from typing import Any

from . import image_in_text
from .image_in_text import Medium
from .tensors import Sizes

_VIDEO = Medium(
    extract="get_video_features",
    tokens=("video_token_id", "video_token_index", "image_token_id", "image_token_index"),
    kind=2,
    renamed={
        "pixel_values": "pixel_values_videos",
        "image_grid_thw": "video_grid_thw",
        "image_sizes": "image_sizes_videos",
        "target_sizes": "target_sizes_videos",
        "merge_sizes": "video_merge_sizes",
    },
    is_film=True,
)


def make_inputs(model: object, sizes: Sizes) -> dict[str, Any]:
    """`batch` texts of `seq` tokens behind `pictures` films, which are shared out among them.

    Raises:
        InvalidArgumentError: the model takes films in none of the forms known.
    """
    return image_in_text.make_inputs(model, sizes, _VIDEO)
