"""Runs one command of a checkout of this project and writes what it measured, with the machine's state.

    python recorder.py OUT.json.gz COMMIT ARGUMENT...      in the root of the checkout of COMMIT

runs `python -m dsocr_core ARGUMENT...` in this process. The standard library alone, and nothing of this
project but that checkout: older commits are measured by their own code. `recorded_runs` makes runs of it.
"""

from __future__ import annotations

import dataclasses
import gzip
import importlib
import importlib.metadata
import json
import os
import platform
import runpy
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

FORMAT = 1
SAMPLE_MS = 200
BENCH_MODULES = ("dsocr_core.measure.bench_report", "dsocr_core.bench_report")
"""Modules of the class `Bench`, in later and in earlier commits."""
VERSIONS = ("torch", "triton", "transformers", "tokenizers", "numpy", "pillow")
BUSY_PERCENT = 5
"""Utilisation from which on a sample of clocks and power counts: an idle GPU lowers both."""
_SAMPLED = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
}
_LIMITS = {"sm_clock_limit_mhz": "clocks.max.sm", "power_limit_w": "power.limit", "driver": "driver_version"}


def main(arguments: list[str]) -> int:
    out, commit, command = Path(arguments[0]).resolve(), arguments[1], arguments[2:]
    runs = tempfile.TemporaryDirectory(prefix="recorded-")
    os.environ["DSOCR_RUNS"] = runs.name
    sys.path.insert(0, str(Path.cwd()))
    benches: list[Any] = []
    if command[0] == "bench":
        _collect_benches(benches)
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    load = os.getloadavg()[0]
    with GpuSampler() as sampler:
        code = _run(command)
    results = _bench_results(benches[-1]) if benches else _cached_results(Path(runs.name) / "results")
    recorded = portable({
        "format": FORMAT,
        "command": shlex.join(["python", "-m", "dsocr_core", *command]),
        "commit": commit,
        "created": created,
        "exit_code": code,
        "versions": versions(),
        "machine": machine() | {"load_average_before": round(load, 2)},
        "gpu_state": sampler.summary(),
        "bench": benches[-1].document() if benches else None,
        "results": results,
    }, str(Path.cwd()))  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(out, "wt", encoding="utf-8") as file:
        json.dump(recorded, file, ensure_ascii=False, default=str)
    runs.cleanup()
    return code


def _run(command: list[str]) -> int:
    sys.argv = ["dsocr_core", *command]
    try:
        runpy.run_module("dsocr_core", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


# --- what was measured ----------------------------------------------------------------------------


def _collect_benches(benches: list[Any]) -> None:
    """A bench prints its figures as `document()`; it is collected there, with the results behind them."""
    there = (name for name in BENCH_MODULES if Path(*name.split(".")).with_suffix(".py").is_file())
    name = next(there, None)
    if name is None:
        raise SystemExit("no class Bench in this checkout: give a commit that has the command")
    kind = importlib.import_module(name).Bench
    document = kind.document

    def collected(self: Any) -> Any:
        if not any(self is bench for bench in benches):
            benches.append(self)
        return document(self)

    kind.document = collected


def _bench_results(bench: Any) -> list[dict[str, Any]]:
    """List the results of the measured passes, in order; without the text that random weights write."""
    rows = [dataclasses.asdict(result) for of_engine in bench.results.values() for result in of_engine]
    for row in rows:  # the page was drawn into a temporary directory
        row["request"]["image"] = Path(row["request"]["image"]).name
        row |= {"text_raw": "", "token_texts": [], "top_two": []}
    return rows


def _cached_results(directory: Path) -> list[dict[str, Any]]:
    """Read what the backends gave, from the result cache of this command alone."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(directory.glob("*.json"))]
    return [recorded["result"] for recorded in sorted(found, key=lambda recorded: str(recorded["created"]))]


def portable(value: Any, root: str) -> Any:
    """JSON-ready values; paths inside the checkout `root` are written relative to it."""
    if isinstance(value, dict):
        return {str(key): portable(item, root) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [portable(item, root) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    return "." if text == root else text.replace(f"{root}/", "")


# --- the machine ----------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Processor, cores, memory and the GPU's limits; never the machine's name."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found: dict[str, Any] = {"cpu": model, "cores": os.cpu_count(), "memory_gb": round(memory / 1e9)}
    if (limits := _query(*_LIMITS.values())) is not None:
        found |= {name: _number(value) for name, value in zip(_LIMITS, limits, strict=True)}
    return found


def versions() -> dict[str, str]:
    """List versions of Python and the packages that decide what is measured."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def gpu_name() -> str | None:
    """None without a GPU of NVIDIA."""
    found = _query("name")
    return found[0] if found else None


def _query(*fields: str) -> list[str] | None:
    try:
        line = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout.splitlines()[0]  # fmt: skip
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    return [value.strip() for value in line.split(",")]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


class GpuSampler:
    """Clocks, power and temperature of the first GPU while the block runs; nothing without one."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> GpuSampler:
        fields = ",".join(["utilization.gpu", *_SAMPLED.values()])
        try:
            self._process = subprocess.Popen(
                ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits",
                 "-lms", str(SAMPLE_MS)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        except OSError:
            return self
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._thread.join(5)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._rows.append([float(value) for value in line.split(",")])
            except ValueError:
                continue

    def summary(self) -> dict[str, Any] | None:
        """Median, least and most of each figure over the samples in which the GPU was busy."""
        busy = [row[1:] for row in self._rows if row[0] >= BUSY_PERCENT]
        if not busy:
            return None
        columns = zip(_SAMPLED, zip(*busy, strict=True), strict=True)
        figures = {
            name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for name, values in columns
        }
        return {"samples": len(busy), **figures}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
