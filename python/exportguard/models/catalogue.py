"""Models by name: shipped as data, a model type of transformers, a local folder, or a hub id."""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import pickle
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..arguments import require_count, require_kind, require_names, wrong
from ..devices import require_device
from ..errors import REFUSALS, ExportGuardError, FileError, InvalidArgumentError
from ..optional import OptionalModule
from ..version import installed_version
from . import mapped
from .checkpoint_files import (
    quiet_transformers,
    require_no_file,
    require_reachable,
    require_whole_download,
    require_whole_texts,
    unfinished_files,
)
from .kinds import shrunk_with_every_kind
from .natural_inputs.handed_over import with_what_is_handed_over
from .natural_inputs.search import runs
from .sentences import Sentences, encoder_class, sentences_of
from .shrink import shallow, small_fields
from .sources import defines
from .tables import Architecture, Task, architectures, exceptions, tasks
from .untrained import make_visible
from .wide_modules import is_kept, keep_wide, narrow, wide_modules

if TYPE_CHECKING:
    import transformers
else:
    transformers = OptionalModule("transformers")

modeling_auto: Any = OptionalModule("transformers.models.auto.modeling_auto")
configuration_auto: Any = OptionalModule("transformers.models.auto.configuration_auto")
logger = logging.getLogger(__name__)

#: The dtypes of weights, by name.
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}

_TOKENS = "feature-extraction"
_PICTURES_AND_TEXTS = "image-text-to-text"
_OWN_CODE = (
    "code that comes with a checkpoint is not run here: load the model in Python with trust_remote_code=True, and pass "
    "path/file.py:function that returns it"
)
_LETTERS = 32  # that a recording is spelled with
_MOST_PARAMETERS = 200_000_000  # of a model that is as wide as its default; some 0.8 GiB


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How a model is built. Without `task` it is the one that the architecture is mostly used for.

    Modules whose names fit one of `keep_float32` ("lm_head", "*.norm") stay in float32 where `dtype` is narrower.
    Inputs and outputs of what is made of the model are float32 if they fit one of `float32_io` ("logits").
    """

    task: str | None = None
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    seed: int = 0
    keep_float32: Sequence[str] = ()
    float32_io: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuses what is none of these, by its name.

        Raises:
            InvalidArgumentError: with what it must be.
        """
        if self.task is not None:
            _task(self.task)
        if not isinstance(self.dtype, torch.dtype) or not self.dtype.is_floating_point:
            raise wrong("dtype", self.dtype, "a torch.dtype of floating-point numbers")
        require_kind("device", self.device, str, 'the name of one, such as "cpu"')
        require_count("seed", self.seed)
        for name in ("keep_float32", "float32_io"):
            require_names(name, getattr(self, name))
            if getattr(self, name) and self.dtype not in (torch.float16, torch.bfloat16):
                raise InvalidArgumentError(
                    f"{name} is for models of half precision, and dtype is {str(self.dtype).removeprefix('torch.')}; "
                    "leave it out"
                )


@dataclass(frozen=True, kw_only=True)
class ModelCase:
    """A model in evaluation mode and the task that gives its inputs.

    Of what its tokenizer and its processor hand over besides, the inputs have all that changes its results, or what is
    among `handed_over`. A model that generates has what its generation loop hands over.
    """

    name: str
    model: torch.nn.Module
    task: Task
    handed_over: Container[str] | None = None

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Fresh keyword arguments of `model.forward`; the same sizes give equal ones."""
        family = importlib.import_module(f"{__package__}.natural_inputs.{self.task.inputs}")
        inputs: dict[str, Any] = family.make_inputs(self.model, sizes)
        return inputs if self.task.cached else with_what_is_handed_over(self.model, inputs, self.handed_over)


@dataclass(frozen=True, kw_only=True)
class SentenceCase(ModelCase):
    """A `SentenceModel`, and what it was made of."""

    sentences: Sentences


def build_model(name: str, options: BuildOptions = BuildOptions()) -> ModelCase:
    """The model called `name`, small and untrained unless it is a folder or a hub id with weights.

    Raises:
        InvalidArgumentError: no such model, no such task, or a task that the model has no class for.
    """
    if not name.strip():
        raise InvalidArgumentError("the name of a model is empty; pass a folder, a hub id or an architecture")
    require_device(options.device)
    require_reachable(name)
    require_no_file(name)
    if Path(name).is_dir():
        _require_shown(name)
        return _from_checkpoint(name, options)
    if name.startswith((".", "~", "/")):
        raise InvalidArgumentError(
            f"there is no folder {name}; pass one with a model in it, a hub id or an architecture"
        )
    shipped = architectures().get(name)
    if shipped and (options.task in (None, shipped.task) or name not in configuration_auto.CONFIG_MAPPING_NAMES):
        return build_architecture(shipped, options)
    if name in configuration_auto.CONFIG_MAPPING_NAMES:
        return build_architecture(Architecture(name=name, task=_usual_task(name), model_type=name), options)
    if "/" in name:
        return _from_checkpoint(name, options)
    raise InvalidArgumentError(_unknown_model(name))


def _require_shown(name: str) -> None:
    """What an export of `llama` wrote may be called so, too."""
    is_known = name in architectures() or name in configuration_auto.CONFIG_MAPPING_NAMES
    if is_known and not _has_weights(Path(name)) and not unfinished_files(Path(name)):
        raise InvalidArgumentError(
            f"{name} is a folder here, without weights (no *.safetensors and no *.bin), and hides the architecture of "
            "that name; pass a folder with a model in it, or call from elsewhere"
        )


def model_names() -> list[str]:
    """Every name that works offline: those shipped as data, then the model types of transformers."""
    return [
        *architectures(),
        *(name for name in configuration_auto.CONFIG_MAPPING_NAMES if name not in architectures()),
    ]


def models_of_task(task: str) -> list[str]:
    """The model types that transformers has a class for."""
    asked = _task(task)
    return [model_type for model_type in getattr(modeling_auto, asked.mapping, ()) if _classes(asked, model_type)]


def tasks_of(model_type: str) -> Iterator[str]:
    """The tasks that transformers has a class for, the more particular ones first."""
    return (task.name for task in tasks().values() if _classes(task, model_type))


def _usual_task(model_type: str) -> str:
    task = next(tasks_of(model_type), None)
    if task is None:
        raise InvalidArgumentError(
            f"{model_type} has no class for any known task ({', '.join(tasks())}); validate a module of your own with "
            "exportguard.validate_module"
        )
    return task


def build_architecture(architecture: Architecture, options: BuildOptions = BuildOptions()) -> ModelCase:
    """The small model of an architecture, with its own changes of the configuration on top.

    Raises:
        InvalidArgumentError: no such task, or one that the model has no class for.
        Exception: whatever the configuration or the model raise for those changes.
    """
    task = _task(options.task or architecture.task)
    config = configuration_auto.CONFIG_MAPPING[architecture.model_type]()
    own = {**architecture.config, **_task_fields(config, task)}
    changes = {**exceptions().get(architecture.model_type, {}), **own}
    build = functools.partial(_case, architecture.name, task, options=options)
    return _first_that_runs(build, lambda: shrunk_with_every_kind(config, changes), lambda: shallow(config, own))


def _first_that_runs(
    build: Callable[[transformers.PretrainedConfig], ModelCase], *configs: Callable[[], transformers.PretrainedConfig]
) -> ModelCase:
    """The first one, unless only a later one, which may be larger, can be built and runs.

    Raises:
        Exception: none can be built, and the first one for this reason.
    """
    small, *larger = configs
    try:
        case = build(small())
        if _runs(case):
            return case
    except InvalidArgumentError:
        raise
    except REFUSALS:
        found = _running(build, larger)
        if found is None:
            raise
        return found
    return _running(build, larger) or case


def _running(
    build: Callable[[transformers.PretrainedConfig], ModelCase],
    configs: Iterable[Callable[[], transformers.PretrainedConfig]],
) -> ModelCase | None:
    for make in configs:
        try:
            config = make()
            case = build(config) if _parameter_count(config) <= _MOST_PARAMETERS else None
        except REFUSALS:
            continue
        if case is not None and _runs(case):
            return case
    return None


def _parameter_count(config: transformers.PretrainedConfig) -> int:
    """Of the model without a head, which is made without memory."""
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _runs(case: ModelCase) -> bool:
    return runs(case.model, (case.inputs(sizes) for sizes in [case.task.sizes]))


def _task_fields(config: transformers.PretrainedConfig, task: Task) -> dict[str, Any]:
    """What a task needs the configuration to say."""
    if task.cached and getattr(config, "is_decoder", None) is False and not config.is_encoder_decoder:
        return {"is_decoder": True}  # an encoder used as a language model keeps no cache otherwise
    if task.name == "text-classification" and getattr(config, "pad_token_id", 0) is None:
        return {"pad_token_id": 0}  # without one a decoder does not find the last token of each text
    if task.name == "ctc" and getattr(config, "vocab_size", 0) is None:
        return {"vocab_size": _LETTERS}
    if task.name == "semantic-segmentation":
        return _four_layers_given_out(config)
    return _parts_for_pictures(config) if task.inputs in ("image_in_text", "video_in_text") else {}


def _four_layers_given_out(config: transformers.PretrainedConfig) -> dict[str, Any]:
    """What a segmentation head needs behind layers of one resolution, where the default gives out the last one alone.

    A pyramid is made of four of them.
    """
    depth, given = getattr(config, "num_hidden_layers", None), getattr(config, "out_indices", None)
    if not isinstance(depth, int) or given != [depth]:
        return {}
    return {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "out_features": None}


def _parts_for_pictures(config: transformers.PretrainedConfig) -> dict[str, Any]:
    """The part that sees pictures where the default configuration of a model leaves it out."""
    part = type(config).sub_configs.get("vision_config")
    if part is None or getattr(config, "vision_config", part) is not None:
        return {}
    return {"vision_config": small_fields(part(), vocabulary=1)}


def _case(name: str, task: Task, config: transformers.PretrainedConfig, options: BuildOptions) -> ModelCase:
    torch.manual_seed(options.seed)
    classes = _classes(task, config.model_type)
    if len(classes) > 1:  # transformers takes the one that the checkpoint was saved from
        config.architectures = config.architectures or [classes[0]]
    try:
        model = getattr(transformers, task.auto_class).from_config(config)
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise  # there is a class, which does not want to be built like that
        raise _no_class(name, task, config) from error
    if not task.cached:
        _keep_no_cache(model.config)
    make_visible(model, options.seed)
    return ModelCase(name=name, model=_in_dtype(model.to(options.device), options), task=task)


def _in_dtype(model: Any, options: BuildOptions) -> Any:
    if options.keep_float32:
        narrow(model, options.dtype, options.keep_float32)
        return model.eval()
    return model.to(options.dtype).eval()


def _no_class(name: str, task: Task, config: transformers.PretrainedConfig) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} cannot do {task.name}: {task.auto_class} has no class for {config.model_type}; its tasks are "
        f"{', '.join(tasks_of(config.model_type)) or 'none of those known'}"
    )


def _keep_no_cache(config: transformers.PretrainedConfig) -> None:
    """A model that sees a whole text at once has nothing to continue from."""
    for part in (config, config.get_text_config()):
        if hasattr(part, "use_cache"):
            part.use_cache = False


def _from_checkpoint(name: str, options: BuildOptions) -> ModelCase:
    """A folder or a hub id with its weights, as the class that they were saved from unless a task asks for another."""
    if not Path(name).is_dir():
        _checkpoint_config(name)  # before anything else is asked of a hub that may not know it
    behind = sentences_of(name) if options.task in (None, _TOKENS) else None
    place = behind.place if behind is not None else name
    if Path(place).is_dir():
        require_whole_download(Path(place))
        require_whole_texts(Path(place))
    config = _checkpoint_config(place)
    if Path(place).is_dir() and not _has_weights(Path(place)):
        unfinished = unfinished_files(Path(place))
        if unfinished:
            raise InvalidArgumentError(
                f"{place} has no weights yet: the download of {', '.join(unfinished)} is not finished"
            )
        raise InvalidArgumentError(
            f"{place} has no weights (no *.safetensors and no *.bin); pass {config.model_type}, the name of its "
            "architecture, for a small untrained model"
        )
    if behind is not None:
        return _sentence_case(name, behind, config, options)
    task, model_class = class_of_checkpoint(name, config, options.task)
    return ModelCase(name=name, model=_weighted(name, config, model_class, options), task=task)


def _sentence_case(
    name: str, behind: Sentences, config: transformers.PretrainedConfig, options: BuildOptions
) -> ModelCase:
    """A model with what sentence-transformers puts behind it, whose modules may stay wide as those of the model may."""
    task = _task(_TOKENS)
    model_class = getattr(transformers, encoder_class(config) or task.auto_class)
    plain = BuildOptions(device=options.device) if options.keep_float32 else options
    model = behind.behind(_weighted(behind.place, config, model_class, plain))
    if options.keep_float32:
        model = _in_dtype(model, options)
    return SentenceCase(name=name, model=model, task=replace(task, inputs="sentence"), sentences=behind)


def _weighted(name: str, config: transformers.PretrainedConfig, model_class: Any, options: BuildOptions) -> Any:
    large = _mapped_checkpoint(Path(name), config, model_class, options)
    if large is not None:
        return large
    # transformers keeps some modules of some models in float32 by itself.
    model, info = _loaded(name, model_class, torch.float32 if options.keep_float32 else options.dtype, config)
    _require_all_weights(name, model, info)
    model = model.to(options.device).eval()
    return _in_dtype(model, options) if options.keep_float32 else model


def _quantized_by(config: Any) -> str:
    told = config.quantization_config
    method = told.get("quant_method") if isinstance(told, Mapping) else getattr(told, "quant_method", None)
    return str(getattr(method, "value", method))


def _loaded(
    name: str, model_class: Any, dtype: torch.dtype, config: transformers.PretrainedConfig
) -> tuple[Any, Mapping[str, Any]]:
    """The model, and what transformers tells of its weights.

    Raises:
        FileError: files are missing, cut short, or do not go together; transformers has no error of its own for that.
    """
    try:
        # Weights of other shapes are told of, as those that are missing are, and not by an error without their names.
        with quiet_transformers():
            loaded: tuple[Any, Mapping[str, Any]] = model_class.from_pretrained(
                name, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, trust_remote_code=False
            )
    except Exception as error:  # of readers of many formats, which have no common base
        if isinstance(error, ExportGuardError):
            raise
        reason = str(error).strip().partition("\n")[0]
        if getattr(config, "quantization_config", None):
            raise FileError(
                f"the weights in {name} are quantized ({_quantized_by(config)}), and are not loaded here: {reason}; "
                "pass the checkpoint that they were made from, and --quantize for a file in few bits"
            ) from error
        if isinstance(error, pickle.UnpicklingError):  # whose own remedy is to run whatever is in the file
            raise FileError(
                f"{model_class.__name__} cannot be loaded from {name}: a *.bin file in it is cut short, or holds other "
                "things than weights, which are not run here; copy it again, or have it saved as safetensors"
            ) from error
        raise FileError(
            f"{model_class.__name__} cannot be loaded from {name}: {type(error).__name__}: {reason}; compare the files "
            "with those that save_pretrained wrote"
        ) from error
    return loaded


def _mapped_checkpoint(
    folder: Path, config: transformers.PretrainedConfig, model_class: Any, options: BuildOptions
) -> torch.nn.Module | None:
    """A large model whose weights stay on disk; None where transformers is to load it, which knows more checkpoints."""
    stored = mapped.stored_tensors(folder) if folder.is_dir() else {}
    size = sum(tensor.count for tensor in stored.values()) * options.dtype.itemsize
    if size < mapped.MAPPED_FROM or options.device != "cpu" or getattr(config, "quantization_config", None):
        return None
    build = getattr(model_class, "from_config", None) or model_class._from_config
    with mapped.parameters_on_meta():
        model: Any = build(config, dtype=options.dtype)
    if options.dtype != torch.float32 and getattr(model, "_keep_in_fp32_modules", None):
        return None
    kept = wide_modules(model, options.keep_float32)
    if not mapped.mapped_model(model, stored, lambda name: torch.float32 if is_kept(name, kept) else options.dtype):
        return None
    keep_wide(kept, options.dtype)
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    return model.eval()  # type: ignore[no-any-return]


def _checkpoint_config(name: str) -> transformers.PretrainedConfig:
    try:
        # Never asked for on a terminal: code of a stranger runs when its user says so in Python, or not at all.
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # of classes that check their fields each in a way of its own
        if isinstance(error, ModuleNotFoundError):
            raise
        reason = " ".join(str(error).partition("\n\n")[0].split()).rstrip(" .") or type(error).__name__
        if Path(name).is_dir():
            remedy = _remedy_for_folder(Path(name), reason)
            raise InvalidArgumentError(
                f"the configuration in the folder {name} cannot be read: {reason}; {remedy}"
            ) from error
        raise InvalidArgumentError(f"{_unknown_model(name)} ({reason})") from error


def _remedy_for_folder(folder: Path, reason: str) -> str:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        return (
            "it is an adapter: merge it into its model with peft's merge_and_unload, and pass the folder that "
            "save_pretrained writes then"
        )
    if "custom code" in reason:
        return _OWN_CODE
    return "pass a folder with the config.json that transformers saved beside the weights"


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))


def class_of_checkpoint(name: str, config: transformers.PretrainedConfig, asked: str | None) -> tuple[Task, Any]:
    """The task, and what loads the weights: the class in `architectures` decides, known to a task or not."""
    named = config.architectures
    first = named if isinstance(named, str) else next(iter(named if isinstance(named, (list, tuple)) else ()), None)
    saved_from = first if isinstance(first, str) else None
    if saved_from is not None and getattr(config, "auto_map", None) and not hasattr(transformers, saved_from):
        raise InvalidArgumentError(f"{name} was saved from {saved_from}, a class of the checkpoint's own: {_OWN_CODE}")
    if asked is not None:
        task = _task(asked)
        if getattr(modeling_auto, task.mapping, None) and not _classes(task, config.model_type):
            raise _no_class(name, task, config)
        return task, getattr(transformers, task.auto_class)
    if saved_from is None:
        raise InvalidArgumentError(
            f"{name} does not say from which class it was saved (architectures in config.json); pass a task of "
            f"{', '.join(tasks_of(config.model_type))}"
        )
    found = [task for task in tasks().values() if saved_from in _classes(task, config.model_type)]
    if not hasattr(transformers, saved_from):
        raise InvalidArgumentError(
            f"{name} was saved from {saved_from}, which transformers {installed_version('transformers')} does not "
            "have; install the version that config.json names, or pass a task"
        )
    owner = getattr(transformers, saved_from)
    if not (isinstance(owner, type) and issubclass(owner, transformers.PreTrainedModel)):
        raise InvalidArgumentError(
            f"{name} was saved from {saved_from}, as its config.json says, which is no class of models; pass a task of "
            f"{', '.join(tasks_of(config.model_type))}"
        )
    # A class of texts with pictures is one of texts alone, too, and a file for these has no input for the others.
    first_found = next((task for task in found if task.name == _PICTURES_AND_TEXTS), next(iter(found), None))
    return first_found or replace(_task(_TOKENS), name=saved_from), owner


def _classes(task: Task, model_type: str) -> tuple[str, ...]:
    """Of the heads that transformers has for a task, those of a model type; not every version has every mapping."""
    found = getattr(modeling_auto, task.mapping, {}).get(model_type, ())
    folder = configuration_auto.model_type_to_module_name(model_type)
    if task.method and not defines(f"transformers.models.{folder}.modeling_{folder}", task.method):
        return ()
    return (found,) if isinstance(found, str) else tuple(found)


def _require_all_weights(name: str, model: object, info: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError where weights would be random; those that nobody takes are logged."""
    missing = sorted(info.get("missing_keys", ()))
    mismatched = sorted(map(_other_shape, info.get("mismatched_keys", ())))
    if missing or mismatched:
        lists = [
            f"{len(keys)} {what} ({', '.join(keys[:4])}{', …' if len(keys) > 4 else ''})"
            for what, keys in (("are missing", missing), ("have other shapes", mismatched))
            if keys
        ]
        raise InvalidArgumentError(
            f"the weights in {name} are not those of {type(model).__name__}: {' and '.join(lists)}, and would be "
            "random; leave out the task, or pass the one that the weights were saved for"
        )
    unexpected = sorted(info.get("unexpected_keys", ()))
    if unexpected:
        logger.warning(
            "%s has %d weights that %s does not take: %s",
            name,
            len(unexpected),
            type(model).__name__,
            ", ".join(unexpected[:4]),
        )


def _other_shape(entry: object) -> str:
    """Of a weight and, as transformers tells them, its shapes in the file and in the model.

    >>> _other_shape(("lm_head.weight", [16, 8], [32, 8]))
    'lm_head.weight: [16, 8] and not [32, 8]'
    """
    if not isinstance(entry, tuple):
        return str(entry)
    name, *shapes = entry
    return f"{name}: {' and not '.join(str(list(shape)) for shape in shapes)}" if shapes else str(name)


def _task(name: str) -> Task:
    if name not in tasks():
        raise InvalidArgumentError(f"unknown task {name!r}; known are {', '.join(tasks())}")
    return tasks()[name]


def _unknown_model(name: str) -> str:
    close = _of_class(name) or difflib.get_close_matches(name, model_names(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return (
        f"unknown model {name!r}: it is no local folder, no architecture known here, and no hub id that can be "
        f"reached; {hint}`exportguard models` lists the names that work offline"
    )


def _of_class(name: str) -> list[str]:
    """The architecture that a class of transformers is one of: people pass LlamaForCausalLM, too."""
    found = [
        (not name.lower().startswith(model_type.replace("_", "")), f"{model_type} (-t {task.name})")
        for task in tasks().values()
        for model_type in models_of_task(task.name)
        if name in _classes(task, model_type)  # some take the class of another one
    ]
    return [words for _, words in sorted(found)[:1]]
