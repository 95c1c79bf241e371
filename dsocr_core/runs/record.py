"""Record of a run as a whole: the content of `run.json`."""

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
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.models.family import read_config
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.records import VENDOR, OcrResult
from dsocr_core.runs.schema import SCHEMA_VERSION
from dsocr_core.runs.shapes import OWN_MODEL
from dsocr_core.settings import Settings

Source = Literal[
    "dsocr", "llm-perf-opt", "vendor", "nsys", "ncu", "torch", "serving", "omnidocbench", "sweep"
]
SOURCES: tuple[Source, ...] = get_args(Source)

_LIBRARIES = ("torch", "transformers", "tokenizers", "flash-attn", "triton", "numpy", "pillow", "pypdfium2")
_PROFILERS = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""Variables that profilers set in the environment: nsys its session, all of them the library that CUDA or
NVTX loads.
"""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RecordError(DsocrError):
    """A run's record cannot be read or made; names the field and the cause."""


@dataclass(frozen=True)
class RunRecord:
    """One run. None means not known; nothing here is guessed.

    Tags, notes written later and verdicts are annotations of the history, not part of the record.
    """

    id: str
    """Letters, digits, `.`, `_` and `-`, at most 100; it names the run's directory."""
    created: str
    """ISO 8601 time in UTC at which the run was made."""
    source: Source
    """Maker of the run: this project, or what it was imported from."""
    command: str | None = None
    """The command line that makes the run again."""
    backends: tuple[str, ...] = ()
    engine: str | None = None
    device: str | None = None
    """`cpu`, `cuda`, `cuda:0`."""
    gpu: str | None = None
    """The GPU's name, None on a CPU."""
    host: str | None = None
    dtype: str | None = None
    attention: str | None = None
    preset: str | None = None
    profiled: bool = False
    """True where the times carry a profiler's overhead; such runs stay out of trends unless asked for."""
    git_commit: str | None = None
    git_dirty: bool | None = None
    """True where tracked files differed from the commit."""
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: str | None = None
    config: dict[str, Any] | None = None
    """The model's config.json, where a backend ran the checkpoint of the settings."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise RecordError(f"run id '{self.id[:60]}': give 1 to 100 letters, digits, '.', '_' or '-'")
        if self.source not in SOURCES:
            raise RecordError(f"run {self.id}: source '{self.source}' is none of {', '.join(SOURCES)}")
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
        """The record of a document of the current schema version. Raises RecordError."""
        given = {item.name: data[item.name] for item in fields(cls) if item.name in data}
        if "parity_rule" not in data or data["parity_rule"] in (2, 3):
            given["settings"] = _without_former_limits(given.get("settings"))
        try:
            for name, value in given.items():
                _check(name, value)
            return cls(**given | {"backends": tuple(given.get("backends", ()))})
        except (TypeError, ValueError) as error:
            raise RecordError(f"run record: {error}") from error


def _without_former_limits(settings: Any) -> Any:
    """The settings of a run of parity rule 2 or 3 without the limits of texts that were the defaults then."""
    tolerance = settings.get("tolerance") if isinstance(settings, dict) else None
    if not isinstance(tolerance, dict):
        return settings
    former = {"values": tolerance.get("values"), "character_error_rate": 0.02}.items()
    return settings | {"tolerance": dict(each for each in tolerance.items() if each not in former)}


def _check(name: str, value: Any) -> None:
    optional = name not in ("id", "created", "source", "backends", "profiled", *_MAPPINGS)
    kind: Any = str
    if name == "config" or name in _MAPPINGS:
        kind = dict
    elif name in ("profiled", "git_dirty"):
        kind = bool
    elif name == "backends":
        kind = (list, tuple)
    good = isinstance(value, kind) or (value is None and optional)
    if not good or (name == "backends" and not all(isinstance(backend, str) for backend in value)):
        raise TypeError(f"{name} is {type(value).__name__} {str(value)[:40]!r}")


_MAPPINGS = ("versions", "settings", "environment")


def time_of(created: str) -> datetime:
    """The moment a record names, in UTC without a zone. Raises RecordError on anything but ISO 8601."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError as error:
        raise RecordError(f"time '{created[:40]}' is not ISO 8601") from error
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def new_run_id(moment: datetime | None = None) -> str:
    """A name for a run of this project: its time in UTC and eight random digits."""
    return f"{moment or datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def record_run(
    settings: Settings,
    results: Iterable[OcrResult],
    command: str | None,
    profiled: bool = False,
    notes: str | None = None,
) -> RunRecord:
    """The record of a run that was just made here; what the results do not agree on is left None.

    `profiled` is for a profiler that this process cannot detect.
    """
    about = about_results(results)
    moment = datetime.now(UTC)
    commit, dirty = git_state()
    return RunRecord(
        id=new_run_id(moment),
        created=moment.isoformat(timespec="milliseconds"),
        source="dsocr",
        command=command,
        host=platform.node() or None,
        profiled=profiled or under_profiler(),
        git_commit=commit,
        git_dirty=dirty,
        versions=library_versions(),
        settings=in_any_clone(asdict(settings)),
        notes=notes,
        config=model_config(settings.checkpoint) if {*about["backends"]} & {*OWN_MODEL} else None,
        **about | {"environment": in_any_clone(about["environment"] | {"platform": platform.platform()})},
    )


def model_config(checkpoint: str) -> dict[str, Any] | None:
    """The config.json of a checkpoint; None where it cannot be read."""
    try:
        data, _ = read_config(Path(checkpoint.removeprefix("random:")))  # of which only the sizes are taken
    except DsocrError:
        return None
    return data if isinstance(data, dict) else None


def in_any_clone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a record, a checkpoint of the project named within it: where a clone lies decides nothing."""
    made = dict(values)
    for name, value in values.items():
        if isinstance(value, dict):
            made[name] = in_any_clone(value)
        elif name == "checkpoint" and isinstance(value, str):
            made[name] = value.replace(f"{PROJECT_ROOT}{os.sep}", "", 1)
    return made


def about_results(results: Iterable[OcrResult]) -> dict[str, Any]:
    """Derive the fields of a record from its results; None where they disagree."""
    results = list(results)
    of_backend: dict[str, list[OcrResult]] = {}
    for result in results:
        of_backend.setdefault(result.backend, []).append(result)
    environment = {}
    for backend, read in of_backend.items():
        names = dict.fromkeys(name for result in read for name in result.environment)
        has = {name: [each.environment[name] for each in read if name in each.environment] for name in names}
        environment[backend] = {name: agreed(values) for name, values in has.items()}
    # What a record says of engine, type and attention is that of one backend: our engine, where one read.
    own = of_backend.get(described_backend([*of_backend]) or "", [])
    device, name = (agreed(each.environment.get(of) for each in own) for of in ("device", "device_name"))
    return {
        "backends": tuple(of_backend),
        "engine": _engine([result.environment for result in own]),
        "device": device,
        "gpu": name if device is not None and device.startswith("cuda") else None,
        "dtype": agreed(result.inputs.dtype if result.inputs else None for result in own),
        "attention": agreed(result.inputs.attention if result.inputs else None for result in own),
        "preset": agreed(result.request.preset for result in results),
        "environment": environment,
    }


DRAFTED = ", with drafts"
"""Behind the name of an engine that verified drafts."""


def described_backend(backends: Sequence[str]) -> str | None:
    """The backend of a run whose engine, type and attention are the record's: the first but the vendor."""
    return next((backend for backend in backends if backend != VENDOR), next(iter(backends), None))


def _engine(environments: Sequence[Mapping[str, str]]) -> str | None:
    """The engine's name. Pages read together are told apart: the time of each holds its share of the others,
    and compares with no page read alone. So are pages with drafts: how fast they were the drafts decided."""
    name = agreed(environment.get("engine") for environment in environments)
    together = agreed(environment.get("batch") for environment in environments)
    if name and any("draft" in environment for environment in environments):
        return f"{name}{DRAFTED}"
    return f"{name}, {together} pages together" if name and together and together != "1" else name


def tolerance_of(record: RunRecord) -> Tolerance:
    """The tolerance under which a run was compared; the usual one where its record has none."""
    given = record.settings.get("tolerance")
    try:
        return Tolerance(**given) if isinstance(given, dict) else Tolerance()
    except (TypeError, DsocrError):
        return Tolerance()


def under_profiler() -> bool:
    """Tell whether a profiler has put itself into this process: Nsight Systems, Nsight Compute or CUPTI."""
    return any(os.environ.get(name) for name in _PROFILERS)


def library_versions() -> dict[str, str]:
    """Python's version and those of the libraries that decide results and times, as installed."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def git_state() -> tuple[str | None, bool | None]:
    """Commit of the project and whether tracked files differ from it; (None, None) outside a clone."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PROJECT_ROOT), *arguments],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout  # fmt: skip

    try:
        if git("rev-parse", "--show-toplevel").strip() != str(PROJECT_ROOT):
            return None, None
        return git("rev-parse", "HEAD").strip(), bool(git("status", "--porcelain", "-uno").strip())
    except (OSError, subprocess.SubprocessError):
        return None, None


def agreed(values: Iterable[str | None]) -> str | None:
    """The one value that all have, else None."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def read_document(content: bytes) -> dict[str, Any]:
    """The JSON object of a file that may be anybody's, its size checked before. Raises RecordError."""
    try:
        return parse_json(content, any_number=True)
    except InvalidFile as error:
        raise RecordError(str(error)) from error


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str | None]]:
    """Nested settings as (dotted name, text); lists as JSON, None as None."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, str):
            yield prefix + key, value
        else:
            yield prefix + key, json.dumps(value, ensure_ascii=False)
