"""The weights of an exported BERT, for models that start from a committed one."""

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from .errors import refuse
from .paths import model_dir

STORED = ".stored"
PREFIX = "model."


def read_encoder(name: str, file: str = "onnx/model.onnx") -> dict[str, torch.Tensor]:
    """Parameters by their names in `BertModel`. Matrices of linear layers have the place of their node as their name."""
    path = model_dir(name) / file
    if not path.is_file():
        refuse(f"There is no model at {path}: run `export` of {name} first.")
    graph = onnx.load(path).graph
    stored = {tensor.name.removesuffix(STORED): numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {key.removeprefix(PREFIX): value for key, value in stored.items() if key.startswith(PREFIX)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            place = node.name.removeprefix("/model/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{place}.weight"] = stored[node.input[1]].T
    return {key: torch.from_numpy(value.astype(np.float32)) for key, value in weights.items()}
