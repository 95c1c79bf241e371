"""A clone of two commits, and benches of its checkouts that take no time: drawn, recorded as real ones."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dsocr_core.base.errors import Cancelled
from dsocr_core.measure import processes
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from tests.support.made_up_runs import timing, write_run

BASE_MS: Mapping[str, float] = {
    Stage.PREPROCESS: 2.0, Stage.SAM: 60.0, Stage.CLIP: 3.0, Stage.PREFILL: 100.0, Stage.DECODE: 400.0,
}  # fmt: skip


def git(clone: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@e", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(clone), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def made_clone(folder: Path) -> Path:
    """A repository with two commits, the file `commit` saying which."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number in range(2):
        (folder / "commit").write_text(str(number))
        git(folder, "add", "commit")
        git(folder, "commit", "--quiet", "-m", str(number))
    git(folder, "tag", "first", "HEAD~1")
    return folder


def worktrees(clone: Path) -> list[str]:
    return git(clone, "worktree", "list").splitlines()


@dataclass
class Benches:
    """Stands for `Code.run`: what each commit of the clone, by its number, is slower by, stage by stage."""

    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    noise: float = 1e-4
    """Scale of a factor on all pages of a process; each page has a tenth of it."""
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
        if self.cancel_at == number:
            raise Cancelled
        if words[0] != "bench":
            return self.parity if words[0] == "compare" else 0, "", ""
        (history,) = (Path(word.partition("=")[2]) for word in words if word.startswith("--history="))
        return 0, "a table\n" + json.dumps(self._bench(history, commit, number)) + "\n", ""

    def _bench(self, history: Path, commit: str, number: int) -> dict[str, object]:
        """Record a process; returns of what `bench --json` prints the part that a gate reads."""
        random = np.random.default_rng([self.seed, number])
        factor = (1 + self.drift * (number // 2)) * random.lognormal(0, self.noise)
        of = self.factors.get(commit, {})
        times = {str(name): ms * of.get(name, 1.0) * factor for name, ms in BASE_MS.items()}
        rows = [
            timing(f"page-{page} #1", name, float(ms * random.lognormal(0, self.noise / 10)),
                   inside_prefill=name in INSIDE_PREFILL)
            for page in range(5) for name, ms in times.items()
        ]  # fmt: skip
        machine = {"machine": {"contended": number in self.contended}}
        run = write_run(history, f"{commit}-{number}-{self.seed}", rows, host=self.host,
                        git_commit=commit * 40, environment=machine)  # fmt: skip
        if commit == self.earlier:
            (history / "runs" / run.id / "run.json").write_text('{"schema_version": 3}')
        page_ms = sum(ms for name, ms in times.items() if name not in INSIDE_PREFILL)
        engine = {
            "stages": {name: {"milliseconds": {"median": ms}} for name, ms in times.items()},
            "tokens_per_s": {"median": 99_000 / times[Stage.DECODE]},
            "pages_per_s": {"median": 1000 / page_ms},
        }
        return {"engines": [engine], "device": {"name": "a processor"}, "saved": [run.id]}

    def watch(self, gpu: bool) -> SimpleNamespace:
        """Stands for the look at the machine during a round."""
        begun = len(self.ran)
        beside = {*self.contended}
        return SimpleNamespace(facts=lambda: {"contended": bool(beside & {*range(begun, len(self.ran))})})


def install(patch: pytest.MonkeyPatch, clone: Path, benches: Benches) -> Benches:
    """Have a gate of this process measure the clone."""
    patch.setattr(processes, "PROJECT_ROOT", clone)
    patch.setattr(processes.Code, "run", lambda code, words, cancel: benches.run(code, words, cancel))
    patch.setattr(processes, "MachineWatch", benches.watch)
    return benches
