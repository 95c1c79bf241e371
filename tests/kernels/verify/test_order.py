"""The order of every sum in a pass is the one-row kernel's, as the compiler lays it out: no GPU is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PAIRS = [
    ("qkv", "qkv rows"),
    ("output", "output rows"),
    ("gate_up", "gate_up rows"),
    ("attention", "attention rows"),
]
Sums = dict[str, list[list[str]]]


@pytest.fixture(scope="module")
def sums() -> Sums:
    """Layouts by kernel, from a process without the interpreter."""
    command = [sys.executable, "-m", "tests.support.sum_orders"]
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: Sums = json.loads(done.stdout)
    return found


def columns(found: list[list[str]]) -> set[str]:
    """How the columns of sums along a row lie: which lane has which, however many rows a program has."""
    along = {layout.partition("x")[2] for axis, layout in found if axis == "1"}
    return {
        layout.replace("warpsPerCTA = [8, 1]", "").replace("warpsPerCTA = [4, 1]", "") for layout in along
    }


@pytest.mark.parametrize(("one", "rows"), PAIRS)
def test_a_rows_products_are_summed_as_by_the_one_row_kernel(sums: Sums, one: str, rows: str) -> None:
    assert sums[rows] and columns(sums[rows]) == columns(sums[one])


@pytest.mark.parametrize("one", ["attention", "batch attention"])
def test_attention_sums_alike_in_every_dimension(sums: Sums, one: str) -> None:
    names = one, f"{one} rows", f"{one} rows of a ring"
    layouts = [{tuple(each) for each in sums[name]} for name in names]
    assert layouts[0] and all(layout == layouts[0] for layout in layouts)


def test_norms_are_summed_as_the_kernels_that_norm_for_themselves_do(sums: Sums) -> None:
    (norm,) = sums["norm"]
    for kernel in ("qkv", "gate_up"):
        assert norm in sums[kernel]
    # The choice of experts norms in another order, so it is the one-row kernel itself.
    assert norm not in sums["route"]
