"""Print how Triton lays out the sums of a batch's attention, of one row and several a slot, for a Hopper GPU.

Run in a process of its own without the interpreter: no GPU is needed. JSON: {kernel: [[axis, layout], ...]}.
"""

from __future__ import annotations

import json
import re
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dsocr_core.kernels.batch import attention

WEIGHT, COUNT, REAL = "*bf16", "*i32", "*fp32"
HEAD_DIM = 128
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
    types = {
        "states": COUNT, "partial": REAL, "log_sums": REAL, "capacity": "i32", "scale": "fp32",
        "slots": "i32",
    }  # fmt: skip
    block: dict[str, Any] = {
        "HEAD_DIM": HEAD_DIM, "EVERY_DIM": HEAD_DIM, "BLOCK": 32, "STAGES": 3, "TILE": 16,
    }  # fmt: skip
    kernel = attention._attend_rows
    found = {
        "one row": sums(kernel, 4, types, ROWS=1, **block),
        "four rows": sums(kernel, 4, types, ROWS=4, **block),
        "four rows of a ring": sums(kernel, 4, types, ROWS=4, **block, **RING),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
