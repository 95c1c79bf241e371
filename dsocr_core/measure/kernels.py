"""The kernels of one stage under Nsight Compute, taken into the history.

    dsocr measure kernels --stage decode --engine fast --checkpoint random:CONFIG

Runs `bench --nvtx-only` under `ncu`, which profiles the launches inside the stage's NVTX range one by one,
and reads the table it writes. ncu has to be installed, and reading a GPU's counters may need a right.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from dsocr_core.base.console import print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.temporary import Temporary
from dsocr_core.base.untrusted import Refused, read_bytes
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import Stage
from dsocr_core.runs.importers.ncu import NCU_LIMIT, launch_rows
from dsocr_core.runs.importers.ncu_csv import Launch, launches
from dsocr_core.runs.importers.reading import as_text
from dsocr_core.runs.record import record_run
from dsocr_core.runs.storage.entries import open_storage
from dsocr_core.runs.store import DEFAULT_LOCATION
from dsocr_core.runs.writer import RunWriter
from dsocr_core.settings import EngineName, Settings, SettingsError, history_location

SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "MemoryWorkloadAnalysis", "Occupancy", "SchedulerStats",
    "LaunchStats",
)  # fmt: skip
BRIEF_SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats")
OPERATIONS = (
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
)
"""Counters of what is computed: on the tensor cores each addition and multiplication is counted, else
instructions.
"""
TRAFFIC = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_TENSOR_PIPE = ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",)
_OF_LEFT_OUT_SECTIONS = (
    "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__warps_active.avg.per_cycle_active",
)  # fmt: skip
"""The figures of the sections that `brief` leaves out."""


@dataclass(frozen=True)
class Profile:
    """Plan of a profile: launches `skip` .. `skip + count - 1` of a stage."""

    stage: Stage
    engine: EngineName
    skip: int
    count: int
    tokens: int
    ncu: str = "ncu"
    """Its name on the PATH, or its path."""
    brief: bool = False
    """Fewer sections, so fewer replays of each launch: for the eager engine's thousand launches a token."""
    seconds: float = 1800.0
    """ncu runs each kernel several times: what takes longer is ended."""

    @property
    def sections(self) -> tuple[str, ...]:
        return BRIEF_SECTIONS if self.brief else SECTIONS

    @property
    def metrics(self) -> tuple[str, ...]:
        """List what a roofline needs beyond the sections, and what a brief profile has no section for."""
        return OPERATIONS + TRAFFIC + _TENSOR_PIPE + (_OF_LEFT_OUT_SECTIONS if self.brief else ())


def command(profile: Profile, settings: Settings, table: Path) -> list[str]:
    """The command line that writes the table. Units are whole ones, so that short times keep their digits."""
    sections = [word for section in profile.sections for word in ("--section", section)]
    bench = [
        sys.executable, "-m", "dsocr_core", "bench", "--nvtx-only", "--repeat", "1",
        "--tokens", str(profile.tokens), "--engine", profile.engine, "--preset", settings.preset,
        "--checkpoint", settings.checkpoint,
    ]  # fmt: skip
    return [
        profile.ncu, "--csv", "--page", "details", "--print-units", "base", "--log-file", str(table),
        "--clock-control", "none", "--nvtx", "--nvtx-include", f"{profile.stage.value}/",
        "--launch-skip", str(profile.skip), "--launch-count", str(profile.count), *sections,
        "--metrics", ",".join(profile.metrics), *bench,
    ]  # fmt: skip


def shown(words: Sequence[str], table: Path) -> str:
    """The command line for people to run: nothing of this machine in it."""
    changed = {str(table): table.name, sys.executable: "python"}
    return shlex.join([Path(words[0]).name, *(changed.get(word, word) for word in words[1:])])


_LAST_LINES = 3


class ProfileError(DsocrError):
    """ncu is not there, or did not give a table; says what it printed."""


def profile_stage(profile: Profile, settings: Settings, location: str | None = None) -> tuple[str, int]:
    """Profile, and record it as a run; returns its id and the number of launches. Raises ProfileError."""
    found = shutil.which(profile.ncu)
    if found is None:
        raise ProfileError(
            f"{profile.ncu} is not installed: it comes with the CUDA toolkit; --ncu names another place"
        )
    profile = replace(profile, ncu=found)
    with Temporary("ncu") as folder:
        table = Path(folder) / "ncu.details.csv"
        words = command(profile, settings, table)
        measured = _table(words, table, profile)
    record = record_run(settings, (), shown(words, table), notes=_note(profile, measured))
    record = replace(
        record,
        backends=(profile.engine,),
        engine=profile.engine,
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        profiled=True,
        preset=settings.preset,
    )
    with RunWriter(open_storage(location or DEFAULT_LOCATION), record) as run:
        for name, rows in launch_rows(measured).items():
            run.add(name, rows)
    return record.id, len(measured)


def _table(words: Sequence[str], table: Path, profile: Profile) -> tuple[Launch, ...]:
    try:
        done = subprocess.run(
            words, capture_output=True, timeout=profile.seconds, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ProfileError(
            f"ncu took longer than {profile.seconds:g} s: profile fewer launches with --count"
        ) from error
    except OSError as error:
        raise ProfileError(f"{words[0]} cannot be started ({error.strerror})") from error
    try:
        measured = launches(as_text(read_bytes(table, NCU_LIMIT)))
    except Refused as error:
        said = _last_lines(table) or done.stderr.decode("utf-8", "replace").strip()
        last = " | ".join(said.splitlines()[-_LAST_LINES:])[:600]
        raise ProfileError(f"ncu gave no table ({error}), exit code {done.returncode}: {last}") from error
    for launch in measured:
        # The range it was limited to; a graph's launches may carry none.
        launch.stage = launch.stage or profile.stage
    return measured


def _last_lines(table: Path) -> str:
    try:
        return read_bytes(table, NCU_LIMIT).decode("utf-8", "replace").strip()
    except Refused:
        return ""


def _note(profile: Profile, measured: Sequence[Launch]) -> str:
    names = len({launch.kernel for launch in measured})
    return f"Nsight Compute, stage {profile.stage.value}: {len(measured)} launches of {names} kernels."


def run(
    settings: Settings,
    *,
    stage: str,
    tokens: int = 3,
    skip: int = 0,
    count: int = 100,
    brief: bool = False,
    ncu: str = "ncu",
    json: bool = False,
    console: Console,
) -> None:
    """Profile the kernels of a stage with Nsight Compute, into the history.

    Args:
        stage: whose kernels, like decode
        tokens: new tokens of the page; 2 are one decode step
        skip: launches of the stage to leave out first
        count: launches to profile at most
        brief: fewer figures and rules, fewer replays of a launch: for a thousand launches
        ncu: Nsight Compute's command line
    """
    if stage not in all_stages():
        raise SettingsError(f"--stage is '{stage[:40]}': give one of {', '.join(all_stages())}")
    profile = Profile(Stage(stage), settings.engine, skip, count, tokens, ncu, brief)
    run_id, launched = profile_stage(profile, settings, history_location(settings))
    if json:
        print_json({"run": run_id, "stage": stage, "engine": settings.engine, "launches": launched})
    else:
        console.print(f"{launched} launches of {stage} recorded as run {run_id}", markup=False)
