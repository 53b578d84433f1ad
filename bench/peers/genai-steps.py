"""Times decode steps of onnxruntime-genai: one request a line, `context rows tokens`; one answer a line, in ms.

    python bench/peers/genai-steps.py <folder with genai_config.json>
"""

import sys
import time

import numpy as np
import onnxruntime_genai as og


def milliseconds_of_step(model: og.Model, context: int, rows: int, tokens: int) -> float:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=context + tokens + 1, min_length=context + tokens, batch_size=rows, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([[3 + (at * 7 + row) % 500 for at in range(context)] for row in range(rows)], np.int32))
    times = []
    for _ in range(tokens):
        generator.generate_next_token()
        times.append(time.perf_counter())
    settled = times[-(tokens // 2) :]
    return 1000 * (settled[-1] - settled[0]) / (len(settled) - 1)


def main(folder: str) -> None:
    model = og.Model(folder)
    print("ready", flush=True)
    for line in sys.stdin:
        print(milliseconds_of_step(model, *map(int, line.split())), flush=True)


main(sys.argv[1])
