"""The evaluator against eager, on the CPU: BERT-base and a deep Llama, untrained.

python benchmarks/evaluator_speed.py                   # both
python benchmarks/evaluator_speed.py --only bert       # or llama
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

import exportguard
from exportguard.inputs import flatten_named
from exportguard.runners.evaluator import EvaluatorSession

ROUNDS = 8


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    """The sizes of bert-base, 128 tokens."""
    model = transformers.BertModel(transformers.BertConfig()).eval()
    return model, {
        "input_ids": torch.randint(0, 30522, (1, 128)),
        "attention_mask": torch.ones(1, 128, dtype=torch.long),
    }


def llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    """64 layers of small matrices, where the time goes into the calls."""
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 256, (1, 16))}


MODELS: Mapping[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {"bert": bert, "llama": llama}


def measure(name: str) -> None:
    """Runs both in turn and prints the least times of each."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    onnx_model = exportguard.to_onnx(model, kwargs=inputs)
    session = EvaluatorSession(onnx_model._core)
    feeds = dict(zip(session.input_names, [leaf.value for leaf in flatten_named(inputs)], strict=True))
    times: dict[str, list[float]] = {"eager": [], "evaluator": []}
    with torch.no_grad():
        expected = model(**inputs)[0]
        torch.testing.assert_close(session.run(feeds)[0], expected, rtol=1e-3, atol=1e-4)
        for _ in range(ROUNDS):
            times["eager"].append(_seconds(lambda: model(**inputs)))
            times["evaluator"].append(_seconds(lambda: session.run(feeds)))
    eager, evaluator = min(times["eager"]), min(times["evaluator"])
    print(f"{name}: {onnx_model.node_count} nodes, eager {1e3 * eager:.1f} ms, evaluator {1e3 * evaluator:.1f} ms, ")
    print(f"  {evaluator / eager:.2f} of eager's CPU time")


def _seconds(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS, default=None)
    options = parser.parse_args()
    for name in [options.only] if options.only else MODELS:
        measure(name)


if __name__ == "__main__":
    main()
