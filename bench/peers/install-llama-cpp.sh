#!/bin/sh
# Installs node-llama-cpp with its prebuilt library beside the project, and makes one model for both sides.
#
#     sh bench/peers/install-llama-cpp.sh [python]
#
# The Python needs numpy, onnx, onnxruntime (models/training/requirements.txt) and gguf.
set -eu
cd "$(dirname "$0")/../.."
version=3.22.1
platform="$(node -p 'process.platform === "darwin" && process.arch === "arm64" ? "mac-arm64-metal" : process.platform.replace("darwin", "mac") + "-" + process.arch')"
mkdir -p .data/peers/llama-cpp
# Only this machine's library, without those for graphics cards, and nothing is built.
npm install --prefix .data/peers/llama-cpp --omit=optional --ignore-scripts --no-audit --no-fund \
  "node-llama-cpp@$version" "@node-llama-cpp/$platform@$version"
python="${1:-python3}"
[ -e .data/bench/smollm2-shape/onnx/model.onnx ] || "$python" bench/make-decoder.py .data/bench/smollm2-shape
"$python" bench/peers/make-eight-bit.py .data/bench/smollm2-shape .data/bench/smollm2-shape-8-bit
