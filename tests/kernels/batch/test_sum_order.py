"""Sums of a row have one order, however many rows a slot has, as the compiler lays them out: no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.paths import ROOT


def test_attention_sums_alike_in_every_dimension() -> None:
    """In a process without the interpreter."""
    command = [sys.executable, "-m", "tests.support.sum_orders"]
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one, *others = ({tuple(each) for each in layouts} for layouts in json.loads(done.stdout).values())
    assert one and all(layouts == one for layouts in others)
