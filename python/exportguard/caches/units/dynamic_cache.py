"""`DynamicCache` and its subclasses."""

from exportguard.caches.cache import cache_serializer
from exportguard.caches.subclasses import serializer_patch

PATCHES = (
    serializer_patch(
        "transformers.cache_utils.DynamicCache",
        cache_serializer(),
        "torch.export must see the tensors of the cache as inputs and outputs",
        upstream="https://github.com/huggingface/transformers/pull/47900",
    ),
)
