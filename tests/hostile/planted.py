"""Cases that end as they should not, by number, to see whether the campaign notices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from dsocr_core.base.errors import DsocrError

BYTES = 150_000_000


def attempt(random: Random, folder: Path) -> str | None:
    number = int(folder.name.removeprefix("case-"))
    match number:
        case 0:
            return None
        case 1:
            raise DsocrError("refused")
        case 2:
            raise KeyError("planted")
        case 3:
            return "a planted lie"
        case 4:
            memory = bytearray(BYTES)
            memory[::4096] = b"x" * len(memory[::4096])
        case 5:
            signal.pause()
        case 6:
            os.kill(os.getpid(), signal.SIGKILL)
        case 7:  # ended when the case is
            _child("").wait()
        case 8:  # still there when the case is over
            process = _child("; import signal; signal.pause()")
            assert process.stdout is not None and process.stdout.read(1)
            _waiting.append(process)
        case 9:
            _waiting.pop().kill()
    return None


_waiting: list[subprocess.Popen[bytes]] = []


def _child(then: str) -> subprocess.Popen[bytes]:
    """A process that takes memory, and says so."""
    take = f"memory = bytearray({BYTES}); memory[::4096] = b'x' * len(memory[::4096]); print(flush=True)"
    return subprocess.Popen([sys.executable, "-c", take + then], stdout=subprocess.PIPE)
