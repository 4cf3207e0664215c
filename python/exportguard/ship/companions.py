"""What stands beside the files: the configuration, and what turns texts, pictures and sounds into inputs."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from exportguard.errors import REFUSALS, FileError
from exportguard.models import ModelCase
from exportguard.models.catalogue import SentenceCase
from exportguard.models.sentences import LISTED, Sentences, listed_modules
from exportguard.optional import OptionalModule

from .staging import DISK_ERRORS

transformers: Any = OptionalModule("transformers")
normalizers: Any = OptionalModule("tokenizers.normalizers")
logger = logging.getLogger(__name__)

#: The parts of a processor, one of which may be there alone.
_PARTS = ("AutoTokenizer", "AutoFeatureExtractor", "AutoImageProcessor")


def write_companions(source: str, case: ModelCase, staging: Path) -> None:
    """Writes those that the source has; a module of the user's own has none, whatever it calls its configuration."""
    model: Any = case.model
    sentences = case.sentences if isinstance(case, SentenceCase) else None
    if sentences is not None:
        model, source = model.model, sentences.place
        _write_modules(sentences, staging)
    if not _is_of_transformers(model):
        return
    model.config.save_pretrained(staging)
    if model.can_generate():
        model.generation_config.save_pretrained(staging)
    if not Path(source).is_dir() and "/" not in source:
        return  # an architecture: untrained, without words
    if sentences is None:
        _tell_further_modules(source)
    if _has_written("AutoProcessor", source, staging, sentences):
        return
    if not [part for part in _PARTS if _has_written(part, source, staging, sentences)]:
        logger.warning("%s has no tokenizer or processor that can be loaded; the folder is without", source)


def _is_of_transformers(model: object) -> bool:
    """Told by what is asked of it here, so that transformers need not be there."""
    config = getattr(model, "config", None)
    return hasattr(config, "save_pretrained") and hasattr(model, "can_generate")


def _write_modules(sentences: Sentences, staging: Path) -> None:
    """What sentence-transformers reads beside the model, which lies at the top of the folder."""
    for name, path in sentences.files.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, staging / name)
    listed = json.loads((staging / LISTED).read_text(encoding="utf-8"))
    listed[0]["path"] = ""
    (staging / LISTED).write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def _tell_further_modules(source: str) -> None:
    """A head of another task has nothing of what sentence-transformers puts behind the model."""
    try:
        further = listed_modules(source)[1:]
    except FileError as error:
        logger.warning("%s", error)
        return
    if further:
        logger.warning(
            "%s/%s lists %s behind the model, which are for sentences: the file gives what the model returns, without "
            "them; leave the task out for them",
            source,
            LISTED,
            ", ".join(further),
        )


def _has_written(loader: str, source: str, staging: Path, sentences: Sentences | None) -> bool:
    """Loads and saves one; a file that is missing is found out by each class in a way of its own."""
    try:
        loaded = getattr(transformers, loader).from_pretrained(source, trust_remote_code=False)
        if sentences is not None:
            _fit(getattr(loaded, "tokenizer", loaded), sentences)
        loaded.save_pretrained(staging)
    except (*REFUSALS, OSError, ImportError) as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise
        logger.info("%s has no %s: %s", source, loader, error)
        return False
    return True


def _fit(tokenizer: Any, sentences: Sentences) -> None:
    """Cuts and lowers texts as sentence-transformers does, which keeps that beside the tokenizer."""
    if sentences.longest is not None:
        tokenizer.model_max_length = sentences.longest
    if not sentences.lowers:
        return
    words = getattr(tokenizer, "backend_tokenizer", None)
    if words is None:
        logger.warning("texts are to be in small letters (do_lower_case), which this tokenizer is not told")
        return
    before = [words.normalizer] if words.normalizer is not None else []
    words.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])
