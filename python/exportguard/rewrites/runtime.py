"""What rewritten code calls: each function decides at trace time whether a test depends on tensor data.

A test on a Python value stays the Python test it was. A test on tensor data becomes `torch.ops.higher_order.cond` while
a program is being exported, and a plain `bool(...)` in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exportguard.rewrites.arithmetic import (
    bit_length,
    divmod_,
    isqrt_,
    joined_shape,
    math_,
    method_of_number,
    numel,
    round_,
    without_meaning,
)
from exportguard.rewrites.choices import entry_or
from exportguard.rewrites.collected import plain
from exportguard.rewrites.conditional import came_to_its_end, check, if_, ifexp
from exportguard.rewrites.endless import count_, cycle_, repeat_
from exportguard.rewrites.functional import (
    accumulate_,
    apart,
    chain_,
    combinations_,
    concatenated,
    dropwhile_,
    enumerate_,
    filter_,
    filterfalse_,
    islice_,
    iter_,
    later,
    list_of,
    map_,
    next_,
    pairwise_,
    parts,
    parts_backwards,
    product_,
    reduce_,
    repeated,
    starmap_,
    takewhile_,
    tuple_of,
    unzip_,
    zip_,
    zip_longest_,
)
from exportguard.rewrites.gathering import (
    all_,
    any_,
    as_tensor,
    comprehension,
    grow,
    kept_parts,
    lazily,
    list_,
    max_,
    min_,
    new_tensor,
    nones,
    sort_,
    sorted_,
    sum_,
    tensor,
    typed_tensor,
)
from exportguard.rewrites.iteration import div, len_, range_, reversed_, tolist, unbind
from exportguard.rewrites.joining import pad_sequence
from exportguard.rewrites.logic import and_, and_value, bool_, compare, float_, int_, item, known, not_, or_, or_value
from exportguard.rewrites.looking_up import index_, member, occurrences, remove_
from exportguard.rewrites.nothing import NOTHING
from exportguard.rewrites.optionals import apart_from_none, asked, dropped, given, held, is_none, perhaps, stored, sure
from exportguard.rewrites.python_types import (
    attribute_at,
    class_of,
    elements_between,
    has_attributes,
    has_keys,
    is_,
    is_instance,
    is_not,
    is_one,
    is_other,
    is_sequence,
    of_python,
    type_,
    without_keys,
)
from exportguard.rewrites.runtime_loops import for_, while_
from exportguard.rewrites.runtime_stores import filled_ones, get_item, is_none_at, is_none_in, set_item, update_item
from exportguard.rewrites.size_keys import uncached
from exportguard.rewrites.state import UNDEFINED
from exportguard.rewrites.streams import generated
from exportguard.rewrites.texts import filled_, format_, joined_, percent_, repr_, sought_, str_


def value(read: Callable[[], Any]) -> Any:
    """The value of a local variable, or UNDEFINED."""
    try:
        return read()
    except NameError:
        return UNDEFINED


__all__ = [
    "NOTHING", "UNDEFINED", "accumulate_", "all_", "and_", "and_value", "any_", "apart", "apart_from_none",
    "as_tensor", "asked", "attribute_at", "bit_length", "bool_", "came_to_its_end", "chain_", "check", "class_of",
    "combinations_", "compare", "comprehension", "concatenated", "count_", "cycle_", "div", "divmod_", "dropped",
    "dropwhile_", "elements_between", "entry_or", "enumerate_", "filled_", "filled_ones", "filter_", "filterfalse_",
    "float_", "for_", "format_", "generated", "get_item", "given", "grow", "has_attributes", "has_keys", "held",
    "if_", "ifexp", "index_", "int_", "is_", "is_instance", "is_none", "is_none_at", "is_none_in", "is_not",
    "is_one", "is_other", "is_sequence", "islice_", "isqrt_", "item", "iter_", "joined_", "joined_shape",
    "kept_parts", "known", "later", "lazily", "len_", "list_", "list_of", "map_", "math_", "max_", "member",
    "method_of_number", "min_", "new_tensor", "next_", "nones", "not_", "numel", "occurrences", "of_python", "or_",
    "or_value", "pad_sequence", "pairwise_", "parts", "parts_backwards", "percent_", "perhaps", "plain", "product_",
    "range_", "reduce_", "remove_", "repeat_", "repeated", "repr_", "reversed_", "round_", "set_item", "sort_",
    "sorted_", "sought_", "starmap_", "stored", "str_", "sum_", "sure", "takewhile_", "tensor", "tolist",
    "tuple_of", "type_", "typed_tensor", "unbind", "uncached", "unzip_", "update_item", "value", "while_",
    "without_keys", "without_meaning", "zip_", "zip_longest_",
]  # fmt: skip
