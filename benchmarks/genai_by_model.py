"""Exports every model type for text generation for onnxruntime-genai and tells what the runtime makes of it.

Each is small and untrained; "ok" means that onnxruntime-genai generated the tokens that transformers generates, and
that onnxruntime gave its logits at every step of a batch of two texts of different lengths.

    python benchmarks/genai_by_model.py            # needs onnxruntime-genai
    python benchmarks/genai_by_model.py llama gpt2
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

from exportguard.models import BuildOptions, models_of_task
from exportguard.ship import FolderOptions, export_model

TASK = "text-generation"
OPTIONS = FolderOptions(runtime="genai", build=BuildOptions(task=TASK))


def outcome(name: str) -> tuple[str, str]:
    """A word for the table, and what is to be said beside it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = export_model(name, Path(folder) / "out", OPTIONS)
        except Exception as error:  # of the model, of torch or of the runtime: each is a result
            return type(error).__name__, str(error).replace("\n", " ")[:200]
    return ("ok" if result.runtime_agrees else "not run"), f"{result.node_count} nodes"


def main() -> None:
    counted: collections.Counter[str] = collections.Counter()
    for name in sys.argv[1:] or models_of_task(TASK):
        word, text = outcome(name)
        counted[word] += 1
        print(f"{name:28} {word:24} {text}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counted.most_common()))


if __name__ == "__main__":
    main()
