"""Writes models that no exporter writes into a folder, for `hostile_files` of a build with sanitizers.

Damaged models, nodes with random inputs and attributes, and models that are hostile by design, from the generators that
the tests run without sanitizers.

    python tests/python/hostile_files.py FOLDER --rounds 20 --seed 1
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch

import exportguard
from fault_models import FAMILIES
from hostile_graphs import damaged
from hostile_nodes import operators, random_model
from hostile_seeds import SEEDS


def models(rounds: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """A name and the bytes of each."""
    torch.manual_seed(seed)
    for family, make in FAMILIES.items():
        module, args, shapes = make(1)
        right = onnx.load_from_string(exportguard.to_onnx(module, args, dynamic_shapes=shapes, opset=23).to_bytes())
        for number in range(10 * rounds):
            yield f"damaged_{family}_{number}", damaged(right, random.Random(f"{seed} {family} {number}"))
    for operator in operators():
        for number in range(rounds):
            draw = random.Random(f"{seed} {operator.domain} {operator.name} {number}")
            yield (
                f"node_{operator.domain}_{operator.name}_{number}",
                _with_constants(draw, *random_model(draw, operator)),
            )
    for make_seed in SEEDS:
        for number in range(rounds):
            model = make_seed(random.Random(f"{seed} {make_seed.__name__} {number}"))
            yield f"seed_{make_seed.__name__}_{number}", model.SerializeToString()


def _with_constants(draw: random.Random, model: bytes, inputs: dict[str, torch.Tensor]) -> bytes:
    """Some of the inputs as constants, which are folded, others declared with their sizes."""
    proto = onnx.load_from_string(model)
    for declared in list(proto.graph.input):
        tensor = inputs[declared.name]
        kind = declared.type.tensor_type.elem_type
        if draw.random() < 0.6:
            bits = tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
            raw = bits.numpy().tobytes() if tensor.numel() else b""
            proto.graph.initializer.append(
                onnx.TensorProto(name=declared.name, data_type=kind, dims=list(tensor.shape), raw_data=raw)
            )
            proto.graph.input.remove(declared)
        else:
            declared.CopyFrom(onnx.helper.make_tensor_value_info(declared.name, kind, list(tensor.shape)))
    return proto.SerializeToString()


def main() -> None:
    """Writes the files, and what their external data reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5, help="models of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "data").write_bytes(bytes(64))
    count = 0
    for name, data in models(options.rounds, options.seed):
        (options.folder / f"{name}.onnx").write_bytes(data)
        count += 1
    print(f"{count} files")


if __name__ == "__main__":
    main()
