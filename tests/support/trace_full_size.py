"""What a trace costs at full size on this machine: seconds, and host memory of all its processes.

    python -m tests.support.trace_full_size CHECKPOINT PAGE [OPTION...]

Runs `trace PAGE --checkpoint CHECKPOINT --preset gundam --dtype bfloat16 ...`, prints what it printed, then
one JSON line: exit code, seconds, and in GB the largest anonymous memory (what processes allocate; pages of
mapped files can be dropped at any time) and the largest resident memory of the command with its worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

POLL_S = 0.05


def main(arguments: Sequence[str]) -> int:
    checkpoint, page, *options = arguments
    command = [
        sys.executable, "-m", "dsocr_core", "trace", page, "--checkpoint", checkpoint, "--preset", "gundam",
        "--dtype", "bfloat16", f"--vendor.trust-remote-code=[{checkpoint}]", "--history", "", *options,
    ]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(command)
    most = {"RssAnon": 0, "VmRSS": 0}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            for name, kilobytes in memory_of(process.pid).items():
                most[name] = max(most[name], kilobytes)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    code = process.wait()
    seconds = time.monotonic() - began
    ended.set()
    watcher.join()
    print(json.dumps({
        "exit_code": code, "seconds": round(seconds, 1),
        "anonymous_gb": round(most["RssAnon"] / 1e6, 2), "resident_gb": round(most["VmRSS"] / 1e6, 2),
    }))  # fmt: skip
    return code


def memory_of(pid: int) -> dict[str, int]:
    """Kilobytes of a process and all that it started (Linux)."""
    total = {"RssAnon": 0, "VmRSS": 0}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in total:
                total[name] += int(value.split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError, ValueError):
        return total
    for child in children:
        for name, value in memory_of(int(child)).items():
            total[name] += value
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
