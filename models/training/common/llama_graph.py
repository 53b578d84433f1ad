"""Decoders of the Llama family as ONNX graphs, written node by node from their weights.

Two forms with the same weights: `in_place` uses GroupQueryAttention, whose cache may be one buffer that is
both past and present; `growing` uses plain operators and returns the past with the new positions appended.
Models of images have the embeddings of their tokens in a graph of its own, and their decoder reads `inputs_embeds`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class LlamaShape:
    """Sizes as config.json names them."""

    layers: int
    heads: int
    kv_heads: int
    head: int
    positions: int
    theta: float
    epsilon: float

    @classmethod
    def of(cls, config: Any) -> "LlamaShape":
        """Read the sizes from a transformers configuration."""
        rope = getattr(config, "rope_parameters", None) or {}
        return cls(
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            positions=config.max_position_embeddings,
            theta=float(rope.get("rope_theta") or getattr(config, "rope_theta", 10000.0)),
            epsilon=config.rms_norm_eps,
        )


class LlamaGraph:
    """Collects nodes and initialisers; `build` returns the checked model."""

    def __init__(self, shape: LlamaShape, weights: Weights, growing: bool, embedded: bool = False) -> None:
        self.shape = shape
        self.weights = weights
        self.growing = growing
        self.tokens = "inputs_embeds" if embedded else "input_ids"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def constant(self, name: str, values: Any) -> str:
        """An initialiser, written once."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """A node with one output."""
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def linear(self, x: str, module: str, output: str) -> str:
        """x · Wᵀ, with the bias where the family has one."""
        matrix = self.constant(f"{module}.matrix", self.weights[f"{module}.weight"].T)
        bias = self.weights.get(f"{module}.bias")
        if bias is None:
            return self.node("MatMul", [x, matrix], output)
        self.node("MatMul", [x, matrix], f"{output}.product")
        return self.node("Add", [f"{output}.product", self.constant(f"{module}.bias", bias)], output)

    def norm(self, x: str, module: str, output: str) -> str:
        """RMS norm, the fused operator that ONNX Runtime knows on every provider."""
        gain = self.constant(f"{module}.gain", self.weights[f"{module}.weight"])
        return self.node("SimplifiedLayerNormalization", [x, gain], output, axis=-1, epsilon=self.shape.epsilon)

    def head_norm(self, x: str, module: str, output: str) -> str:
        """Norm per head before the rotation, where the family has it (Qwen 3)."""
        if f"{module}.weight" not in self.weights:
            return x
        split = self.constant("shape.heads", np.array([0, 0, -1, self.shape.head], np.int64))
        joined = self.constant("shape.joined", np.array([0, 0, -1], np.int64))
        self.node("Reshape", [x, split], f"{output}.split")
        self.norm(f"{output}.split", module, f"{output}.normed")
        return self.node("Reshape", [f"{output}.normed", joined], output)

    def build(self) -> onnx.ModelProto:
        """The whole decoder."""
        self._declare_inputs()
        vocabulary, _ = self.weights["model.embed_tokens.weight"].shape
        table = self.constant("embed_tokens", self.weights["model.embed_tokens.weight"])
        x = self.node("Gather", [table, self.tokens], "embedded") if self.tokens == "input_ids" else self.tokens
        self._prepare()
        for layer in range(self.shape.layers):
            x = self._block(layer, x)
        self.norm(x, "model.norm", "normed")
        if "lm_head.weight" in self.weights:
            self.linear("normed", "lm_head", "logits")
        else:
            self.node("Transpose", [table], "head.matrix", perm=[1, 0])
            self.node("MatMul", ["normed", "head.matrix"], "logits")
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", vocabulary])
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, [logits, *self.outputs], list(self.constants.values()))
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="millrace")

    def _declare_inputs(self) -> None:
        def integers(name: str, length: str) -> None:
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["batch_size", length]))

        if self.tokens == "inputs_embeds":
            width = self.weights["model.embed_tokens.weight"].shape[1]
            self.inputs.append(helper.make_tensor_value_info(self.tokens, TensorProto.FLOAT, ["batch_size", "sequence_length", width]))
        else:
            integers(self.tokens, "sequence_length")
        integers("attention_mask", "total_sequence_length")
        if self.growing:
            integers("position_ids", "sequence_length")
        kv, head = self.shape.kv_heads, self.shape.head
        for layer in range(self.shape.layers):
            for kind in ("key", "value"):
                past, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
                new = "total_sequence_length" if self.growing else "present_sequence_length"
                self.inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, ["batch_size", kv, "past_sequence_length", head]))
                self.outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, ["batch_size", kv, new, head]))

    def _prepare(self) -> None:
        """What all layers share: rotation tables, and lengths or the attention bias."""
        s = self.shape
        frequency = 1.0 / s.theta ** (np.arange(0, s.head, 2, dtype=np.float64) / s.head)
        angles = np.arange(s.positions, dtype=np.float64)[:, None] * frequency
        self.constant("cos_cache", np.cos(angles).astype(np.float32))
        self.constant("sin_cache", np.sin(angles).astype(np.float32))
        axis1 = self.constant("axis_1", np.array(1, np.int64))
        self.node("Shape", ["attention_mask"], "mask_shape")
        self.node("Gather", ["mask_shape", axis1], "total_length", axis=0)
        if not self.growing:
            one = self.constant("one", np.array([1], np.int64))
            self.node("ReduceSum", ["attention_mask", one], "mask_sum", keepdims=0)
            self.node("Sub", ["mask_sum", one], "last_position")
            self.node("Cast", ["last_position"], "seqlens_k", to=TensorProto.INT32)
            self.node("Cast", ["total_length"], "total_sequence_length_32", to=TensorProto.INT32)
            return
        self._prepare_growing(axis1)

    def _prepare_growing(self, axis1: str) -> None:
        """Bias 0 where a position may be seen, very low elsewhere; cos and sin of the given positions."""
        zero, step = self.constant("zero", np.array(0, np.int64)), self.constant("step", np.array(1, np.int64))
        self.node("Shape", [self.tokens], "ids_shape")
        self.node("Gather", ["ids_shape", axis1], "new_length", axis=0)
        self.node("Sub", ["total_length", "new_length"], "past_length")
        self.node("Range", [zero, "total_length", step], "columns")
        self.node("Range", ["past_length", "total_length", step], "rows_flat")
        self.node("Unsqueeze", ["rows_flat", self.constant("axes_1", np.array([1], np.int64))], "rows")
        self.node("LessOrEqual", ["columns", "rows"], "causal")
        self.node("Unsqueeze", ["attention_mask", self.constant("axes_12", np.array([1, 2], np.int64))], "mask_4d")
        self.node("Cast", ["mask_4d"], "mask_bool", to=TensorProto.BOOL)
        self.node("And", ["causal", "mask_bool"], "visible")
        low, none = self.constant("low", np.array(-1e9, np.float32)), self.constant("none", np.array(0, np.float32))
        self.node("Where", ["visible", none, low], "bias")
        for table in ("cos", "sin"):
            self.node("Gather", [f"{table}_cache", "position_ids"], f"{table}_rows")
            self.node("Unsqueeze", [f"{table}_rows", "axes_1"], table)

    def _block(self, layer: int, x: str) -> str:
        module, p = f"model.layers.{layer}", f"layer{layer}."
        self.norm(x, f"{module}.input_layernorm", p + "in")
        q, k, v = (self.linear(p + "in", f"{module}.self_attn.{n}_proj", p + n) for n in "qkv")
        q = self.head_norm(q, f"{module}.self_attn.q_norm", p + "q_normed")
        k = self.head_norm(k, f"{module}.self_attn.k_norm", p + "k_normed")
        attend = self._attend_growing if self.growing else self._attend_in_place
        attend(layer, q, k, v, p + "attended")
        self.linear(p + "attended", f"{module}.self_attn.o_proj", p + "o")
        self.node("Add", [x, p + "o"], p + "middle")
        self.norm(p + "middle", f"{module}.post_attention_layernorm", p + "inner")
        self.feed_forward(layer, p + "inner", p + "down")
        return self.node("Add", [p + "middle", p + "down"], p + "out")

    def feed_forward(self, layer: int, x: str, output: str) -> None:
        """The gated layers after the attention."""
        module, p = f"model.layers.{layer}.mlp", f"layer{layer}."
        self.linear(x, f"{module}.gate_proj", p + "gate")
        self.linear(x, f"{module}.up_proj", p + "up")
        self.node("Sigmoid", [p + "gate"], p + "sigmoid")
        self.node("Mul", [p + "gate", p + "sigmoid"], p + "silu")
        self.node("Mul", [p + "silu", p + "up"], p + "gated")
        self.linear(p + "gated", f"{module}.down_proj", output)

    def _attend_in_place(self, layer: int, q: str, k: str, v: str, output: str) -> None:
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        self.nodes.append(helper.make_node(
            "GroupQueryAttention", [q, k, v, *past, "seqlens_k", "total_sequence_length_32", "cos_cache", "sin_cache", *self.sinks(layer)],
            [output, *present], name=output, domain="com.microsoft", num_heads=self.shape.heads,
            kv_num_heads=self.shape.kv_heads, do_rotary=1, **self.window(layer),
        ))

    def sinks(self, layer: int) -> list[str]:
        """Further inputs of the attention of a layer."""
        return []

    def window(self, layer: int) -> dict[str, int]:
        """The positions that the attention of a layer sees, where they are not all."""
        return {}

    def _attend_growing(self, layer: int, q: str, k: str, v: str, output: str) -> None:
        s, p = self.shape, f"layer{layer}."
        self._rotate(self._heads(q, s.heads, p + "q_heads"), p + "q_turned")
        self._rotate(self._heads(k, s.kv_heads, p + "k_heads"), p + "k_turned")
        self._heads(v, s.kv_heads, p + "v_heads")
        for kind, new in (("key", "k_turned"), ("value", "v_heads")):
            self.node("Concat", [f"past_key_values.{layer}.{kind}", p + new], f"present.{layer}.{kind}", axis=2)
        groups = s.heads // s.kv_heads
        # [B, H, S, D] as [B, KV, groups, S, D], so that keys broadcast over their group.
        grouped = self.constant("shape.grouped", np.array([0, s.kv_heads, groups, -1, s.head], np.int64))
        axes2 = self.constant("axes_2", np.array([2], np.int64))
        self.node("Reshape", [p + "q_turned", grouped], p + "q_grouped")
        self.node("Unsqueeze", [f"present.{layer}.key", axes2], p + "k_all")
        self.node("Unsqueeze", [f"present.{layer}.value", axes2], p + "v_all")
        self.node("Transpose", [p + "k_all"], p + "k_columns", perm=[0, 1, 2, 4, 3])
        self.node("MatMul", [p + "q_grouped", p + "k_columns"], p + "dots")
        self.node("Mul", [p + "dots", self.constant("scale", np.array(s.head**-0.5, np.float32))], p + "scaled")
        if "bias_5d" not in {node.output[0] for node in self.nodes}:
            self.node("Unsqueeze", ["bias", axes2], "bias_5d")
        self.node("Add", [p + "scaled", "bias_5d"], p + "biased")
        self.node("Softmax", [p + "biased"], p + "shares", axis=-1)
        self.node("MatMul", [p + "shares", p + "v_all"], p + "mixed")
        per_head = self.constant("shape.per_head", np.array([0, s.heads, -1, s.head], np.int64))
        self.node("Reshape", [p + "mixed", per_head], p + "mixed_heads")
        self.node("Transpose", [p + "mixed_heads"], p + "mixed_rows", perm=[0, 2, 1, 3])
        self.node("Reshape", [p + "mixed_rows", self.constant("shape.flat", np.array([0, 0, s.heads * s.head], np.int64))], output)

    def _heads(self, x: str, heads: int, output: str) -> str:
        shape = self.constant(f"shape.{heads}", np.array([0, 0, heads, self.shape.head], np.int64))
        self.node("Reshape", [x, shape], f"{output}.split")
        return self.node("Transpose", [f"{output}.split"], output, perm=[0, 2, 1, 3])

    def _rotate(self, x: str, output: str) -> str:
        self.nodes.append(helper.make_node("Split", [x], [f"{output}.a", f"{output}.b"], name=f"{output}.halves", axis=-1))
        for part, table in (("a", "cos"), ("b", "sin"), ("b", "cos"), ("a", "sin")):
            self.node("Mul", [f"{output}.{part}", table], f"{output}.{part}_{table}")
        self.node("Sub", [f"{output}.a_cos", f"{output}.b_sin"], f"{output}.first")
        self.node("Add", [f"{output}.b_cos", f"{output}.a_sin"], f"{output}.second")
        return self.node("Concat", [f"{output}.first", f"{output}.second"], output, axis=-1)


def llama_graph(shape: LlamaShape, weights: Weights, growing: bool, embedded: bool = False) -> onnx.ModelProto:
    """Build one of the two forms; `weights` carry the names of transformers."""
    return LlamaGraph(shape, weights, growing, embedded).build()
