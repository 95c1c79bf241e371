"""Kill -9 at seeded moments: a process says `ready`, works, and is gone."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random


def killed(command: Sequence[str | Path], moments: Random, most_s: float = 0.3, after: int = 0) -> list[str]:
    """Start a process, kill it within so many seconds after `ready` and some more lines; returns these.

    Each line that it wrote whole is something that it had finished by then.
    """
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            first = [process.stdout.readline() for _ in range(after)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0.0, most_s))
        finally:
            process.kill()
        lines = [*first, *process.stdout.read().splitlines(keepends=True)]
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]
