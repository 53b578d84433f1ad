"""Small files at full speed: weights stored as int8 per output channel or as fp16.

The stored tensor is widened by `Cast` (and `Mul` with its scale); ONNX Runtime folds these nodes into float32
constants when it loads the file. `DequantizeLinear` is not used because ONNX Runtime keeps it unless told otherwise.
"""

from collections import defaultdict

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SMALLEST = 1024


def _scale_axes(model: onnx.ModelProto) -> dict[str, int]:
    """The axis of output channels per weight: last for MatMul, first for Gather and Conv."""
    uses: dict[str, list[str]] = defaultdict(list)
    for node in model.graph.node:
        for name in node.input:
            uses[name].append(node.op_type)
    return {name: -1 if ops[0] in ("MatMul", "ConvTranspose") else 0 for name, ops in uses.items()}


def _int8(weight: np.ndarray, channel: int) -> tuple[np.ndarray, np.ndarray]:
    channel %= weight.ndim
    axes = tuple(axis for axis in range(weight.ndim) if axis != channel)
    scale = np.maximum(np.abs(weight).max(axis=axes, keepdims=True) / 127, 1e-8).astype(np.float32)
    return np.clip(np.round(weight / scale), -127, 127).astype(np.int8), scale


def shrink(model: onnx.ModelProto, mode: str) -> onnx.ModelProto:
    """A copy whose large weights are stored as `int8` or `fp16`; small ones and vectors stay precise."""
    small = onnx.ModelProto()
    small.CopyFrom(model)
    channels = _scale_axes(model)
    kept: list[onnx.TensorProto] = []
    widen: list[onnx.NodeProto] = []
    for tensor in model.graph.initializer:
        weight = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or weight.size < SMALLEST:
            kept.append(tensor)
        elif mode == "fp16" or weight.ndim < 2:
            kept.append(numpy_helper.from_array(weight.astype(np.float16), tensor.name + ".stored"))
            widen.append(helper.make_node("Cast", [tensor.name + ".stored"], [tensor.name], to=TensorProto.FLOAT))
        else:
            stored, scale = _int8(weight, channels.get(tensor.name, 0))
            kept.append(numpy_helper.from_array(stored, tensor.name + ".stored"))
            kept.append(numpy_helper.from_array(scale, tensor.name + ".scale"))
            wide = tensor.name + ".wide"
            widen.append(helper.make_node("Cast", [tensor.name + ".stored"], [wide], to=TensorProto.FLOAT))
            widen.append(helper.make_node("Mul", [wide, tensor.name + ".scale"], [tensor.name]))
    nodes = list(small.graph.node)
    del small.graph.node[:], small.graph.initializer[:]
    small.graph.node.extend(widen + nodes)
    small.graph.initializer.extend(kept)
    return small
