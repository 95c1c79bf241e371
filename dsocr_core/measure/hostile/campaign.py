"""Does anything that comes in hang, lie, leak or end in a traceback? Thousands of hostile cases, by seed.

    dsocr measure hostile --minutes 20 --seed 1

Images, PDFs, texts of a model, checkpoints, recorded runs, archives, addresses and settings are made at
random and given to what reads them. A case is refused with a DsocrError or taken; anything else is a finding:
a traceback (or a process that died), more than 10 s, more than 1 GB beyond the process's own, or a wrong
success. Of the 10 s, those do not count in which a process of the case waited for a core. Each generator
has the same time, in a process of its own, which is ended when a case hangs.
`--only NAME --case NUMBER` repeats a case of the same seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from dsocr_core.console import FAILED, OK, titled_table
from dsocr_core.errors import DsocrError
from dsocr_core.measure.hostile.server import attempt_of, outcome
from dsocr_core.outside.visible import visible
from dsocr_core.settings import PROJECT_ROOT

GENERATORS = ("images", "pdfs", "markup", "checkpoints", "tables", "archives", "addresses", "settings")
PACKAGE = "dsocr_core.measure.hostile"
HANG_S = 10.0
START_S = 120.0
"""For the imports of a process on a machine with much else to do."""
MEMORY_BYTES = 10**9


@dataclass(frozen=True)
class Finding:
    """A case that did not end as it should."""

    generator: str
    number: int
    kind: str
    """traceback, hang, memory or wrong success."""
    text: str


@dataclass
class Tally:
    """The cases of one generator."""

    generator: str
    cases: int = 0
    refused: int = 0
    accepted: int = 0
    slowest_s: float = 0.0
    most_grown_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def count(self, number: int, ended: dict[str, Any], seconds: float) -> None:
        self.cases += 1
        self.slowest_s = max(self.slowest_s, seconds)
        self.most_grown_bytes = max(self.most_grown_bytes, ended.get("grown", 0))
        if ended["end"] == "refused":
            self.refused += 1
        elif ended["end"] == "accepted":
            self.accepted += 1
        else:
            self.findings.append(Finding(self.generator, number, ended["end"], ended["text"]))
        if ended.get("grown", 0) > MEMORY_BYTES:
            self.findings.append(Finding(self.generator, number, "memory", f"{ended['grown']:,} bytes more"))


def campaign(names: tuple[str, ...], seconds: float, seed: int, hang_s: float = HANG_S) -> list[Tally]:
    """So many seconds of all generators together on every core. A name with a dot is a module's own."""
    lanes = max(1, min(len(names), os.cpu_count() or 1))
    share = seconds * lanes / len(names)
    with ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(lambda name: run_generator(name, share, seed, hang_s), names))


def run_generator(name: str, seconds: float, seed: int, hang_s: float) -> Tally:
    """One generator's cases until the time is over; a new process after each that hangs or dies."""
    tally = Tally(name)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="dsocr-hostile-", ignore_cleanup_errors=True) as folder:
            number = _served(tally, seed, number, Path(folder), until, hang_s)
    return tally


def _served(tally: Tally, seed: int, number: int, folder: Path, until: float, hang_s: float) -> int:
    """Cases from `number` on in one process; the number to go on with."""
    module = _module(tally.generator)
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.server", module, str(seed), str(number), str(folder)],
            cwd=PROJECT_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            start_new_session=True, env={**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        reader = threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            return _watched(tally, lines, process.pid, number, until, hang_s, folder)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()


def _pass_on(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")


def _watched(
    tally: Tally,
    lines: queue.SimpleQueue[bytes],
    pid: int,
    number: int,
    until: float,
    hang_s: float,
    folder: Path,
) -> int:
    wait = limit_s = START_S
    began, delayed_s = time.monotonic(), waiting_for_a_core_s(pid)
    while True:
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            # On a machine with much else to do a case may be slow without a fault of its own.
            own_s = time.monotonic() - began - (waiting_for_a_core_s(pid) - delayed_s)
            if own_s < limit_s:
                wait = min(limit_s, limit_s - own_s)
                continue
            tally.cases += 1
            tally.findings.append(Finding(tally.generator, number, "hang", f"more than {limit_s:g} s"))
            return number + 1
        if not line:
            text = (folder / "stderr").read_bytes()[-1000:].decode("utf-8", "replace")
            tally.count(number, {"end": "traceback", "text": f"the process died: {text}"}, 0.0)
            return number + 1
        said = json.loads(line)
        if "begins" in said:
            number, began, wait, limit_s = said["begins"], time.monotonic(), hang_s, hang_s
            delayed_s = waiting_for_a_core_s(pid)
            if began > until:
                return number
        else:
            tally.count(number, said, time.monotonic() - began)


def waiting_for_a_core_s(pid: int, proc: Path = Path("/proc")) -> float:
    """How long the threads of a process and of those it started were ready to run, and others ran."""
    waited_ns, processes = 0, [pid]
    for process in processes:
        for thread in (proc / str(process) / "task").glob("*"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it may end at any time
                waited_ns += int((thread / "schedstat").read_text(encoding="ascii").split()[1])
                processes += map(int, (thread / "children").read_text(encoding="ascii").split())
    return waited_ns / 1e9


def _module(generator: str) -> str:
    return generator if "." in generator else f"{PACKAGE}.{generator}"


# --- the command --------------------------------------------------------------------------------


def run(
    minutes: float, seed: int, only: list[str] | None, case: int | None, console: Console, as_json: bool
) -> int:
    """Run, print what was found; the exit code is 1 when anything was. Raises DsocrError."""
    names = tuple(only or GENERATORS)
    if unknown := sorted(set(names) - set(GENERATORS)):
        raise DsocrError(f"no generator '{unknown[0]}'; there are {', '.join(GENERATORS)}")
    if case is not None:
        return _one(names, seed, case, as_json)
    began = time.monotonic()
    tallies = campaign(names, minutes * 60, seed)
    findings = [finding for tally in tallies for finding in tally.findings]
    cases = sum(tally.cases for tally in tallies)
    seconds = time.monotonic() - began
    if as_json:
        summary = {"seed": seed, "seconds": round(seconds, 1), "cases": cases, "findings": len(findings)}
        print(json.dumps(summary | {"generators": [asdict(tally) for tally in tallies]}))
        return FAILED if findings else OK
    title = f"{cases:,} cases in {seconds:.0f} s, seed {seed}: {len(findings)} findings"
    table = titled_table(
        title, "Generator", "Cases", "Refused", "Taken", "Slowest", "Most memory", "Findings"
    )
    for tally in tallies:
        table.add_row(
            tally.generator, f"{tally.cases:,}", f"{tally.refused:,}", f"{tally.accepted:,}",
            f"{tally.slowest_s:.1f} s", f"{tally.most_grown_bytes / 1e6:.0f} MB", str(len(tally.findings)),
        )  # fmt: skip
    console.print(table)
    for finding in findings[:20]:
        what = f"{finding.generator} {finding.number}: {finding.kind}: {finding.text}"
        console.print(visible(what.replace("\n", " | ")), highlight=False, markup=False)
    return FAILED if findings else OK


def _one(names: tuple[str, ...], seed: int, case: int, as_json: bool) -> int:
    """One case in this process, with all that is known of how it ended."""
    if len(names) != 1:
        raise DsocrError("--case needs one generator: give --only NAME")
    module = _module(names[0])
    with tempfile.TemporaryDirectory(prefix="dsocr-hostile-") as folder:
        ended = outcome(attempt_of(module), str(seed), module, case, Path(folder))
    print(json.dumps(ended) if as_json else visible(f"{ended['end']}: {ended['text']}"))
    return FAILED if ended["end"] in ("traceback", "wrong success") else OK
