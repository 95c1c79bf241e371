"""Print how Triton lays out the sums of the one-row kernels and of those of a pass, for a Hopper GPU.

Run in a process of its own without the interpreter: no GPU is needed. JSON: {kernel: [[axis, layout], ...]}.
"""

from __future__ import annotations

import json
import re
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dsocr_core.kernels.batch import attention as batch_attention
from dsocr_core.kernels.decode import attention_output, expert_gate_up, qkv_rotary, router, split_attention
from dsocr_core.kernels.verify import gate_up, products

WEIGHT, COUNT, REAL = "*bf16", "*i32", "*fp32"
K, WIDTH, HEADS, HEAD_DIM = 4, 1280, 10, 128
RING = {"RING": 128, "SPARE": 16}


def sums(kernel: Any, warps: int, types: dict[str, str], **constants: Any) -> list[list[str]]:
    """Axis and layout of every sum, as the compiler has settled them."""
    names = kernel.arg_names
    constants = {name: 0 for name in ("PDL", "RING", "SPARE") if name in names} | constants
    source = ASTSource(
        kernel,
        {name: types.get(name, "constexpr" if name in constants else WEIGHT) for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        {(n,): [["tt.divisibility", 16]] for n, name in enumerate(names) if name not in constants},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    text = compiled.asm["ttgir"]
    layouts = dict(re.findall(r"^(#\w+) = (.*)$", text, re.MULTILINE))
    found = []
    reduction = r'"tt\.reduce"\(.*?axis = (\d+).*?\n(?:.*\n)*?.*\}\) : \((tensor<[^)]*)\)'
    for axis, operand in re.findall(reduction, text):
        if "f32" in operand:
            found.append([axis, re.sub(r"#\w+", lambda name: layouts.get(name[0], name[0]), operand)])
    return found


def main() -> None:
    eps, scalar, index = {"eps": "fp32"}, {"scaling": "fp32"}, {"capacity": "i32"}
    shared: dict[str, Any] = {"WIDTH": WIDTH, "CHUNK": 256}
    state, parts = {"state": COUNT}, {"partial": REAL, "log_sums": REAL}
    head: dict[str, Any] = {"HEAD_DIM": HEAD_DIM, "PAIRS": 8, **shared}
    mixture: dict[str, Any] = {"SHARED": 1792, "INNER": 896, "CHOSEN": 6, "ROWS": 4, **shared}
    split: dict[str, Any] = {
        "HEAD_DIM": HEAD_DIM, "EVERY_DIM": HEAD_DIM, "SPLITS": 8, "TILE": 64, "TILES": 4,
    }  # fmt: skip
    output: dict[str, Any] = {"ROWS": 4, "CHUNK": 256}
    attention = {**state, **parts, **index, "scale": "fp32"}
    slots = {**attention, "states": COUNT, "slots": "i32"}
    block: dict[str, Any] = {
        "HEAD_DIM": HEAD_DIM,
        "EVERY_DIM": HEAD_DIM,
        "BLOCK": 32,
        "STAGES": 3,
        "TILE": 16,
    }
    found = {
        "norm": sums(products._norm_rows, 4, eps, **shared),
        "qkv": sums(qkv_rotary._qkv_rotary, 4, {**eps, **state, **index}, **head),
        "qkv rows": sums(
            products._qkv_rows, 4, {**state, **index}, GROUP=K, HEADS=HEADS, **(head | {"PAIRS": 4})
        ),
        "output": sums(
            attention_output._attention_output, 4, {**state, **parts, "out_width": "i32"},
            HEADS=HEADS, HEAD_DIM=HEAD_DIM, SPLITS=8, AT_ONCE=256, **(output | {"ROWS": 16}),
        ),
        "output rows": sums(products._output_rows, 4, {"out_width": "i32"}, GROUP=K, WIDTH=WIDTH, **output),
        "gate_up": sums(expert_gate_up._gate_up, 4, {**eps, "ids": COUNT}, LOOPS=2, **mixture),
        "gate_up rows": sums(
            gate_up._gate_up_rows, 4, {"ids": COUNT}, K=K, GROUP=K, EVERY=32, BY_EXPERT=True, **mixture
        ),
        "route": sums(
            router._route, 8, {**eps, **scalar, "ids": COUNT, "weights": REAL},
            EXPERTS=64, EVERY=64, CHOSEN=6, **shared,
        ),
        "attention": sums(split_attention._split_attention, 8, attention, FRESH=False, **split),
        "attention rows": sums(split_attention._split_attention, 8, attention, FRESH=True, **split),
        "attention rows of a ring": sums(
            split_attention._split_attention, 8, attention, FRESH=True, **split, **RING
        ),
        "batch attention": sums(batch_attention._attend_rows, 4, slots, ROWS=1, **block),
        "batch attention rows": sums(batch_attention._attend_rows, 4, slots, ROWS=4, **block),
        "batch attention rows of a ring": sums(
            batch_attention._attend_rows, 4, slots, ROWS=4, **block, **RING
        ),
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
