"""Find what hangs, lies, leaks or ends in a traceback on hostile input: thousands of cases, by seed.

    python -m tests.hostile.campaign --minutes 20 --seed 1
    python -m tests.hostile.campaign --only pdfs --case 17

Images, PDFs, texts of a model, checkpoints, recorded runs, profiles, archives, addresses and settings are
made at random and given to what reads them. A case is refused with a DsocrError or taken; anything else is a
finding: a traceback (or a process that died), more than 10 s, more than 1 GB beyond the process's own, or a
wrong success. Of the 10 s, those do not count in which a process of the case waited for a core. Each
generator has the same time, in a process of its own, which is ended when a case hangs. `--case` repeats one
case in this process. The last line is one JSON document; the exit code is 1 where something was found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.hostile.attempts import attempt_of, attempts, outcome

GENERATORS = (
    "images", "pdfs", "markup", "checkpoints", "tables", "profiles", "archives", "addresses",
    "answers",
)  # fmt: skip
HANG_S = 10.0
START_S = 120.0
"""For the imports of a process on a machine with much else to do."""
MEMORY_BYTES = 10**9


@dataclass
class Tally:
    """The cases of one generator; findings are (number, kind, text)."""

    generator: str
    cases: int = 0
    refused: int = 0
    accepted: int = 0
    slowest_s: float = 0.0
    most_grown_bytes: int = 0
    findings: list[tuple[int, str, str]] = field(default_factory=list)

    def count(self, number: int, ended: dict[str, Any], seconds: float) -> None:
        grown = ended.get("grown", 0)
        self.cases += 1
        self.refused += ended["end"] == "refused"
        self.accepted += ended["end"] == "accepted"
        self.slowest_s = max(self.slowest_s, seconds)
        self.most_grown_bytes = max(self.most_grown_bytes, grown)
        if ended["end"] not in ("refused", "accepted"):
            self.findings.append((number, ended["end"], ended["text"]))
        if grown > MEMORY_BYTES:
            self.findings.append((number, "memory", f"{grown:,} bytes more"))


def campaign(names: tuple[str, ...], seconds: float, seed: int) -> list[Tally]:
    """So many seconds of all generators together, on every core."""
    lanes = max(1, min(len(names), os.cpu_count() or 1))
    with ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(lambda name: run_generator(name, seconds * lanes / len(names), seed), names))


def run_generator(name: str, seconds: float, seed: int, hang_s: float = HANG_S, most: int = 10**9) -> Tally:
    """One generator's first `most` cases in the time; a new process after each that hangs or dies."""
    tally, until, number = Tally(name), time.monotonic() + seconds, 0
    while number < most and time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="dsocr-hostile-", ignore_cleanup_errors=True) as folder:
            ours, theirs = multiprocessing.Pipe()
            arguments = (theirs, name, seed, number, Path(folder))
            process = multiprocessing.get_context("spawn").Process(target=attempts, args=arguments)
            process.start()
            theirs.close()
            try:
                number = watched(tally, ours, process.pid or 0, number, until, hang_s, most)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid or 0, signal.SIGKILL)  # with what it started
                process.kill()
                process.join()
    return tally


def watched(
    tally: Tally, said: Connection, pid: int, number: int, until: float, hang_s: float, most: int
) -> int:
    """Cases of one process as they end; the number to go on with."""
    limit_s = wait_s = START_S
    began, delayed_s = time.monotonic(), waiting_for_a_core_s(pid)
    while True:
        if not said.poll(wait_s):
            # On a machine with much else to do a case may be slow without a fault of its own.
            own_s = time.monotonic() - began - (waiting_for_a_core_s(pid) - delayed_s)
            if own_s < limit_s:
                wait_s = limit_s - own_s
                continue
            tally.count(number, {"end": "hang", "text": f"more than {limit_s:g} s"}, own_s)
            return number + 1
        try:
            ended = said.recv()
        except EOFError:
            tally.count(number, {"end": "traceback", "text": "the process died"}, 0.0)
            return number + 1
        if isinstance(ended, dict):
            tally.count(number, ended, time.monotonic() - began)
            continue
        number, began, limit_s, wait_s = ended, time.monotonic(), hang_s, hang_s
        delayed_s = waiting_for_a_core_s(pid)
        if began > until or number >= most:
            return number


def waiting_for_a_core_s(pid: int, proc: Path = Path("/proc")) -> float:
    """How long the threads of a process and of those it started were ready to run, and others ran."""
    waited_ns, processes = 0, [pid]
    for process in processes:
        for thread in (proc / str(process) / "task").glob("*"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it may end at any time
                waited_ns += int((thread / "schedstat").read_text(encoding="ascii").split()[1])
                processes += map(int, (thread / "children").read_text(encoding="ascii").split())
    return waited_ns / 1e9


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Give hostile files, texts and settings to what reads them.")
    parser.add_argument("--minutes", type=float, default=1.0, help="time of all generators together")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same cases")
    parser.add_argument("--only", nargs="+", choices=GENERATORS, default=GENERATORS, help="these generators")
    parser.add_argument("--case", type=int, help="repeat one case of the generator given by --only")
    return parser


def main() -> int:
    options = build_parser().parse_args()
    if options.case is not None:
        with tempfile.TemporaryDirectory(prefix="dsocr-hostile-") as folder:
            name = options.only[0]
            print(json.dumps(outcome(attempt_of(name), f"{options.seed} {name}", options.case, Path(folder))))
        return 0
    tallies = campaign(tuple(options.only), options.minutes * 60, options.seed)
    for tally in tallies:
        print(tally, file=sys.stderr)
    print(json.dumps([asdict(tally) for tally in tallies]))
    return 1 if any(tally.findings for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
