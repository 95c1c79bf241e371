"""Figures of a launch under Nsight Compute, one row: names of all versions and pages, one unit.

And the class of a launch, by a stated rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CLASS_RULE = (
    "as Nsight Compute's rule: memory: a cache or DRAM reaches 60 % of its peak with the SMs no busier; "
    "compute: the SMs reach 60 %; latency: neither does"
)
_BUSY = 60.0

FIGURES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "duration_s": (("Duration", "gpu__time_duration.sum", "gpu__time_duration.avg"), "s"),
    "sm": (
        ("Compute (SM) Throughput", "Compute (SM) [%]", "SM [%]", "SOL SM",
         "sm__throughput.avg.pct_of_peak_sustained_elapsed"), "%",
    ),
    "memory": (
        ("Memory Throughput", "Memory [%]", "SOL Memory",
         "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"), "%",
    ),
    "l1": (("L1/TEX Cache Throughput", "SOL L1/TEX Cache", "SOL TEX",
            "l1tex__throughput.avg.pct_of_peak_sustained_active"), "%"),
    "l2": (("L2 Cache Throughput", "SOL L2 Cache", "SOL L2",
            "lts__throughput.avg.pct_of_peak_sustained_elapsed"), "%"),
    "dram": (
        ("DRAM Throughput", "SOL DRAM", "SOL FB", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
         "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"), "%",
    ),
    "bandwidth": (("Memory Throughput", "dram__bytes.sum.per_second", "DRAM Bandwidth"), "B/s"),
    "occupancy": (("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"), "%"),
    "most_occupancy": (("Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"), "%"),
    "l1_hits": (("L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"), "%"),
    "l2_hits": (("L2 Hit Rate", "lts__t_sector_hit_rate.pct"), "%"),
    "issued": (
        ("One or More Eligible", "smsp__issue_active.avg.pct_of_peak_sustained_active"), "%",
    ),
    "eligible_warps": (("Eligible Warps Per Scheduler", "smsp__warps_eligible.avg.per_cycle_active"), ""),
    "active_warps": (("Active Warps Per Scheduler", "smsp__warps_active.avg.per_cycle_active"), ""),
    "bytes": (("dram__bytes.sum",), "B"),
    "bytes_read": (("dram__bytes_read.sum", "dram__bytes_op_read.sum"), "B"),
    "bytes_written": (("dram__bytes_write.sum", "dram__bytes_op_write.sum"), "B"),
    "frequency": (
        ("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second", "SM Frequency",
         "gpc__cycles_elapsed.avg.per_second"), "Hz",
    ),
    "cycles": (
        ("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.max", "Elapsed Cycles",
         "gpc__cycles_elapsed.max"), "",
    ),
    "invocations": (("Invocations",), ""),
    "dram_frequency": (("dram__cycles_elapsed.avg.per_second", "DRAM Frequency"), "Hz"),
    "dram_peak": (("dram__bytes.sum.peak_sustained", "Theoretical DRAM Bytes Accessible"), "B/cycle"),
    "ffma_peak": (
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
         "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"), "",
    ),
    "ffma_twice_peak": (
        ("derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2",
         "Theoretical Predicated-On FFMA Operations"), "",
    ),
    "tensor_peak": (
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained",
         "sm__ops_path_tensor_src_fp16_dst_fp32.sum.peak_sustained"), "",
    ),
    "tensor_pipe": (("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",), "%"),
}  # fmt: skip
"""Each figure by the names it has, and its unit here."""
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "registers": ("Block Limit Registers", "launch__occupancy_limit_registers"),
    "shared memory": ("Block Limit Shared Mem", "launch__occupancy_limit_shared_mem"),
    "warps": ("Block Limit Warps", "launch__occupancy_limit_warps"),
    "blocks": ("Block Limit SM", "launch__occupancy_limit_blocks"),
    "barriers": ("Block Limit Barriers", "launch__occupancy_limit_barriers"),
}
_RATE = r"(\.per_cycle_elapsed|\.per_second)?"
_TENSOR_OPS = re.compile(rf"(sm__ops_path_tensor_src_[a-z0-9]+(?:_dst_[a-z0-9]+)?)\.sum{_RATE}")
"""Additions and multiplications on the tensor cores, each counted. Names that go on split these sums."""
_FLOAT_OPS = re.compile(
    rf"sm(?:sp)?__sass_thread_inst_executed_(op_[dfh](?:add|mul|fma)_pred_on)\.sum{_RATE}"
)
"""A thread's instructions in 64, 32 and 16 bits, outside the tensor cores: a fused one is two FLOPs."""
_TWICE = re.compile(
    r"derived__smsp__sass_thread_inst_executed_op_([dfh])fma_pred_on_x2|"
    r"Predicated-On ([DFH])FMA Operations Per Cycle"
)
"""Twice the fused instructions a cycle: the roofline section has it in their place."""
_LABEL = re.compile(r"Predicated-On ([DFH](?:ADD|MUL)) Thread Instructions Executed Per Cycle")
"""The other rates of the section on the details page."""
_TENSOR_INSTRUCTIONS = re.compile(r"sm__inst_executed_pipe_tensor[a-z0-9_]*\.sum")
"""FLOPs of one depend on the card: where there are some, FLOPs were not counted whole."""
_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BASES = {"s": "s", "second": "s", "sec": "s", "hz": "Hz", "Hz": "Hz", "byte": "B", "B": "B"}
_RATES = {None: "", "/second": "/s", "/s": "/s", "/cycle": "/cycle"}
_UNIT = re.compile(r"([numkKMGT]?)(byte|second|sec|B|s|[hH]z)(/(?:second|s|cycle))?")
_OF_CLOCKS = {
    "cycle/nsecond": "Ghz", "cycle/usecond": "Mhz", "cycle/msecond": "Khz",
    "cycle/second": "hz", "cycle/s": "hz",
}  # fmt: skip


def in_unit(value: float, unit: str | None, wanted: str) -> float | None:
    """Convert a figure from its printed unit to s, B, B/s, B/cycle, Hz, % or none; None from another."""
    if wanted in ("%", ""):
        return value if (unit == "%") == (wanted == "%") else None
    match = _UNIT.fullmatch(_OF_CLOCKS.get(unit or "", unit or ""))
    if match is None or _BASES[match[2]] + _RATES[match[3]] != wanted:
        return None
    return value * _PREFIX[match[1]]


def figures(metrics: Iterable[Mapping[str, Any]]) -> dict[str, float | str | None]:
    """The figures of one launch from its metrics (metric, value, unit). None is not measured.

    With them `limiter`, what holds back its occupancy; `tensor_flops`, `flops` (those and float32's) and
    `bytes` of it; and `class`.
    """
    found: dict[str, list[tuple[float, str | None]]] = {}
    counted: dict[str, float] = {}
    for metric in metrics:
        value, name = metric["value"], metric["metric"]
        if value is None or not value >= 0:
            continue
        unit = metric["unit"] if isinstance(metric["unit"], str) else None
        # Two metrics of one name in different units lie as "name" and "name (unit)".
        plain = name.removesuffix(f" ({unit})") if unit else name
        found.setdefault(plain, []).append((float(value), unit))
        counted.setdefault(name, float(value))
    row: dict[str, float | str | None] = {
        name: _figure(found, names, unit) for name, (names, unit) in FIGURES.items()
    }
    row["limiter"] = _limiter({name: values[0][0] for name, values in found.items()})
    if row["duration_s"] is None and row["cycles"] and row["frequency"]:
        row["duration_s"] = float(row["cycles"]) / float(row["frequency"])
    row |= _flops(counted, row)
    row["bytes"] = _moved(row)
    row["class"] = class_of(row)
    return row


def _flops(metrics: Mapping[str, float], row: Mapping[str, Any]) -> dict[str, float | None]:
    """FLOPs of the tensor cores and of all; None where nothing was counted, or only what was not used."""
    seconds = row["duration_s"]
    cycles = row["frequency"] * seconds if row["frequency"] and seconds else row["cycles"]
    times = {"": 1.0, ".per_second": seconds, ".per_cycle_elapsed": cycles}
    tensor: dict[str, float] = {}
    others: dict[str, float] = {}
    for name in sorted(metrics, key=len):  # shortest names first: a count goes before a rate
        for pattern, into in ((_TENSOR_OPS, tensor), (_FLOAT_OPS, others)):
            match = pattern.fullmatch(name)
            if match is not None and (by := times[match[2] or ""]) is not None:
                into.setdefault(match[1], metrics[name] * by * (2 if "fma_" in match[1] else 1))
    for name, value in metrics.items() if cycles else ():
        for pattern, fused in ((_TWICE, "fma"), (_LABEL, "")):
            if match := pattern.fullmatch(name):
                kind = next(filter(None, match.groups())).lower() + fused
                others.setdefault(f"op_{kind}_pred_on", value * cycles)
    unknown = any(value for name, value in metrics.items() if _TENSOR_INSTRUCTIONS.fullmatch(name))
    whole = bool(tensor) or not unknown
    return {
        "tensor_flops": sum(tensor.values()) if tensor else None,
        "flops": (sum(tensor.values()) + sum(others.values()) or None) if whole else None,
    }


def class_of(row: Mapping[str, Any]) -> str | None:
    """The class by `CLASS_RULE`; None where the SMs' or DRAM's share was not measured."""
    sm, dram = row["sm"], row["dram"]
    if sm is None or dram is None:
        return None
    if (busiest := max(row["memory"] or 0.0, dram)) >= _BUSY and busiest >= sm:
        return "memory"
    return "compute" if sm >= _BUSY else "latency"


def _figure(
    found: Mapping[str, Sequence[tuple[float, str | None]]], names: Sequence[str], wanted: str
) -> float | None:
    for name in names:
        for value, unit in found.get(name, ()):
            converted = in_unit(value, unit, wanted)
            if converted is not None:
                return converted
    return None


def _limiter(values: Mapping[str, float]) -> str | None:
    """Name the limits that allow the fewest blocks on an SM."""
    limits = {
        word: value
        for word, names in _LIMITS.items()
        if (value := next((values[name] for name in names if name in values), 0.0)) > 0
    }
    least = min(limits.values(), default=None)
    return " and ".join(word for word, value in limits.items() if value == least) or None


def _moved(row: Mapping[str, Any]) -> float | None:
    """Bytes to and from DRAM: counted, else what the bandwidth made of the duration."""
    if row["bytes"] is not None:
        return float(row["bytes"])
    if row["bytes_read"] is not None and row["bytes_written"] is not None:
        return float(row["bytes_read"]) + float(row["bytes_written"])
    if row["bandwidth"] is not None and row["duration_s"] is not None:
        return float(row["bandwidth"]) * float(row["duration_s"])
    return None
