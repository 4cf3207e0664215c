"""Builds an ONNX model by hand, with a Loop and a local function, and runs it in onnxruntime.

The model finds the largest eigenvalue of each symmetric matrix of a batch by power iteration: a vector is multiplied by
the matrix again and again, and its length is divided out each time.
"""

from __future__ import annotations

import onnxruntime
import torch

from exportguard import GraphBuilder, OnnxModel


def build(opset: int = 20) -> OnnxModel:
    g = GraphBuilder(opset)
    matrix = g.input("matrix", "f32", ["batch", "n", "n"])
    steps = g.input("steps", "i64", [])

    # A local function: its inputs have no types, a call gives them.
    with g.function("example", "Normalized") as f:
        vector = f.input("vector")
        norm = f.op.ReduceL2(vector, [1], keepdims=1)
        f.output(f.op.Div(vector, norm))
        f.output(norm)

    # The start: ones, one vector for each matrix.
    sizes = g.op.Shape(matrix, start=0, end=2)
    start = g.op.ConstantOfShape(g.op.Concat(sizes, [1], axis=0), value=torch.ones(1))
    print(f"start: {start.dtype} {start.shape}")  # f32 ['batch', 'n', 1]

    # The body of the loop reads the matrix around it.
    with g.subgraph("step") as body:
        body.input("i", "i64", [])
        goes_on = body.input("goes_on", "bool", [])
        vector = body.input("vector", start.dtype, start.shape)
        direction, norm = body.domain("example").Normalized(body.op.MatMul(matrix, vector))
        body.output(body.op.Identity(goes_on))
        body.output(direction)
        body.output(norm)

    _, norms = g.op.Loop(steps, True, start, body=body)
    print(f"norms: {norms.dtype} {norms.shape}")  # the first size is the number of steps
    last = g.op.Gather(norms, -1, axis=0)
    g.output(g.op.Squeeze(last, [1, 2]), "largest")
    return g.to_model()


def main() -> None:
    model = build()
    model.check(full=True)

    matrices = torch.rand(3, 5, 5)
    symmetric = matrices @ matrices.transpose(1, 2)
    session = onnxruntime.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    (largest,) = session.run(None, {"matrix": symmetric.numpy(), "steps": torch.tensor(100).numpy()})
    expected = torch.linalg.eigvalsh(symmetric)[:, -1]
    print("largest eigenvalues:", largest, "torch:", expected.numpy())
    torch.testing.assert_close(torch.from_numpy(largest), expected, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main()
