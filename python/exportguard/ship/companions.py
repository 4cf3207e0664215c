"""What stands beside the files: the configuration, and what turns texts, pictures and sounds into inputs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from exportguard.errors import REFUSALS
from exportguard.models import ModelCase
from exportguard.optional import OptionalModule

from .staging import DISK_ERRORS

transformers: Any = OptionalModule("transformers")
logger = logging.getLogger(__name__)

#: The parts of a processor, one of which may be there alone.
_PARTS = ("AutoTokenizer", "AutoFeatureExtractor", "AutoImageProcessor")


def write_companions(source: str, case: ModelCase, staging: Path) -> None:
    """Writes those that the source has; a module of the user's own has none, whatever it calls its configuration."""
    model: Any = case.model
    if not _is_of_transformers(model):
        return
    model.config.save_pretrained(staging)
    if model.can_generate():
        model.generation_config.save_pretrained(staging)
    if not Path(source).is_dir() and "/" not in source:
        return  # an architecture: untrained, without words
    _tell_further_modules(Path(source))
    if _has_written("AutoProcessor", source, staging):
        return
    if not [part for part in _PARTS if _has_written(part, source, staging)]:
        logger.warning("%s has no tokenizer or processor that can be loaded; the folder is without", source)


def _is_of_transformers(model: object) -> bool:
    """Told by what is asked of it here, so that transformers need not be there."""
    config = getattr(model, "config", None)
    return hasattr(config, "save_pretrained") and hasattr(model, "can_generate")


def _tell_further_modules(source: Path) -> None:
    """What sentence-transformers puts behind the model, as its `modules.json` says, is no part of it."""
    listed = source / "modules.json"
    try:
        modules = [str(module["type"]) for module in json.loads(listed.read_text())] if listed.is_file() else []
    except (ValueError, TypeError, KeyError, OSError) as error:
        logger.warning("%s cannot be read: %s", listed, error)
        return
    further = [module for module in modules if not module.endswith(".Transformer")]
    if further:
        logger.warning(
            "%s lists %s behind the model: the files give what the model returns for each token, without them; write a "
            "module that does the rest, and export path/file.py:function",
            listed,
            ", ".join(further),
        )


def _has_written(loader: str, source: str, staging: Path) -> bool:
    """Loads and saves one; a file that is missing is found out by each class in a way of its own."""
    try:
        getattr(transformers, loader).from_pretrained(source, trust_remote_code=False).save_pretrained(staging)
    except (*REFUSALS, OSError, ImportError) as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise
        logger.info("%s has no %s: %s", source, loader, error)
        return False
    return True
