"""What it costs in onnxruntime that NaN comes through MaxPool, in several forms of the same models.

    python benchmarks/pool_forms.py                 # a ResNet and a UNet with few channels
    python benchmarks/pool_forms.py resnet --rounds 200

Each form is the model as it is optimized with the check for NaN written in another way, run one after the other in each
round on one thread. CPU time, the least, beside the model that drops NaN; and whether NaN and
infinities come out of the pools as where they are looked for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from optimized_models import feeds_of, own_forms, session_of
from plain_models import MODELS, Case
from sections import markdown_table


class Pool:
    """A MaxPool of x, the addition behind it that keeps NaN, and where new nodes go."""

    def __init__(self, graph: onnx.GraphProto, check: onnx.NodeProto) -> None:
        self.graph, self.check = graph, check
        self.maximum = check.input[0]
        self.pool = next(node for node in graph.node if self.maximum in node.output)
        self.x = self.pool.input[0]

    def op(self, name: str, inputs: list[str], output: str = "", **attributes: object) -> str:
        """A node in front of the check; the name of its output."""
        output = output or f"{self.check.output[0]}.{name}"
        place = list(self.graph.node).index(self.check)
        self.graph.node.insert(place, helper.make_node(name, inputs, [output], **attributes))
        return output

    def constant(self, name: str, values: np.ndarray) -> str:
        """An initializer of this pool."""
        name = f"{self.check.output[0]}.{name}"
        self.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def mean(self) -> str:
        """Of each window."""
        wanted = ("kernel_shape", "strides", "pads")
        windows = {one.name: list(one.ints) for one in self.pool.attribute if one.name in wanted}
        return self.op("AveragePool", [self.x], **windows)


def checks_of(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The additions to a MaxPool."""
    pooled = {node.output[0] for node in graph.node if node.op_type == "MaxPool"}
    return [node for node in graph.node if node.op_type == "Add" and node.input[0] in pooled]


def drop(pool: Pool) -> None:
    """The maximum alone."""
    pool.op("Identity", [pool.maximum], pool.check.output[0])


def choose(pool: Pool) -> None:
    """The mean of the window where that is NaN."""
    mean = pool.mean()
    pool.op("Where", [pool.op("IsNaN", [mean]), mean, pool.maximum], pool.check.output[0])


def add_tanh(pool: Pool) -> None:
    """The maximum, and nothing times the tanh of the mean."""
    tanh = pool.op("Tanh", [pool.mean()])
    nothing = pool.op("Mul", [tanh, pool.constant("zero", np.zeros((), np.float32))])
    pool.op("Add", [pool.maximum, nothing], pool.check.output[0])


FORMS: dict[str, Callable[[Pool], None] | None] = {
    "NaN dropped": drop,
    "as written: minus the sum": None,
    "Where and the mean": choose,
    "tanh of the mean": add_tanh,
}


def written(model: onnx.ModelProto, form: Callable[[Pool], None] | None) -> onnx.ModelProto:
    """The model with every check in that form."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    if form is None:
        return model
    for check in checks_of(model.graph):
        form(Pool(model.graph, check))
        model.graph.node.remove(check)
    remove_unread(model.graph)
    return model


def remove_unread(graph: onnx.GraphProto) -> None:
    """onnxruntime runs nodes that nobody reads as well."""
    for node in reversed(list(graph.node)):
        read = {name for one in graph.node for name in one.input} | {value.name for value in graph.output}
        if not read & set(node.output):
            graph.node.remove(node)


def same_pools(case: Case, models: dict[str, onnx.ModelProto]) -> dict[str, bool]:
    """Whether each form pools as the one with a choice does where pixels are NaN or infinite, and beside them."""
    pooled = [node.output[0] for node in models["Where and the mean"].graph.node if node.op_type == "Where"]
    sessions = {}
    for name, model in models.items():
        shown = onnx.ModelProto.FromString(model.SerializeToString())
        shown.graph.output.extend(helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, None) for one in pooled)
        sessions[name] = session_of(shown)

    same = dict.fromkeys(models, True)
    for special in (np.nan, np.inf, -np.inf):
        answers = {}
        for name, session in sessions.items():
            feeds = {key: value.copy() for key, value in feeds_of(case, session).items()}
            for value in feeds.values():
                value[0, 0, 5, 9] = special
            answers[name] = session.run(pooled, feeds)
        for name, answer in answers.items():
            pairs = zip(answer, answers["Where and the mean"], strict=True)
            same[name] &= all(np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True) for a, b in pairs)
    return same


def rows(name: str, rounds: int) -> list[tuple[str, ...]]:
    """A row for each form."""
    torch.manual_seed(0)
    case = MODELS[name]()
    forms = own_forms(case)
    models = {form: written(forms["standard"], write) for form, write in FORMS.items()}
    same = same_pools(case, models)
    sessions = {form: session_of(model) for form, model in models.items()}
    feeds = {form: feeds_of(case, session) for form, session in sessions.items()}
    least = dict.fromkeys(sessions, float("inf"))
    for _ in range(rounds):
        for form, session in sessions.items():
            begin = time.process_time()
            session.run(None, feeds[form])
            least[form] = min(least[form], time.process_time() - begin)
    plain = least["NaN dropped"]
    return [
        (name, form, f"{1e3 * taken:.3f}", f"{taken / plain:.3f}", "yes" if same[form] else "no")
        for form, taken in least.items()
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet", "unet"])
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    table = [row for name in arguments.models for row in rows(name, arguments.rounds)]
    print(markdown_table(("model", "form", "least ms", "beside NaN dropped", "NaN kept"), table))


if __name__ == "__main__":
    main()
