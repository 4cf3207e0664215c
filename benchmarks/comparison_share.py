"""What comparing the outputs costs of a whole validation: model by model, as a sweep does them, in CPU seconds.

Fails where it is 5 % or more of all together.

    python benchmarks/comparison_share.py
    python benchmarks/comparison_share.py --models llama bert --dtype bfloat16 --runner evaluator
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from exportguard.models import BuildOptions
from exportguard.validation import comparison as steps
from exportguard.validation.validate import ValidateOptions, validate_model

MODELS = ("llama", "bert", "t5", "vit", "whisper", "mamba", "resnet")
MOST = 0.05


class Stopwatch:
    """Adds up the CPU seconds of a function's calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begin = time.process_time()
        result = self.function(*args, **kwargs)
        self.seconds += time.process_time() - begin
        return result


def main() -> int:
    """Prints a line for each model and one for all; 1 if the share is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--runner", default="onnxruntime", choices=["onnxruntime", "evaluator"])
    options = parser.parse_args()
    build = BuildOptions(dtype=getattr(torch, options.dtype))
    all_compared = all_seconds = 0.0
    for name in options.models:
        watch = Stopwatch(steps.compare_outputs)
        begin = time.process_time()
        with patch.object(steps, "compare_outputs", watch):
            report = validate_model(name, ValidateOptions(build=build, runner=options.runner))
        seconds = time.process_time() - begin
        all_compared += watch.seconds
        all_seconds += seconds
        state = "agrees" if report.ok else f"does not agree {report.failure}"
        share = f"{watch.seconds:.3f} s of {seconds:.1f} s ({watch.seconds / seconds:.2%})"
        print(f"{name}: {state}; comparing takes {share}", flush=True)
    share = all_compared / all_seconds
    print(f"all: comparing takes {all_compared:.2f} s of {all_seconds:.1f} s ({share:.2%})")
    return 1 if share >= MOST else 0


if __name__ == "__main__":
    sys.exit(main())
