"""Random models of one operator, each of a seed, for `random_nodes.py`."""

from __future__ import annotations

import random
from collections.abc import Mapping

from onnx import defs

from node_draws import OPSETS, Draw, Node, NotDrawnError, Recipe
from node_recipes import (
    along_axis,
    arg_reduction,
    blocks,
    compress,
    concat,
    crop_pad,
    cumulative,
    elementwise,
    expand,
    eye_like,
    flatten,
    gather,
    gather_nd,
    layer_norm,
    lp_norm,
    one_hot,
    pad,
    plain,
    reduction,
    reshape,
    reverse_sequence,
    scatter_elements,
    scatter_nd,
    shape_of,
    slices,
    split,
    squeeze,
    tile,
    top_k,
    transpose,
    triangle,
    unique,
    unsqueeze,
)
from window_recipes import (
    cast,
    clip,
    col2im,
    convolution,
    determinant,
    dropout,
    dynamic_quantize,
    einsum,
    fill,
    fourier,
    gemm,
    grid_sample,
    integer_product,
    local_response,
    loss,
    matmul,
    mean_variance,
    normalization,
    pool,
    quantize,
    ranges,
    recurrent,
    resize,
    taper,
    where,
)


def _each(recipe: Recipe, names: str) -> dict[str, Recipe]:
    return dict.fromkeys(names.split(), recipe)


RECIPES: Mapping[str, Recipe] = {
    **_each(
        elementwise,
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
        "HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign "
        "Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Swish Add And BitShift BitwiseAnd BitwiseOr "
        "BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow PRelu Sub Sum Xor",
    ),
    **_each(
        reduction,
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
        "ReduceSumSquare",
    ),
    **_each(arg_reduction, "ArgMax ArgMin"),
    **_each(along_axis, "Softmax LogSoftmax Hardmax"),
    **_each(layer_norm, "LayerNormalization RMSNormalization"),
    **_each(plain, "Size NonZero"),
    **_each(blocks, "DepthToSpace SpaceToDepth"),
    **_each(gather, "Gather GatherElements"),
    **_each(pool, "MaxPool AveragePool LpPool"),
    **_each(convolution, "Conv ConvTranspose"),
    **_each(normalization, "BatchNormalization InstanceNormalization GroupNormalization"),
    **_each(recurrent, "LSTM GRU RNN"),
    **_each(quantize, "QuantizeLinear DequantizeLinear"),
    **_each(loss, "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"),
    **_each(taper, "HannWindow HammingWindow BlackmanWindow"),
    "LpNormalization": lp_norm,
    "CumSum": cumulative,
    "TopK": top_k,
    "Unique": unique,
    "Reshape": reshape,
    "Transpose": transpose,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Slice": slices,
    "Pad": pad,
    "Expand": expand,
    "Tile": tile,
    "Concat": concat,
    "Split": split,
    "Shape": shape_of,
    "Flatten": flatten,
    "Trilu": triangle,
    "EyeLike": eye_like,
    "CenterCropPad": crop_pad,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "OneHot": one_hot,
    "Compress": compress,
    "ReverseSequence": reverse_sequence,
    "MatMul": matmul,
    "Gemm": gemm,
    "LRN": local_response,
    "MeanVarianceNormalization": mean_variance,
    "Resize": resize,
    "GridSample": grid_sample,
    "Cast": cast,
    "Clip": clip,
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": integer_product,
    "Range": ranges,
    "Where": where,
    "Det": determinant,
    "Col2Im": col2im,
    "Dropout": dropout,
    "ConstantOfShape": fill,
    "DFT": fourier,
    "Einsum": einsum,
}


def random_node(seed: int, operator: str = "") -> tuple[Node, int] | None:
    """A node and the opset it stands in; None where the opset does not have the operator, or not in that form."""
    choice = random.Random(seed)
    op, opset = operator or choice.choice([*RECIPES]), choice.choice(OPSETS)
    if not defs.has(op, max_inclusive_version=opset):
        return None
    try:
        return RECIPES[op](Draw(op, opset, seed)), opset
    except NotDrawnError:
        return None
