"""Benches in processes of their own, of one checkout or of two in turn, each recorded as a run.

The order of the sides alternates from round to round, so that a machine that slows down favours neither.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dsocr_core.base.bounded_json import parse_json
from dsocr_core.base.child import Child, ChildGone
from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.base.paths import PROJECT_ROOT, Temporary
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.runs.record import flattened
from dsocr_core.settings import EngineName, Settings

log = logging.getLogger(__name__)

RATES: Mapping[str, str] = {"tokens/s": "tokens_per_s", "pages/s": "pages_per_s"}
"""Metrics of a whole process, by their names in a bench."""
_FIRST = """
import importlib.util, sys
sys.path.insert(0, {root!r})
found = importlib.util.find_spec("dsocr_core")
if found is None or not (found.origin or "").startswith({root!r}):
    sys.exit(f"this Python imports {{found and found.origin}} in place of the code in {root}")
"""
"""Code that starts every Python of a checkout's command and puts the checkout first. Otherwise a .pth file of
the environment could put another checkout before PYTHONPATH, which would be measured instead."""
_POLL_S, _LEAVING_S = 0.2, 30.0
_NOT_OF_PAGES = ("history", "engine", "a", "b", "backends")
_NOT_OF_A_BENCH = (*_NOT_OF_PAGES, "vendor", "tolerance", "clean_pages")


class GateError(DsocrError):
    """A gate that cannot be run; tells what to give."""


@dataclass(frozen=True)
class Work:
    """Work of one process: the arguments of `bench`."""

    settings: Settings
    engine: EngineName = "eager"
    size: str = "1280x1280"
    tokens: int = 100
    batch: int = 1
    pages: int = 5
    passes: int = 3

    def words(self) -> list[str]:
        """Options of `bench` on the command line."""
        options = {
            "engine": self.engine, "size": self.size, "tokens": self.tokens, "batch": self.batch,
            "pages": self.pages, "repeat": self.passes,
        }  # fmt: skip
        return [*(f"--{name}={value}" for name, value in options.items()), *self.setting_words()]

    def setting_words(self, of_pages: bool = False) -> list[str]:
        """Settings that are not defaults, as options of a bench; `of_pages` as options of `run`."""
        usual, skip = dict(flattened(asdict(Settings()))), _NOT_OF_PAGES if of_pages else _NOT_OF_A_BENCH
        return [
            f"--{name.replace('_', '-')}={value}"
            for name, value in flattened(asdict(self.settings))
            if name.partition(".")[0] not in skip and value is not None and value != usual.get(name)
        ]


@dataclass(frozen=True)
class Code:
    """A checkout of the project. `root` is its directory."""

    name: str
    root: Path

    def run(self, words: Sequence[str], cancel: threading.Event) -> tuple[int, str, str]:
        """Run a command of this checkout in this interpreter. Returns exit code, output and last line.

        Raises Cancelled after the command has ended.
        """
        with Temporary("gate") as folder:
            first = Path(folder)
            (first / "sitecustomize.py").write_text(_FIRST.format(root=str(self.root)))
            paths = [str(first), *filter(None, [os.environ.get("PYTHONPATH")])]
            # The current folder must not come first either: it may be another checkout.
            own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
            command, said = [sys.executable, "-m", "dsocr_core", *words], list[str]()
            with closing(Child(command, {**os.environ, **own}, talks=True)) as child:
                with suppress(ChildGone):
                    while not cancel.is_set():
                        said.append((child.receive(_POLL_S) or b"").decode("utf-8", "replace"))
                    raise Cancelled
                child.wait(_LEAVING_S)
                code = child.returncode
                last = child.last_line(300).removeprefix("error: ") or child.how_it_ended()
                return -1 if code is None else code, "".join(said), last


@dataclass(frozen=True)
class Measured:
    """One process: the run that it recorded, and medians of its bench."""

    run_id: str
    rates: Mapping[str, float]
    """Tokens and pages a second of the whole process, where it has them."""
    stages: Mapping[str, float]
    """Milliseconds by stage."""
    device: str
    contended: bool = False
    """True where other programs used the machine meanwhile."""


# --- code -----------------------------------------------------------------------------------------


def git(*words: str) -> str:
    """Run git in this project. Returns its output; raises GateError with its last line."""
    try:
        # A session of its own, so that Ctrl-C does not leave half a checkout, which git cannot remove.
        done = subprocess.run(
            ["git", "-C", str(PROJECT_ROOT), *words], capture_output=True, text=True, start_new_session=True
        )
    except OSError as error:
        raise GateError(f"gate: git cannot be run ({error.strerror}): install it, or name a run") from error
    if done.returncode:
        raise GateError(f"gate: git {words[0]}: {one_line(Exception(done.stderr.strip()))}")
    return done.stdout.strip()


def commit_of(name: str) -> str | None:
    """Commit that a name means in this clone; None where it means none."""
    with suppress(GateError):
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return None


def has_changes() -> bool:
    """Tell whether a tracked file differs from HEAD."""
    return bool(git("status", "--porcelain", "-uno"))


def working_tree() -> Code:
    """The checkout of the running code."""
    commit = commit_of("HEAD")
    name = commit[:8] + " with changes" * has_changes() if commit else "this checkout"
    return Code(name, PROJECT_ROOT)


@contextmanager
def checked_out(name: str) -> Iterator[Code]:
    """Check a commit out into a temporary directory for the block. Raises GateError."""
    if (commit := commit_of(name)) is None:
        raise GateError(f"gate: '{name[:60]}' is no commit of this clone; see: git log")
    with Temporary("gate") as folder:
        root = Path(folder) / "code"
        try:
            git("worktree", "add", "--detach", "--quiet", str(root), commit)
            yield Code(commit[:8], root)
        finally:
            if root.exists():
                git("worktree", "remove", "--force", "--force", str(root))


# --- measuring ------------------------------------------------------------------------------------


def rounds(
    sides: Sequence[Code],
    work: Work,
    location: str,
    most: int,
    cancel: threading.Event,
) -> Iterator[tuple[Measured, ...]]:
    """Bench every side once a round, one after another. Each bench is recorded at `location`.

    Raises DsocrError.
    """
    words = ["bench", "--json", "--save", f"--history={location}", *work.words()]
    took = ""
    for number in range(most):
        order = sides if number % 2 == 0 else sides[::-1]
        started, watch = time.monotonic(), MachineWatch(gpu=False)
        names = " and ".join(code.name for code in sides)
        log.info("round %s of at most %s: %s%s", number + 1, most, names, took)
        found = [_measured(code, *code.run(words, cancel)) for code in order]
        took = f" ({time.monotonic() - started:.0f} s a round)"
        busy = watch.facts().get("contended") is True
        found = [replace(each, contended=busy) for each in found]
        yield tuple(found if order is sides else found[::-1])


def _measured(code: Code, exit_code: int, said: str, last: str) -> Measured:
    try:
        if exit_code:
            raise ValueError(last)
        bench = parse_json(said.strip().splitlines()[-1])
        [run_id], [engine] = bench["saved"], bench["engines"]
        rates = {name: engine[of]["median"] for name, of in RATES.items() if engine[of] is not None}
        stages = {name: each["milliseconds"]["median"] for name, each in engine["stages"].items()}
        return Measured(run_id, rates, stages, bench["device"]["name"])
    except (DsocrError, ValueError, LookupError, TypeError) as error:
        raise GateError(f"gate: the bench of {code.name}: {one_line(error)}") from error
