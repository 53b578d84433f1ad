"""The outputs `cross_attentions.N` of the hub's `_timestamped` decoders."""

import onnx
from onnx import TensorProto, helper


def name_attentions(model: onnx.ModelProto, heads: int) -> None:
    """Make the weights of cross-attention outputs of a decoder that `whisper_export` wrote; no node is added.

    A layer attends to its own tokens first and to the encoder's states second, so that every second Softmax belongs to the latter.
    """
    graph = model.graph
    if any(value.name.startswith("cross_attentions.") for value in graph.output):
        return
    weights = [node.output[0] for node in graph.node if node.op_type == "Softmax"][1::2]
    names = {old: f"cross_attentions.{layer}" for layer, old in enumerate(weights)}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    shape = ["batch_size", heads, "decoder_sequence_length", "encoder_sequence_length"]
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names.values())
