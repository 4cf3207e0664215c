"""What a model's own tokenizer and processor hand over besides what it runs on: the mask of padded pictures and
recordings, which of two texts a token belongs to, where on a page it stands."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ...errors import REFUSALS
from ...optional import OptionalModule
from ..checkpoint_files import file_beside, quiet_transformers
from .pixels import pictures
from .search import Calls, Search, runs, tells_apart
from .text import sentences

transformers: Any = OptionalModule("transformers")
tokenization_auto: Any = OptionalModule("transformers.models.auto.tokenization_auto")
image_processing_auto: Any = OptionalModule("transformers.models.auto.image_processing_auto")
feature_extraction_auto: Any = OptionalModule("transformers.models.auto.feature_extraction_auto")

#: Makes a tensor that goes with the other inputs of a model.
Form = Callable[[Any, Mapping[str, Any]], torch.Tensor]

#: What each token has and no list of names tells: where it stands on a page or in a tree (the tokenizer of LayoutLM is
#: that of BERT), and how a Chinese one looks and sounds.
_OF_TOKENS = ("bbox", "xpath_tags_seq", "xpath_subs_seq", "input_shape_ids", "input_pronunciation_ids")
_PAGE = 1000  # its height and width, whatever they are
_SMALL = 5  # numbers that small tables have as well
_DEPTH = 50  # of a tree


def with_what_is_handed_over(model: Any, inputs: Mapping[str, Any], names: Container[str] | None) -> dict[str, Any]:
    """The inputs, and what else (of `names`, if there are any) the tokenizer and the processor of the model make, if
    its results depend on it."""
    more = {}
    for name in _handed_over(model, inputs):
        form = _telling[name](model, _candidates(model, inputs, name)) if names is None or name in names else None
        if form is not None:
            more[name] = form(model, inputs)
    return {**inputs, **more}


def is_of_no_use(model: Any, inputs: Mapping[str, Any], name: str) -> bool:
    """Whether an argument that is not among the inputs is handed over by nothing, or changes no result."""
    if name not in _FORMS:
        return False
    if name not in _handed_over(model, inputs):
        return True
    candidates = _candidates(model, inputs, name)
    return _telling[name](model, candidates) is None and _taken[name](model, candidates) is not None


def _candidates(model: Any, inputs: Mapping[str, Any], name: str) -> Callable[[], Iterator[tuple[Form, Calls]]]:
    def calls(form: Form) -> Iterator[dict[str, Any]]:
        yield {**inputs, name: form(model, inputs)}
        yield dict(inputs)

    return lambda: ((form, calls(form)) for form in _FORMS[name])


# ------------------------------------------------------------------------------------------------ what is handed over


def _handed_over(model: Any, inputs: Mapping[str, Any]) -> list[str]:
    """The arguments that `forward` has, that the inputs do not, that are handed over, and whose form is known."""
    taken = inspect.signature(model.forward).parameters
    names = [name for name in _FORMS if name in taken and name not in inputs]
    config = getattr(model, "config", None)
    made = {*_OF_TOKENS, *_made_by_tokenizer(config), *_made_by_processors(config)} if names else set()
    return [name for name in names if name in made]


def _made_by_tokenizer(config: Any) -> list[str]:
    """All but the mask, which a text has in any case and a recording does not have from there."""
    said = _said_beside(config, "tokenizer_config.json").get("model_input_names")
    names = said or _made_by(tokenization_auto.TOKENIZER_MAPPING, config)[1]
    return [name for name in names if name != "attention_mask"]


def _made_by_processors(config: Any) -> Iterator[str]:
    yield from _made_by(image_processing_auto.IMAGE_PROCESSOR_MAPPING, config)[1]
    said = _said_beside(config, "preprocessor_config.json")
    extractor, names = _made_by(feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING, config)
    if "feature_extractor_type" in said:
        extractor, names = _with_names([getattr(transformers, said["feature_extractor_type"], None)])
    if names:
        # Models trained with zeros behind recordings are to get them without a mask, and their processors have none.
        default = inspect.signature(extractor).parameters.get("return_attention_mask")
        is_masked = said.get("return_attention_mask", True if default is None else default.default)
        yield from (name for name in names if is_masked or name != "attention_mask")


def _made_by(mapping: Any, config: Any) -> tuple[Any, Sequence[str]]:
    """The class that transformers has for a configuration, and the names of what it makes, as its alternatives do."""
    try:
        with quiet_transformers():  # it tells which of the alternatives it takes
            made = mapping.get(type(config), None)
    except (*REFUSALS, ImportError):  # it is made with a package that is not there
        return None, ()
    return _with_names(made.values() if isinstance(made, dict) else made if isinstance(made, tuple) else [made])


def _with_names(classes: Iterable[Any]) -> tuple[Any, Sequence[str]]:
    try:
        return next((one, one.model_input_names) for one in classes if hasattr(one, "model_input_names"))
    except (ImportError, StopIteration):  # one stands for what needs a package that is not there; none has names
        return None, ()


def _said_beside(config: Any, name: str) -> Mapping[str, Any]:
    """What a file beside the weights says; that it is one of fields was seen when the folder was opened."""
    path = file_beside(config, name)
    said: Mapping[str, Any] = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
    return said


# ------------------------------------------------------------------------------------------------------- their forms


def _kinds(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    return sentences(inputs["input_ids"])


def _cells(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """For each token of a table whether it is of one, its column, its row, and what else the tables are for."""
    columns = len(model.config.type_vocab_sizes)
    return _kinds(model, inputs).unsqueeze(-1).repeat_interleave(columns, -1)


def _zeros(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.zeros_like(inputs["input_ids"])


def _small(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    ids: torch.Tensor = inputs["input_ids"]
    return ids % _SMALL


def _boxes(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """The left, upper, right and lower edge of each token's box, in thousandths of the page."""
    ids: torch.Tensor = inputs["input_ids"]
    most = min(_PAGE, getattr(model.config, "max_2d_position_embeddings", _PAGE) - 1)
    left, upper = ids * 7 % (most // 2), ids * 3 % (most // 2)
    return torch.stack([left, upper, left + 1 + ids % (most // 2), upper + 1 + ids % (most // 3)], dim=-1)


def _way_to_root(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    depth = getattr(model.config, "max_depth", _DEPTH)
    return _small(model, inputs).unsqueeze(-1).repeat_interleave(depth, -1)


def _pixels(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    return pictures(model, model.config, len(inputs["input_ids"]))


def _seen_pixels(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Ones where a picture is, and zeros below the first one, which is half as high as the others."""
    pixels = inputs["pixel_values"]
    seen = torch.ones(len(pixels), *pixels.shape[-2:], dtype=torch.int64, device=pixels.device)
    seen[:1, pixels.shape[-2] // 2 :] = 0
    return seen


def _heard(axis: int, model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Ones where a recording is, and zeros behind the first one, which is two thirds as long as the others."""
    features = inputs.get("input_features")
    recording: torch.Tensor = inputs["input_values"] if features is None else features
    length = recording.shape[-1 if features is None else axis]
    heard = torch.ones(len(recording), length, dtype=torch.int64, device=recording.device)
    heard[:1, 2 * length // 3 :] = 0
    return heard


_FORMS: Mapping[str, Sequence[Form]] = {
    "token_type_ids": (_kinds, _cells, _zeros),
    "bbox": (_boxes,),
    "xpath_tags_seq": (_way_to_root,),
    "xpath_subs_seq": (_way_to_root,),
    "input_shape_ids": (_small,),
    "input_pronunciation_ids": (_small,),
    "pixel_values": (_pixels,),
    "pixel_mask": (_seen_pixels,),
    **dict.fromkeys(("attention_mask", "padding_mask"), (functools.partial(_heard, 1), functools.partial(_heard, -1))),
}
_telling: Mapping[str, Search[Form]] = {name: Search(tells_apart) for name in _FORMS}
_taken: Mapping[str, Search[Form]] = {name: Search(runs) for name in _FORMS}
