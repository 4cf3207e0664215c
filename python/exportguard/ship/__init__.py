"""From a model to a folder that a runtime loads: weights, configuration, tokenizer, and the proof that it runs."""

from .folder import ExportedFolder, FolderOptions, export_model

__all__ = ["ExportedFolder", "FolderOptions", "export_model"]
