"""The record of a run as a whole, the content of `run.json`, and the run that a command or the app leaves."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import secrets
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.sanitise import encodable
from dsocr_core.models.family import read_config
from dsocr_core.reading.jsonable import from_jsonable
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import RULE, Tolerance
from dsocr_core.reading.records import SIDES, VENDOR, OcrResult
from dsocr_core.reading.writing import require_writable
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.runs.shapes import OWN_MODEL
from dsocr_core.runs.storage import RunStorage
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.runs.run_directory import CountRows

Source = Literal[
    "dsocr", "llm-perf-opt", "vendor", "nsys", "ncu", "torch", "serving", "omnidocbench", "sweep"
]
SCHEMA_VERSION = 4
"""Version of a run; others are named and not read."""
OTHER_VERSION = "recorded by another version"
"""Begins the reason for which a run is not read that is none of damage."""
CANCELLED = "Cancelled: it holds what was finished by then."
DRAFTED = ", with drafts"  # behind the name of an engine that verified drafts

_LIBRARIES = ("torch", "transformers", "tokenizers", "flash-attn", "triton", "numpy", "pillow", "pypdfium2")
_PROFILERS = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""Variables that profilers set in the environment: nsys its session, all of them the library that CUDA or
NVTX loads.
"""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class RunRecord:
    """One run. None means not known; nothing here is guessed.

    Tags, notes written later and verdicts are annotations of the history, not part of the record.
    """

    id: str  # letters, digits, `.`, `_` and `-`, at most 100; it names the run's directory
    created: str  # ISO 8601 time in UTC at which the run was made
    source: Source  # maker of the run: this project, or what it was imported from
    command: str | None = None  # the command line that makes the run again
    backends: tuple[str, ...] = ()
    engine: str | None = None
    device: str | None = None  # `cpu`, `cuda`, `cuda:0`
    gpu: str | None = None  # the GPU's name, None on a CPU
    host: str | None = None
    dtype: str | None = None
    attention: str | None = None
    preset: str | None = None
    profiled: bool = False
    """True where the times carry a profiler's overhead; such runs stay out of trends unless asked for."""
    git_commit: str | None = None
    git_dirty: bool | None = None  # True where tracked files differed from the commit
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: str | None = None
    config: dict[str, Any] | None = None
    """The model's config.json, where a backend ran the checkpoint of the settings."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise DsocrError(f"run id '{self.id[:60]}': give 1 to 100 letters, digits, '.', '_' or '-'")
        time_of(self.created)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, the schema version among them."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self), "backends": list(self.backends)}

    @property
    def contended(self) -> bool:
        """Tell whether other programs took much of the machine meanwhile; False where it is not known."""
        machine = self.environment.get("machine")
        return isinstance(machine, dict) and machine.get("contended") is True

    @property
    def drafted(self) -> bool:
        """Tell whether its engine verified drafts."""
        return (self.engine or "").endswith(DRAFTED)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunRecord:
        """The record of a document. Raises DsocrError for one of another version, or of none."""
        version = data.get("schema_version")
        if type(version) is not int or version < 1:
            raise DsocrError(f"schema version is {str(version)[:40]!r}: not a run of this project")
        if version != SCHEMA_VERSION:
            way_out = "record it anew" if version < SCHEMA_VERSION else "update the program"
            raise DsocrError(f"{OTHER_VERSION} (schema {version}): {way_out}")
        values = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        if data.get("parity_rule") in (None, 2, 3):
            values["settings"] = _without_former_limits(values.get("settings", {}))
        try:
            return from_jsonable(cls, values)
        except (TypeError, ValueError) as error:
            raise DsocrError(f"run record: {error}") from error


def parity_rule_of(document: Mapping[str, Any]) -> int:
    """Today's rule where a run's verdicts are of it, else 0, which no rule has."""
    return RULE if document.get("parity_rule") == RULE else 0


def _without_former_limits(settings: Any) -> Any:
    """The settings of a run of parity rule 2 or 3 without the limits of texts that were the defaults then."""
    if not isinstance(settings, dict) or not isinstance(former := settings.get("tolerance"), dict):
        return settings
    former_defaults = (("character_error_rate", 0.02), ("values", former.get("values")))
    return settings | {"tolerance": dict(each for each in former.items() if each not in former_defaults)}


def time_of(created: str) -> datetime:
    """The time a record names, in UTC without a zone. Raises DsocrError on anything but ISO 8601."""
    try:
        time = datetime.fromisoformat(created)
        return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError) as error:
        raise DsocrError(f"time '{created[:40]}' is not ISO 8601") from error


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str | None]]:
    """Nested settings as (dotted name, text); lists as JSON, None as None."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, str):
            yield prefix + key, value
        else:
            yield prefix + key, json.dumps(value, ensure_ascii=False)


def tolerance_of(record: RunRecord) -> Tolerance:
    """The tolerance under which a run was compared; the default where its record has none."""
    values = record.settings.get("tolerance")
    try:
        return Tolerance(**values) if isinstance(values, dict) else Tolerance()
    except (TypeError, DsocrError):
        return Tolerance()


# --- of a run that is made here ---------------------------------------------------------------------


def record_run(
    settings: Settings, results: Iterable[OcrResult], command: str | None, notes: str | None = None
) -> RunRecord:
    """Record a run just made. Values on which its results disagree are None."""
    about, now = _about_results([*results], settings.side_names), datetime.now(UTC)
    commit, dirty = _git_state()
    config = None
    if {*about["backends"]} & {*OWN_MODEL}:
        with contextlib.suppress(DsocrError):
            config, _ = read_config(Path(settings.checkpoint.removeprefix("random:")))
    return RunRecord(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
        created=now.isoformat(timespec="milliseconds"),
        source="dsocr",
        command=command,
        host=platform.node() or None,
        profiled=any(os.environ.get(name) for name in _PROFILERS),
        git_commit=commit,
        git_dirty=dirty,
        versions=_library_versions(),
        settings=in_any_clone(asdict(settings)),
        notes=notes,
        config=config if isinstance(config, dict) else None,
        **about | {"environment": in_any_clone(about["environment"] | {"platform": platform.platform()})},
    )


def in_any_clone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a record, a checkpoint of the project named within it: where a clone lies decides nothing."""
    made = {name: in_any_clone(value) if isinstance(value, dict) else value for name, value in values.items()}
    if isinstance(checkpoint := values.get("checkpoint"), str):
        made["checkpoint"] = checkpoint.replace(f"{PROJECT_ROOT}{os.sep}", "", 1)
    return made


def _about_results(results: Sequence[OcrResult], order: Sequence[str]) -> dict[str, Any]:
    """Derive the fields of a record from its results; None where they disagree."""
    found = dict.fromkeys(result.backend for result in results)
    backends, environment = tuple(sorted(found, key=[*order, *found].index)), {}
    for backend in backends:
        read = [result.environment for result in results if result.backend == backend]
        names = dict.fromkeys(chain.from_iterable(read))
        environment[backend] = {name: agreed(has[name] for has in read if name in has) for name in names}
    # What a record says of engine, type and attention is that of one backend: our engine, where one read.
    own = [result for result in results if result.backend == described_backend(backends)]
    device, card = (agreed(one.environment.get(name) for one in own) for name in ("device", "device_name"))
    return {
        "backends": backends,
        "engine": _engine([result.environment for result in own]),
        "device": device,
        "gpu": card if device is not None and device.startswith("cuda") else None,
        "dtype": agreed(getattr(result.inputs, "dtype", None) for result in own),
        "attention": agreed(getattr(result.inputs, "attention", None) for result in own),
        "preset": agreed(result.request.preset for result in results),
        "environment": environment,
    }


def described_backend(backends: Sequence[str]) -> str | None:
    """Backend that the record's engine, dtype and attention describe: the first besides the vendor."""
    return next((backend for backend in backends if backend != VENDOR), next(iter(backends), None))


def _engine(environments: Sequence[Mapping[str, str]]) -> str | None:
    """The engine's name, with what makes times differ from those of a page read alone: batch and drafts."""
    name = agreed(environment.get("engine") for environment in environments)
    together = agreed(environment.get("batch") for environment in environments)
    if name and any("draft" in environment for environment in environments):
        return f"{name}{DRAFTED}"
    return f"{name}, {together} pages together" if name and together and together != "1" else name


def _library_versions() -> dict[str, str]:
    """Python's version and those of the libraries that decide results and times, as installed."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _git_state() -> tuple[str | None, bool | None]:
    """Commit of the project and whether tracked files differ from it; (None, None) outside a clone."""
    words = ["describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    if (PROJECT_ROOT / ".git").exists():  # it may lie within another project's clone
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["git", "-C", str(PROJECT_ROOT), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            return done.stdout.strip().removesuffix("+"), done.stdout.strip().endswith("+")
    return None, None


def agreed(values: Iterable[str | None]) -> str | None:
    """The one value that all have, else None."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


# --- recording --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Recording:
    """Makes a run of its pages when the block ends, however it ends; without a page none is written.

    The run is in the history, or in a directory of its own, from which a new one is saved in the history too.
    One that was cancelled, or ended by an error, says so. Nothing of a page stays in memory.
    """

    settings: Settings
    command: str | None = None
    out: Path | None = None  # a directory of its own
    save: bool = True  # into the history
    count: CountRows | None = None  # counter of rows of stage_flops
    machine: MachineWatch = field(default_factory=MachineWatch)  # since before the first page began
    notes: str | None = None  # why the run ended early
    id: str | None = None  # in the history, once it is there

    def __enter__(self) -> Recording:
        """Refuse what cannot be written; take up what a killed writer left. Raises DsocrError."""
        from dsocr_core.runs.run_directory import RunDirectory  # pyarrow comes with it

        history = history_location(self.settings)
        if self.save:
            require_writable(RunStorage(history).root)
            if self.out is not None and (self.out / "readings.parquet").exists():
                raise DsocrError(
                    f"{self.out}: has a run already, which cannot grow and be saved; leave --save out, and "
                    "import the directory when it is whole"
                )
        self.record = record_run(self.settings, (), self.command)
        """The run before its first page: nothing measured. Its id does not change later."""
        self.run = RunDirectory.open(self.out) if self.out else RunDirectory.create(history, self.record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.closing(self.run):
            if isinstance(error, Cancelled | KeyboardInterrupt):
                self.notes = CANCELLED
            elif error is not None:
                words = encodable(one_line(error))
                self.notes = f"Ended by an error, with what was finished by then: {words}"
            if self.run.has_parts:
                self._finish()

    def add(self, source: str, comparison: Comparison, **more: Any) -> None:
        """Record A's and B's results of a page. `more` is as in `PageResults`. Raises StorageError."""
        from dsocr_core.runs.results import PageResults, parity_of

        names = dict(zip(SIDES, self.settings.side_names, strict=True))
        why = {names[side]: error for side, error in comparison.errors.items()}
        found, parity = [*comparison.results.values()], parity_of(source, comparison)
        self.run.add(PageResults(source, comparison.request.image, found, why, parity, **more))

    def _finish(self) -> None:
        """Write the run: only now all results are there, what they agree on, and how busy the machine was."""
        made, first = record_run(self.settings, self.run.facts(), self.command, self.notes), self.record
        environment = made.environment | {"machine": dict(self.machine.facts())}
        made = replace(made, id=first.id, created=first.created, environment=environment)
        self.run.finish(made, self.count)
        if self.out is not None and self.save:
            self.run.save_in(history_location(self.settings), first.id)
        self.id = first.id if self.save else None
