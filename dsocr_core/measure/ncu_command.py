"""The command line of Nsight Compute that profiles the launches of one stage: sections, metrics, range."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr_core.models.stages import Stage
from dsocr_core.settings import EngineName, Settings

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
