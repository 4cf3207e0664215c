"""Pictures of any height and width, for models that take them."""

from __future__ import annotations

from dataclasses import replace

from exportguard.errors import REFUSALS
from exportguard.models import ModelCase
from exportguard.models.input_sets import input_sets
from exportguard.models.natural_inputs.image import takes_whole_pictures
from exportguard.models.natural_inputs.pixels import configured_size, has_several_sizes, size_of_pictures
from exportguard.models.natural_inputs.search import runs

_WIDER = 32  # than high, in pixels: the stride of most models, or a multiple of it


def of_any_size(case: ModelCase) -> ModelCase | None:
    """The case with pictures whose height and width change; None if the model refuses other sizes than its own.

    One whose configuration names a size has it, unless its processor makes several: how windows and positions fit into
    others takes minutes to prove, where it holds at all.
    """
    config = getattr(case.model, "config", None)
    if config is None or case.task.inputs != "image" or not takes_whole_pictures(case.model):
        return None
    if configured_size(config) is not None and not has_several_sizes(config):
        return None
    height, width = size_of_pictures(config)
    sizes = {**case.task.sizes, "height": height, "width": width + _WIDER * (height == width)}
    sized = replace(case, task=replace(case.task, sizes=sizes))
    try:
        calls = [sized.inputs(each.sizes) for each in input_sets(sized)]
    except REFUSALS:
        return None
    return sized if runs(case.model, calls) else None
