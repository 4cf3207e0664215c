"""What a file with one input is at sizes that its model takes or refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from exportguard import OnnxModel


def answer(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor | None:
    """None if the model refuses it."""
    try:
        return model(x)  # type: ignore[no-any-return]
    except (AssertionError, ValueError):
        return None


def verdicts(model: torch.nn.Module, file: OnnxModel, sizes: Iterable[Sequence[int]]) -> Counter[str]:
    """At how many sizes of `x` the file is right, wrong, answers where the model refuses, or stops; or both stop."""
    found: Counter[str] = Counter()
    for shape in sizes:
        x = torch.randn(*shape)
        expected = answer(model, x)
        try:
            (got,) = file.run({"x": x}).values()
        except RuntimeError:
            found["both stop" if expected is None else "stops"] += 1
            continue
        is_right = expected is not None and got.shape == expected.shape and torch.allclose(got, expected, atol=1e-5)
        found["right" if is_right else "answers" if expected is None else "wrong"] += 1
    return found
