"""Folders of sentence-transformers: a model, and the layers behind it that `modules.json` lists.

`modules.json` has a list of `{"name", "path", "type"}`; the first is the model, each of the others lies in a folder of
its own with a `config.json` and, if it has some, weights (sentence-transformers 6.2, and folders of 0.3 and later).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from ..errors import FileError, InvalidArgumentError
from ..optional import OptionalModule
from .sentence_layers import POOLINGS, Dense, Layer, LayerNorm, Normalize, Pooling, SentenceModel, require_fitting

safetensors_torch: Any = OptionalModule("safetensors.torch")
hub: Any = OptionalModule("transformers.utils.hub")
hub_errors: Any = OptionalModule("huggingface_hub.errors")

LISTED, _SETTINGS, _PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
#: What it was called before it was one for all.
_OLDER_SETTINGS = ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_OWN_MODULE = "write a module that does the rest, and export path/file.py:function"

#: Architectures of which the encoder alone gives the tokens, with its class.
_ENCODERS = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
    "switch_transformers": "SwitchTransformersEncoderModel",
}
#: Those that sentence-transformers loads the encoder of in ways of its own.
_OTHER_ENCODERS = (
    "udop", "prophetnet", "blenderbot", "blenderbot-small", "m2m_100", "pegasus", "pegasus_x", "moonshine", "whisper",
    "marian", "t5gemma", "t5gemma2", "t5gemma2_text",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """What stands behind the model at `place` (a folder, or a hub id); `files` are those that were read, by the name
    that they have in a folder whose model lies at its top. `longest` is the number of tokens that a text is cut to.
    """

    place: str
    layers: Mapping[str, Layer]
    files: Mapping[str, Path] = field(default_factory=dict)
    longest: int | None = None
    lowers: bool = False

    def behind(self, model: torch.nn.Module) -> SentenceModel:
        """The model with the layers, in its dtype."""
        like = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
        whole = SentenceModel(model, self.layers)
        for layer in self.layers.values():
            layer.to(device=like.device, dtype=like.dtype)
        return whole.eval()


def listed_modules(source: str) -> list[str]:
    """The classes that `modules.json` lists; [] where there is none."""
    path = _Source(source).file(LISTED)
    return [entry["type"] for entry in _entries(path)] if path is not None else []


def sentences_of(source: str) -> Sentences | None:
    """What a folder or a hub id has of sentence-transformers; None where it is a model alone.

    Raises:
        FileError: a file cannot be read, or weights are missing.
        InvalidArgumentError: a module is listed that is not known here, or does what a file cannot be told of.
    """
    files = _Source(source)
    path = files.file(LISTED)
    if path is None:
        return None
    first, *others = _entries(path)
    if not others:
        return None
    _require_known(source, [first, *others])
    top = first["path"]
    if top and not Path(source).is_dir():
        raise InvalidArgumentError(f"{source} has its model in {top}; download it, and pass the folder")
    settings = _settings(files, top)
    made = {
        f"{place}_{_class(entry)}": _LAYERS[_class(entry)](files.within(entry["path"]))
        for place, entry in enumerate(others, 1)
    }
    layers = {name: layer for name, layer in made.items() if layer is not None}
    require_fitting(layers)
    return Sentences(
        place=str(Path(source) / top) if top else source,
        layers=layers,
        files=dict(files.copied(top)),
        longest=settings.get("max_seq_length"),
        lowers=bool(settings.get("do_lower_case")),
    )


def encoder_class(config: Any) -> str | None:
    """The class of transformers of which the encoder is, where a model has a decoder, too; None for any other.

    Raises:
        InvalidArgumentError: its encoder cannot be loaded alone.
    """
    if config.model_type in _OTHER_ENCODERS:
        raise InvalidArgumentError(
            f"sentence-transformers takes the encoder of a {config.model_type} alone, which is not loaded here; "
            "write a function that returns it with its pooling, and export path/file.py:function"
        )
    return _ENCODERS.get(config.model_type)


# ------------------------------------------------------------------------------------------------------- the files


class _Source:
    """The files of a folder or a hub id, and which of them were asked for."""

    def __init__(self, source: str, path: str = "", found: dict[str, Path] | None = None) -> None:
        self.source, self.path = source, path
        self._found: dict[str, Path] = {} if found is None else found

    def within(self, path: str) -> _Source:
        """Those of a module."""
        return _Source(self.source, path, self._found)

    def file(self, name: str) -> Path | None:
        """One of them; None where it is not there."""
        inner = f"{self.path}/{name}" if self.path else name
        folder = Path(self.source)
        if folder.is_dir():
            path = folder / inner
            found = path if path.is_file() else None
        else:
            found = _downloaded(self.source, inner)
        if found is not None:
            self._found[inner] = found
        return found

    def config(self) -> dict[str, Any]:
        """The fields of `config.json`; {} without one, or where that is the model's."""
        path = self.file("config.json") if self.path else None
        return _fields(path) if path is not None else {}

    def load(self, layer: torch.nn.Module) -> None:
        """Gives a layer its weights."""
        path = next((path for name in _WEIGHTS if (path := self.file(name)) is not None), None)
        if path is None:
            raise FileError(f"{self.source}/{self.path} has no weights ({' or '.join(_WEIGHTS)}); copy it again")
        try:
            is_safe = path.suffix == ".safetensors"
            weights = safetensors_torch.load_file(path) if is_safe else torch.load(path, weights_only=True)
            layer.load_state_dict(weights)
        except Exception as error:  # of readers of formats, which have no common base
            raise FileError(
                f"the weights in {path} are not those that its config.json tells of: {str(error).partition(chr(10))[0]}"
            ) from error

    def copied(self, top: str) -> Iterator[tuple[str, Path]]:
        """What was read, by the name that it has beside the model."""
        self.file(_PROMPTS)
        for name, path in self._found.items():
            yield name.removeprefix(f"{top}/") if top else name, path


def _downloaded(source: str, name: str) -> Path | None:
    """A file of a hub id; None where it is not there, or no such hub id, which is told where its model is loaded.

    Raises:
        FileError: the hub does not answer.
    """
    try:
        found = hub.cached_file(source, name, _raise_exceptions_for_missing_entries=False)
    except OSError as error:
        if isinstance(error.__cause__, (hub_errors.RepositoryNotFoundError, hub_errors.HFValidationError)):
            return None
        raise FileError(f"cannot read {name} of {source}: {str(error).partition(chr(10))[0]}; try again") from error
    return Path(found) if found else None


def _entries(path: Path) -> list[dict[str, str]]:
    """The modules that are listed, each with its type and path.

    Raises:
        FileError: it is no such list.
    """
    content = _json(path)
    try:
        entries = [{"path": str(entry.get("path") or ""), "type": str(entry["type"])} for entry in content]
    except (AttributeError, KeyError, TypeError) as error:
        raise FileError(f"cannot read {path}: it is no list of modules, each with its type; copy it again") from error
    for entry in entries:
        inner = PurePosixPath(entry["path"])
        if inner.is_absolute() or ".." in inner.parts or "\\" in entry["path"]:
            raise FileError(f"{path} leads out of its folder ({entry['path']}); copy it again")
    if not entries:
        raise FileError(f"cannot read {path}: it lists no module; copy it again")
    return entries


def _fields(path: Path) -> dict[str, Any]:
    content = _json(path)
    if not isinstance(content, dict):
        raise FileError(f"cannot read {path}: it holds a {type(content).__name__} and no fields; copy it again")
    return content


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {error}; copy it again") from error


# ------------------------------------------------------------------------------------------------------ the modules


def _class(entry: Mapping[str, str]) -> str:
    return entry["type"].rpartition(".")[2]


def _require_known(source: str, entries: Sequence[Mapping[str, str]]) -> None:
    known = [{"Transformer"}, *[_LAYERS.keys()] * (len(entries) - 1)]
    others = [
        entry["type"]
        for entry, names in zip(entries, known, strict=True)
        if not entry["type"].startswith("sentence_transformers.") or _class(entry) not in names
    ]
    if others:
        raise InvalidArgumentError(
            f"{source}/{LISTED} lists {', '.join(others)}, which is not known here (known are Transformer, and behind "
            f"it {', '.join(_LAYERS)}); {_OWN_MODULE}, or take {LISTED} out for what the model returns for each token"
        )


def _settings(files: _Source, top: str) -> dict[str, Any]:
    """How texts become tokens, and what is taken of the model.

    Raises:
        InvalidArgumentError: another thing than its last hidden state, for each token of a text.
    """
    names = (_SETTINGS, *(f"sentence_{kind}_config.json" for kind in _OLDER_SETTINGS))
    path = next((path for name in names if (path := files.within(top).file(name)) is not None), None)
    settings = _fields(path) if path is not None else {}
    usual = {"method": "forward", "method_output_name": "last_hidden_state"}
    asked = {
        "transformer_task": (settings.get("transformer_task", "feature-extraction"), "feature-extraction"),
        "module_output_name": (settings.get("module_output_name", "token_embeddings"), "token_embeddings"),
        "modality_config": (settings.get("modality_config", {"text": usual}).get("text"), usual),
    }
    for name, (given, wanted) in asked.items():
        if given != wanted:
            raise InvalidArgumentError(f"{path} asks for {name} {given!r}, which is not known here; {_OWN_MODULE}")
    for name in ("model_args", "model_kwargs", "config_args", "config_kwargs"):
        if set(settings.get(name) or ()) - {"trust_remote_code"}:
            raise InvalidArgumentError(
                f"{path} loads the model with {name} {settings[name]}, which is not known here; {_OWN_MODULE}"
            )
    return settings


def _pooling(files: _Source) -> Layer:
    widths = ("embedding_dimension", "word_embedding_dimension")
    config = _known(files, (*widths, "pooling_mode", "include_prompt", *POOLINGS.values()))
    if not any(name in config for name in widths):
        raise FileError(f"{files.source}/{files.path} has no config.json of a pooling; copy it again")
    if not config.get("include_prompt", True):
        raise InvalidArgumentError(
            f"{files.source}/{files.path} leaves the tokens of a prompt out of the pooling (include_prompt), and a "
            "file is not told which they are; set it to true in config.json if texts come without a prompt"
        )
    told = config.get("pooling_mode")
    if told is None:
        told = [way for way, field_name in POOLINGS.items() if config.get(field_name)] or ["mean"]
    ways = [told] if isinstance(told, str) else list(told)
    others = [str(way) for way in ways if way not in POOLINGS]
    if others or not ways:
        raise InvalidArgumentError(
            f"{files.source}/{files.path} pools by {', '.join(others) or 'nothing'}, which is not known here (known "
            f"are {', '.join(POOLINGS)}); {_OWN_MODULE}"
        )
    return Pooling(ways)


def _dense(files: _Source) -> Layer:
    fields = ("in_features", "out_features", "bias", "activation_function", "use_residual")
    layer = _made(Dense, files, (*fields, "module_input_name", "module_output_name"))
    files.load(layer)
    return layer


def _normalize(files: _Source) -> Layer:
    return _made(Normalize, files, ("module_input_name", "module_output_name"))


def _layer_norm(files: _Source) -> Layer:
    layer = _made(LayerNorm, files, ("dimension",))
    files.load(layer)
    return layer


def _made(owner: Callable[[Mapping[str, Any]], Layer], files: _Source, fields: Sequence[str]) -> Layer:
    config = _known(files, fields)
    try:
        return owner(config)
    except (KeyError, TypeError, RuntimeError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise FileError(
            f"{files.source}/{files.path}/config.json has not what a layer is made of: {error}; copy it again"
        ) from error


def _nothing(files: _Source) -> None:
    """What is left out of a model in evaluation mode."""
    files.config()


def _known(files: _Source, fields: Sequence[str]) -> dict[str, Any]:
    """The fields of a module; one that is not known here may change what it computes."""
    config = files.config()
    others = sorted(set(config) - set(fields))
    if others:
        raise InvalidArgumentError(
            f"{files.source}/{files.path}/config.json has {', '.join(others)}, which is not known here; {_OWN_MODULE}"
        )
    return config


_LAYERS: dict[str, Callable[[_Source], Layer | None]] = {
    "Pooling": _pooling,
    "Dense": _dense,
    "Normalize": _normalize,
    "LayerNorm": _layer_norm,
    "Dropout": _nothing,
}
