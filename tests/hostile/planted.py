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
    match int(folder.name.removeprefix("case-")):
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
        case 7:  # a process that takes memory, and is there when the case is over
            take = f"memory = bytearray({BYTES}); memory[::4096] = b'x' * len(memory[::4096])"
            code = f"{take}; print(flush=True); import signal; signal.pause()"
            process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            assert process.stdout is not None and process.stdout.read(1)
            _waiting.append(process)
        case 8:
            _waiting.pop().kill()
    return None


_waiting: list[subprocess.Popen[bytes]] = []
