"""Tensors in files of the form safetensors: every dtype comes back, and what is no whole file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import exportguard
from exportguard.validation.tensor_files import load_tensors, save_tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_tensors_come_back_from_their_file(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "x": torch.arange(6).reshape(2, 3).to(dtype),
        "none": torch.empty(0, 2, dtype=dtype),
        "one": torch.ones((), dtype=dtype),
    }
    save_tensors(tensors, tmp_path / "x.safetensors")
    again = load_tensors(tmp_path / "x.safetensors")
    found = {name: (value.dtype, value.shape) for name, value in again.items()}
    assert found == {name: (value.dtype, value.shape) for name, value in tensors.items()}
    assert all(torch.equal(again[name].float(), value.float()) for name, value in tensors.items())


@pytest.mark.parametrize("data", [b"", b"\x08\0\0\0\0\0\0\0{}", b"\xff" * 32, b'\x10\0\0\0\0\0\0\0{"x":{"dtype":1}}'])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(exportguard.FileError, match="no whole safetensors file"):
        load_tensors(tmp_path / "x.safetensors")
