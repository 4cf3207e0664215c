"""Mixtures of experts in onnxruntime: what is exported, every expert for every token, and onnxruntime's own operator.

    python benchmarks/experts.py
    python benchmarks/experts.py --experts 8 64 --top 2 --tokens 1 128 --hidden 256 --inner 512

One layer of Qwen3's kind with random weights, as whole models have it ("standard") and written as the loop over experts
that older models have. "every expert" is the dense sum over all of them; `MoE` is the node of com.microsoft that
onnxruntime-genai's builder writes for float32. CPU time on one thread, run one after the other in each round, the
least; each form beside `MoE`, and the largest difference from eager.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from optimized_models import session_of
from sections import markdown_table
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock
from turns import milliseconds

import exportguard


def layer(experts: int, top: int, hidden: int, inner: int, way: str) -> torch.nn.Module:
    """A router and its experts, weights drawn from a fixed seed; `way` is how transformers computes them."""
    sizes = {"hidden_size": hidden, "moe_intermediate_size": inner}
    config = Qwen3MoeConfig(**sizes, num_experts=experts, num_experts_per_tok=top, norm_topk_prob=True)
    config._experts_implementation = way  # as the whole model sets it, "grouped_mm" where it is not told otherwise
    module = Qwen3MoeSparseMoeBlock(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5)
    return module


class EveryExpert(torch.nn.Module):
    """The same layer as a sum over all experts, most of them times nothing."""

    def __init__(self, chosen: torch.nn.Module, top: int) -> None:
        super().__init__()
        self.router = chosen.get_parameter("gate.weight")
        self.first = chosen.get_parameter("experts.gate_up_proj")
        self.second = chosen.get_parameter("experts.down_proj")
        self.top = top

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        share = torch.softmax(rows @ self.router.T, -1)
        best, places = share.topk(self.top, -1)
        share = torch.zeros_like(share).scatter(1, places, best / best.sum(-1, keepdim=True))
        gate, up = (rows @ self.first.transpose(1, 2)).chunk(2, -1)
        each = (torch.nn.functional.silu(gate) * up) @ self.second.transpose(1, 2)
        return (each * share.T[:, :, None]).sum(0).reshape(x.shape)


def exported(module: torch.nn.Module, hidden: int) -> onnx.ModelProto:
    """With any number of tokens."""
    model = exportguard.to_onnx(module, (torch.zeros(1, 3, hidden),), dynamic_shapes=({0: "batch", 1: "seq"},))
    return onnx.load_from_string(model.to_bytes())


def fused(module: torch.nn.Module, top: int, hidden: int) -> onnx.ModelProto:
    """onnxruntime's operator: gate and up are interleaved there."""
    first = module.get_parameter("experts.gate_up_proj").detach()
    experts, doubled, _ = first.shape
    turned = first.reshape(experts, 2, doubled // 2, hidden).transpose(1, 2).reshape(experts, doubled, hidden)
    weights = {
        "router": module.get_parameter("gate.weight").detach().T,
        "first": turned,
        "second": module.get_parameter("experts.down_proj").detach(),
        "rows": torch.tensor([-1, hidden]),
    }
    kind = {"activation_type": "swiglu", "activation_alpha": 1.0, "activation_beta": 0.0, "swiglu_fusion": 1}
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["by_row"]),
        helper.make_node("MatMul", ["by_row", "router"], ["scores"]),
        helper.make_node(
            "MoE", ["x", "scores", "first", "", "second"], ["y"], None, None, "com.microsoft",
            k=top, normalize_routing_weights=1, **kind,
        ),
    ]  # fmt: skip
    shape = ["batch", "seq", hidden]
    graph = helper.make_graph(
        nodes,
        "experts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ascontiguousarray(value.numpy()), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def times_of(sessions: dict[str, ort.InferenceSession], x: np.ndarray, rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time."""
    calls = {
        name: functools.partial(session.run, None, {session.get_inputs()[0].name: x})
        for name, session in sessions.items()
    }
    return {name: min(taken) for name, taken in milliseconds(calls, rounds).items()}


def rows(experts: int, top: int, options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """A row for each number of tokens."""
    sizes = experts, top, options.hidden, options.inner
    module = layer(*sizes, "grouped_mm")
    models = {
        "standard": exported(module, options.hidden),
        "loop": exported(layer(*sizes, "eager"), options.hidden),
        "every expert": exported(EveryExpert(module, top).eval(), options.hidden),
        "MoE": fused(module, top, options.hidden),
    }
    sessions = {name: session_of(model) for name, model in models.items()}
    for tokens in options.tokens:
        x = torch.randn(1, tokens, options.hidden, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            eager = module(x)
        expected = (eager[0] if isinstance(eager, tuple) else eager).numpy()
        answers = [session.run(None, {session.get_inputs()[0].name: x.numpy()})[0] for session in sessions.values()]
        differs = max(float(np.abs(answer - expected).max()) for answer in answers)
        least = times_of(sessions, x.numpy(), options.rounds)
        beside = (f"{taken:.3f} ({taken / least['MoE']:.2f})" for taken in least.values())
        yield str(experts), str(top), str(tokens), str(len(models["standard"].graph.node)), *beside, f"{differs:.0e}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--top", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    header = ("experts", "chosen", "tokens", "nodes", "standard", "loop", "every expert", "MoE", "differs")
    pairs = itertools.product(options.experts, options.top)
    print(markdown_table(header, [row for experts, top in pairs for row in rows(experts, top, options)]))


if __name__ == "__main__":
    main()
