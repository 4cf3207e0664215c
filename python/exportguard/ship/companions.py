"""What stands beside the files: the configuration, and what turns texts, pictures and sounds into inputs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from exportguard.models import ModelCase
from exportguard.optional import OptionalModule

transformers: Any = OptionalModule("transformers")
logger = logging.getLogger(__name__)


def write_companions(source: str, case: ModelCase, staging: Path) -> None:
    """Writes those that the source has; a module of the user's own has none."""
    model: Any = case.model
    if not hasattr(model, "config"):
        return
    model.config.save_pretrained(staging)
    if model.can_generate():
        model.generation_config.save_pretrained(staging)
    if not Path(source).is_dir() and "/" not in source:
        return  # an architecture: untrained, without words
    for loader in (transformers.AutoProcessor, transformers.AutoTokenizer):
        try:
            loader.from_pretrained(source, trust_remote_code=False).save_pretrained(staging)
        except (OSError, ValueError, KeyError, ImportError) as error:
            logger.info("%s has no %s: %s", source, loader.__name__, error)
            continue
        return
    logger.warning("%s has no tokenizer or processor that can be loaded; the folder is without", source)
