"""The opset that is written when nobody names one: the newest that the installed onnxruntime runs right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from exportguard import opsets, to_onnx
from exportguard.opsets import MAX_OPSET, default_opset

#: What versions of onnxruntime give for a query that sees no key, and for a hidden key beside a softcap.
RELEASES = {
    "1.23": (np.nan, 1.2931817),
    "1.24 to 1.26": (2.0, 1.2931817),
    "1.27": (2.0, 1.0),
    "from 1.28 on": (0.0, 1.0),
}

Session = onnxruntime.InferenceSession


def release(blind: float, capped: float) -> Callable[..., Any]:
    """onnxruntime, whose `Attention` gives these numbers."""

    class Old(Session):
        def run(self, names: Any, feeds: Any) -> Any:
            found = super().run(names, feeds)
            return [np.full_like(value, number) for value, number in zip(found, (blind, capped), strict=True)]

    return Old


def without_attention(model: bytes, **options: Any) -> Any:
    """onnxruntime that has no kernel for it, as 1.22."""
    if b"Attention" in model:
        raise onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented("Could not find an implementation")
    return Session(model, **options)


@pytest.mark.parametrize("name", RELEASES)
def test_attention_is_written_for_those_that_compute_it_as_torch_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", release(*RELEASES[name]))
    newest = default_opset.__wrapped__()
    with_kernel = max(opset for opset in range(23, MAX_OPSET + 1) if opsets.has_attention_kernel(opset))
    assert newest == (with_kernel if name == "from 1.28 on" else 22)


def test_attention_is_written_for_those_that_have_a_kernel_for_that_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opsets, "has_attention_kernel", lambda opset: opset == 23)
    assert default_opset.__wrapped__() == 23


def test_the_attention_of_a_file_is_one_operator_in_onnxruntime(tmp_path: Path) -> None:
    class Attends(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    written = to_onnx(Attends(), (torch.zeros(1, 2, 3, 4),))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "run.onnx")
    onnxruntime.InferenceSession(written.to_bytes(), options, providers=["CPUExecutionProvider"])
    assert "Attention" in {node.op_type for node in onnx.load(tmp_path / "run.onnx").graph.node}


def test_attention_is_not_written_for_those_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", without_attention)
    assert default_opset.__wrapped__() == 22


def test_the_numbers_that_are_asked_for_are_those_of_the_installed_one() -> None:
    assert opsets._attends(MAX_OPSET)
