"""From a model to a folder that a runtime loads: weights, configuration, tokenizer, and the proof that it runs."""

from .folder import export_model
from .outcome import ExportedFolder, FolderOptions

__all__ = ["ExportedFolder", "FolderOptions", "export_model"]
