"""Cases that end as they should not, by number, to see whether the campaign notices."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

from dsocr_core.base.errors import DsocrError


def planted(random: Random, folder: Path) -> str | None:
    match int(folder.name.removeprefix("case-")):
        case 1:
            raise DsocrError("refused")
        case 2:
            raise KeyError("planted")
        case 3:
            return "a planted lie"
        case 4:
            memory = bytearray(150_000_000)
            memory[::4096] = b"x" * len(memory[::4096])
        case 5:
            signal.pause()
        case 6:
            os.kill(os.getpid(), signal.SIGKILL)
    return None
