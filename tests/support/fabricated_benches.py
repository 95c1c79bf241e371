"""A clone of a few commits, and benches of its checkouts that take no time: drawn, recorded as real ones."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsocr_core.base.errors import Cancelled
from dsocr_core.measure import processes
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.made_up_runs import record, timing

BASE_MS: Mapping[str, float] = {
    Stage.PREPROCESS: 2.0, Stage.SAM: 60.0, Stage.CLIP: 3.0, Stage.PREFILL: 100.0, Stage.DECODE: 400.0,
}  # fmt: skip
_NESTED = {stage.value for stage in INSIDE_PREFILL}


def made_clone(folder: Path) -> Path:
    """A repository with two commits, the file `commit` saying which."""

    def git(*words: str) -> None:
        identity = ("-c", "user.name=n", "-c", "user.email=e@e", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)

    folder.mkdir()
    git("init", "--quiet", "--initial-branch=main")
    for number in range(2):
        (folder / "commit").write_text(str(number))
        git("add", "commit")
        git("commit", "--quiet", "-m", str(number))
    git("tag", "first", "HEAD~1")
    return folder


def worktrees(clone: Path) -> list[str]:
    said = subprocess.run(
        ["git", "-C", str(clone), "worktree", "list"], check=True, capture_output=True, text=True
    )
    return said.stdout.splitlines()


def write_bench(
    location: Path, run: RunRecord, factors: Mapping[str, float], random: np.random.Generator, noise: float
) -> dict[str, Any]:
    """Record a process, off by a factor of scale `noise` on all of its pages, each page by a tenth of it.

    Returns of what `bench --json` prints the part that a gate reads.
    """
    process = random.lognormal(0, noise)
    times = {str(name): ms * factors.get(name, 1.0) * process for name, ms in BASE_MS.items()}
    pages = [f"page-{number} #1" for number in range(5)]
    with RunDirectory.create(location, run) as writer:
        writer.add_rows("readings", [{"page": page, "backend": "eager", "sha256": page} for page in pages])
        rows = [
            timing(page, name, float(ms * random.lognormal(0, noise / 10)), inside_prefill=name in _NESTED)
            for page in pages
            for name, ms in times.items()
        ]
        writer.add_rows("timings", rows)
    page = sum(ms for name, ms in times.items() if name not in _NESTED)
    rates = {"tokens_per_s": 99_000 / times[Stage.DECODE], "pages_per_s": 1000 / page}
    engine = {
        "stages": {name: {"milliseconds": {"median": ms}} for name, ms in times.items()},
        **{name: {"median": rate} for name, rate in rates.items()},
    }
    return {"engines": [engine], "device": {"name": "a processor"}, "saved": [run.id]}


@dataclass
class Benches:
    """Stands for `Code.run`: what each commit of the clone, by its number, is slower by, stage by stage."""

    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    noise: float = 1e-4
    drift: float = 0.0
    """Each round is slower by this share of the first."""
    host: str = "lab-1"
    contended: Sequence[int] = ()
    """Numbers of the processes beside which something else ran."""
    parity: int = 0
    """Exit code of `compare`."""
    earlier: str = ""
    """Number of a commit whose runs have the form of an earlier version."""
    cancel_at: int | None = None
    seed: int = 0
    ran: list[tuple[str, str]] = field(default_factory=list)
    """(Command, commit's number) of every process."""

    def run(
        self, code: processes.Code, words: Sequence[str], cancel: threading.Event
    ) -> tuple[int, str, str]:
        commit, number = (code.root / "commit").read_text(), len(self.ran)
        self.ran.append((words[0], commit))
        options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
        if self.cancel_at == number:
            raise Cancelled
        if words[0] != "bench":
            return self.parity if words[0] in ("compare",) else 0, "", ""
        environment = {"machine": {"contended": number in self.contended}}
        run = record(f"{commit}-{number}-{self.seed}", host=self.host, git_commit=commit * 40,
                     environment=environment)  # fmt: skip
        random = np.random.default_rng([self.seed, number])
        drift = 1 + self.drift * (number // 2)
        of = {name: drift * self.factors.get(commit, {}).get(name, 1.0) for name in BASE_MS}
        document = write_bench(Path(options["--history"]), run, of, random, self.noise)
        if commit == self.earlier:
            (Path(options["--history"]) / "runs" / run.id / "run.json").write_text('{"schema_version": 3}')
        return 0, "a table\n" + json.dumps(document) + "\n", ""


def install(patch: pytest.MonkeyPatch, clone: Path, benches: Benches) -> Benches:
    """Have a gate of this process measure the clone."""
    patch.setattr(processes, "PROJECT_ROOT", clone)
    patch.setattr(processes.Code, "run", lambda code, words, cancel: benches.run(code, words, cancel))
    patch.setattr(processes, "MachineWatch", lambda: _Watch(benches, len(benches.ran)))
    return benches


@dataclass
class _Watch:
    """Stands for the look at the machine during a round."""

    benches: Benches
    begun: int

    def facts(self) -> Mapping[str, Any]:
        during = range(self.begun, len(self.benches.ran))
        return {"contended": any(number in self.benches.contended for number in during)}
