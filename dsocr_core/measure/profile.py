"""Kernels of one stage under Nsight Compute, recorded in the history.

Runs `bench --nvtx-only` under `ncu`, which profiles the launches inside the stage's NVTX range one by one,
and reads its table. ncu must be installed, and reading a GPU's counters may need a permission.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import Temporary
from dsocr_core.models.stages import Stage
from dsocr_core.runs.importers.imported import TABLE_LIMIT, as_text
from dsocr_core.runs.importers.ncu import Launches, as_tables, count, launches_of
from dsocr_core.runs.importers.tables import find_tables
from dsocr_core.runs.record import record_run
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings

SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "MemoryWorkloadAnalysis", "Occupancy", "SchedulerStats",
    "LaunchStats",
)  # fmt: skip
METRICS = (
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "dram__bytes_read.sum", "dram__bytes_write.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
)  # fmt: skip
"""Metrics of a roofline beside the sections: operations, of which tensor cores count each addition and each
multiplication, else instructions; and the device memory's traffic."""
_SECONDS, _LAST_LINES = 1800.0, 3


class ProfileError(DsocrError):
    """ncu is missing, or wrote no table; has what it printed."""


@dataclass(frozen=True)
class Profile:
    """Plan of a profile: launches `skip` .. `skip + count - 1` of a stage, on a page of `tokens` tokens."""

    stage: Stage
    skip: int
    count: int
    tokens: int

    def command(self, settings: Settings, table: Path) -> list[str]:
        """Command line that writes the table. Base units keep the digits of short times."""
        bench = [
            sys.executable, "-m", "dsocr_core", "bench", "--nvtx-only", "--repeat", "1",
            "--tokens", str(self.tokens), "--engine", settings.engine, "--preset", settings.preset,
            "--checkpoint", settings.checkpoint,
        ]  # fmt: skip
        return [
            "ncu", "--csv", "--page", "details", "--print-units", "base", "--log-file", str(table),
            "--clock-control", "none", "--nvtx", "--nvtx-include", f"{self.stage.value}/",
            "--launch-skip", str(self.skip), "--launch-count", str(self.count),
            *(word for section in SECTIONS for word in ("--section", section)),
            "--metrics", ",".join(METRICS), *bench,
        ]  # fmt: skip


def profile_stage(profile: Profile, settings: Settings, location: str) -> tuple[str, int]:
    """Profile a stage and record a run. Returns its id and the number of launches. Raises ProfileError."""
    with Temporary("ncu") as folder:
        table = Path(folder) / "ncu.details.csv"
        words = profile.command(settings, table)
        measured = _measured(words, table, profile.stage)
    without_paths = {str(table): table.name, sys.executable: "python"}
    typed = shlex.join([Path(words[0]).name, *(without_paths.get(word, word) for word in words[1:])])
    note = f"Nsight Compute, stage {profile.stage.value}: {count(measured)}."
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    record = replace(
        record_run(settings, (), typed, notes=note), backends=(settings.engine,), engine=settings.engine,
        gpu=gpu, profiled=True, preset=settings.preset,
    )  # fmt: skip
    with RunDirectory.create(location, record) as run:
        for name, rows in as_tables(measured).items():
            run.add_rows(name, rows)
    return record.id, len(measured["kernel_launches"])


def _measured(words: Sequence[str], table: Path, stage: Stage) -> Launches:
    """Run ncu and read its table. Raises ProfileError."""
    said = b""
    try:
        done = subprocess.run(words, capture_output=True, timeout=_SECONDS, check=False)
        said = done.stderr
        said = read_bytes(table, TABLE_LIMIT) or said
        measured = launches_of(find_tables(as_text(said))[0].values())
    except subprocess.TimeoutExpired as error:
        why = f"ncu took longer than {_SECONDS:g} s: profile fewer launches with --count"
        raise ProfileError(why) from error
    except OSError as error:
        way = "it comes with the CUDA toolkit; put its folder on the PATH"
        raise ProfileError(f"{words[0]} cannot be started ({error.strerror}): {way}") from error
    except InvalidFile as error:
        last = " | ".join(said.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:])[:600]
        raise ProfileError(f"ncu gave no table ({error}), exit code {done.returncode}: {last}") from error
    # Launches of a graph may have no range.
    launches = measured["kernel_launches"]
    measured["kernel_launches"] = launches.assign(stage=launches["stage"].fillna(stage.value))
    return measured
