"""`flops NAME`: report, sweep, verify: what a page costs by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from analytic_model.hardware import Hardware, hardware_named, with_figures
from analytic_model.policy import Attention, Causal, Dtype, LmHead, Policy
from analytic_model.predict import decode_step, kv_cache_bytes, predict
from analytic_model.requirements import Target, requirements, sentence
from analytic_model.sweep import ENGINES, Axis, Engine, Quantity, spread, sweep
from analytic_model.workload import Workload
from dsocr_core.base.console import FAILED, OK, print_json, titled_table
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import amount, percent
from dsocr_core.base.sanitise import visible
from dsocr_core.cli.history import Where, records
from dsocr_core.cli.options import Command
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config
from dsocr_core.reading.spreadsheet import frame_csv

if TYPE_CHECKING:
    import pandas as pd

    from analytic_model.verify import Verification

A4 = (1654, 2339)
"""Pixels at 200 dpi."""
_USUAL = "h200"
SHOWN = 10
"""Rows over the tolerance that are printed, the worst first; --json has them all."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The model, the page and its tokens.

    Args:
        config: config.json or the directory of one
        width: of the page in pixels
        height: of the page in pixels
        preset: tiny, small, base, large or gundam
        prompt_tokens: text tokens of the prompt, bos included
        decode_tokens: new tokens (default: 1 of report, 100 of sweep)
        batch: pages of this shape side by side
        dtype: number type
        causal: prefill attention that is counted
        lm_head: prefill positions that get logits
        no_window_padding: leave out the zeros in SAM's last windows
    """

    config: Path | None = None
    width: int = A4[0]
    height: int = A4[1]
    preset: str = "gundam"
    prompt_tokens: int = 10
    decode_tokens: int | None = None
    batch: int = 1
    dtype: Dtype = "bfloat16"
    causal: Causal = "full"
    lm_head: LmHead = "last"
    no_window_padding: bool = False

    @property
    def model(self) -> ModelConfig:
        """Raises ConfigError."""
        if self.config is None:
            raise DsocrError("give --config, a config.json or its directory (or --run of report)")
        return load_config(self.config)

    def workload(self, tokens: int) -> Workload:
        """Make the workload; `tokens` are new where the option leaves them out. Raises DsocrError."""
        new = self.decode_tokens or tokens
        return Workload.from_image(self.width, self.height, self.preset, self.prompt_tokens, new, self.batch)

    @property
    def policy(self) -> Policy:
        """Make the conventions of counting."""
        padding = not self.no_window_padding
        return Policy(
            causal=self.causal, lm_head=self.lm_head, dtype=self.dtype, vision_window_padding=padding
        )


@dataclass(frozen=True, kw_only=True)
class Device:
    """The device of the bounds.

    Args:
        hardware: the device, like h100 or l40s (default: h200)
        peak: its TFLOP/s in the number type, in place of the sheet's
        bandwidth: its GB/s, in place of the sheet's
    """

    hardware: str = ""
    peak: float | None = None
    bandwidth: float | None = None

    def figures(self, usual: str) -> Hardware | None:
        """The device, `usual` where none is named; None where that is empty. Raises HardwareError."""
        key = self.hardware or (usual if None in (self.peak, self.bandwidth) else "")
        return with_figures(hardware_named(key) if key else None, self.peak, self.bandwidth)

    @property
    def known(self) -> Hardware:
        """The device where no run says which. Raises HardwareError."""
        found = self.figures(_USUAL)
        assert found is not None
        return found


def report(
    page: Page,
    chosen: Device,
    *,
    run: str = "",
    backend: str = "",
    history: str | None = None,
    attention: Attention = "sdpa",
    count_unsupported: bool = False,
    ttft: float | None = None,
    tpot: float | None = None,
    json: bool = False,
    console: Console,
) -> int:
    """Print the cost of one page, stage by stage; or what a recorded run loses to its lower bound; or what a
    target takes, and which devices reach it.

    Args:
        run: id of a run of the history: its stages, what loses most first
        backend: one of the run's backends (default: the first)
        attention: the decoder's
        count_unsupported: count cores that torch's counter does not see
        ttft: target in ms to the first token, vision and prefill
        tpot: target in ms per output token of every page
    """
    if run:
        return _stages_of_run(run, backend, history, json, console)
    targets: dict[Target, float | None] = {"ttft": ttft, "tpot": tpot}
    chosen_targets = [(target, value) for target, value in targets.items() if value is not None]
    if len(chosen_targets) > 1:
        raise DsocrError("flops report: give one target, --ttft MS or --tpot MS")
    if chosen_targets:
        return _requirements(page, *chosen_targets[0], json, console)
    counted = not count_unsupported
    policy = replace(page.policy, ignore_torch_unsupported_flops=counted, attention=attention)
    device, dtype = chosen.known, policy.dtype
    peak = device.peak_flops(dtype)  # a device without a figure for it is refused before anything
    model, workload = page.model, page.workload(1)
    prediction = predict(model, workload, policy)
    cache = kv_cache_bytes(model.decoder, workload.cached_length, dtype, workload.batch)
    from analytic_model import frames

    costs = frames.summed_costs(frames.stage_costs(prediction, device), prediction.parameters["total"])
    step = decode_step(model, workload.sequence_length, policy, workload.batch)
    costs.loc[len(costs)] = frames.cost_row("one token", step, device, dtype)
    if json:
        operators = {str(name): records(frames.operators(each)) for name, each in prediction.stages.items()}
        sizes = {
            name: getattr(workload, name) for name in ("image_tokens", "sequence_length", "final_length")
        }
        print_json({
            "workload": asdict(workload) | sizes, "policy": asdict(policy), "hardware": asdict(device),
            "stages": records(costs), "operators": operators, "parameters": prediction.parameters,
            "kv_cache_bytes": cache, "not_counted": prediction.not_counted,
        })  # fmt: skip
        return OK
    columns, rows = workload.grid
    views = ", ".join(f"{count} x {side} px" for count, side in workload.view_groups)
    for line in (
        f"views      {views} (grid {columns} x {rows}), {workload.vision_tokens} vision tokens",
        f"sequence   {workload.image_tokens} image + {workload.prompt_tokens} prompt = "
        f"{workload.sequence_length} tokens, then {workload.decode_tokens} new; batch {workload.batch}",
        f"model      {amount(prediction.parameters['total'])} parameters; {dtype}, {policy.attention}; KV "
        f"cache {amount(cache, 'B')} at the end",
        f"hardware   {device.name}: {amount(peak, 'FLOP/s')}, {amount(device.bandwidth, 'B/s')}",
    ):
        console.print(line, markup=False, highlight=False)
    _show(console, "", costs, _COSTS)
    for line in (*_COSTS_NOTES, *(f"- {note}" for note in prediction.not_counted)):
        console.print(line, markup=False, highlight=False)
    return OK


_Columns = Mapping[str, tuple[str, str]]
"""By column of a frame its heading and unit: "%" is a share of 1, "" a name or a bare number."""
_COSTS: _Columns = {
    "flops": ("FLOPs", ""), "other_flops": ("Other", ""), "bytes_read": ("Read", "B"),
    "bytes_written": ("Written", "B"), "weight_bytes": ("Weights", "B"), "kv_bytes": ("KV", "B"),
    "parameters": ("Params", ""), "bound_s": ("Bound", "s"), "bound_by": ("By", ""),
}  # fmt: skip
_COSTS_NOTES = (
    "FLOPs are those of products and convolutions (a multiply-add is 2); read and written sum over",
    "operators; the bound is the larger of FLOPs at peak and of the bytes that have to move.",
    "One token: the first after prefill. Not counted:",
)


def _show(console: Console, title: str, frame: pd.DataFrame, columns: _Columns) -> None:
    """Print a frame; its first column names the rows, columns without a figure are left out."""
    there = {name: head for name, head in columns.items() if frame[name].notna().any()}
    table = titled_table(title, frame.columns[0].capitalize(), *(head for head, _ in there.values()))
    for row in frame.to_dict("records"):
        table.add_row(*_cells(row, {frame.columns[0]: ("", ""), **there}))
    console.print(table)


def _cells(row: Mapping[Any, Any], columns: _Columns) -> Iterator[str]:
    for name, (_, unit) in columns.items():
        value = row[name]
        if isinstance(value, bool):
            yield "yes" if value else "no"
        elif isinstance(value, str):
            yield value
        else:
            yield percent(100 * value) if unit == "%" else amount(value, unit)


def print_sweep(
    page: Page,
    chosen: Device,
    *,
    axis: Axis,
    quantity: Quantity,
    engine: tuple[Engine, ...] = ENGINES,
    from_: int = 1,
    to: int = 1000,
    points: int = 100,
) -> int:
    """Print a quantity over an axis, stage by stage, as CSV.

    Args:
        axis: what grows from point to point
        quantity: what is counted: of operators flops, bytes or activations, kv (the cache's size at the end),
            or time on the device: the least, of compute, of memory
        engine: attention of the decoder
        from_: the first value on the axis
        to: the last value on the axis
        points: evenly spread over the range
    """
    found = sweep(
        page.model, page.workload(100), axis, spread(from_, to, points), quantity, engine,
        chosen.known, page.policy,
    )  # fmt: skip
    import pandas as pd

    print(frame_csv(pd.DataFrame(found)), end="")
    return OK


def _stages_of_run(run: str, backend: str, history: str | None, json: bool, console: Console) -> int:
    """Print what each stage of a run took, its lower bound and its FLOPs."""
    from dsocr_core.runs.flop_gaps import lost_sentence, stages_of

    with Where(history=history).opened(tell=False) as runs:
        stages = stages_of(runs, run, backend)
    if json:
        print_json({"run": run, "stages": records(stages)})
        return OK
    console.print(visible(lost_sentence(stages)), markup=False, highlight=False)
    shown = stages.assign(
        **{name: stages[name] / 1e3 for name in ("milliseconds", "lower_bound_ms", "lost_ms")}
    )
    _show(console, "", shown[["stage", *_STAGES]], _STAGES)
    return OK


_STAGES: _Columns = {
    "milliseconds": ("Measured", "s"), "lower_bound_ms": ("Bound", "s"), "lost_ms": ("Lost", "s"),
    "times_bound": ("x", ""), "bound_by": ("By", ""), "analytic": ("FLOPs analytic", "FLOP"),
    "counted": ("Counted", "FLOP"), "gap_flops": ("Gap", "FLOP"),
    "published": ("Published", "FLOP"),
}  # fmt: skip


def _requirements(page: Page, target: Target, value: float, json: bool, console: Console) -> int:
    """Print what a target takes, and which devices reach it."""
    workload = page.workload(500)
    needed = requirements(page.model, workload, target, value, page.policy)
    from analytic_model import frames

    needs, devices = frames.needs(needed), frames.devices(needed)
    if json:
        print_json({
            "target": needed.target, "seconds": needed.seconds, "workload": asdict(workload),
            "stages": records(needs), "devices": records(devices),
        })  # fmt: skip
        return OK
    console.print(sentence(workload, needed), markup=False, highlight=False)
    _show(console, "Stages share the target's time, so their rates add up", needs, _NEEDS)
    _show(console, "Of limit: the sum of the stages' bounds over the target", devices, _DEVICES)
    return OK


_NEEDS: _Columns = {
    "flops": ("FLOPs", ""), "bytes": ("Bytes", "B"), "flops_per_s": ("Needs", "FLOP/s"),
    "bytes_per_s": ("and", "B/s"),
}  # fmt: skip
_DEVICES: _Columns = {
    "least_s": ("Least", "s"), "share": ("Of limit", "%"), "peak_share": ("Of peak", "%"),
    "bandwidth_share": ("Of bandwidth", "%"), "reaches": ("Reaches it", ""),
}  # fmt: skip


def verify(
    *,
    config: tuple[Path, ...] = (),
    preset: tuple[str, ...] = tuple(PRESETS),
    tolerance: float = 0.0,
    quick: bool = False,
    device: str = "",
    json: bool = False,
    console: Console,
) -> int:
    """Compare predicted FLOPs with what torch counts; exits 1 on a gap.

    Args:
        config: config.json files (default: embedded, published)
        preset: presets (default: all)
        tolerance: accepted relative gap, from 0 to below 1
        quick: compare a small table
        device: also run every config for real there, such as cuda
    """
    if not 0 <= tolerance < 1:
        raise DsocrError(f"--tolerance {tolerance}: expected a number from 0 to below 1")
    from analytic_model.verify import verify as compared

    work = compared(config, preset, quick, device)
    over = sorted((row for row in work.rows if row.gap > tolerance), key=lambda row: -row.gap)
    if json:
        rows = [row.document() for row in work.rows]
        print_json({"tolerance": tolerance, "ok": not over, "rows": rows})
    else:
        _print_verification(work, console)
        console.print(f"{len(work.rows):,} comparisons, {len(over):,} over the tolerance of {tolerance:g}")
        for row in over[:SHOWN]:
            where = f"{row.config}, {row.run}, {row.case}: {row.stage}, {row.operator}"
            console.print(f"  {where}: {row.analytic:,} against {row.measured:,} measured", markup=False)
    return FAILED if over else OK


def _print_verification(work: Verification, console: Console) -> None:
    """The worst comparison of each config, stage and operator, or the largest where all agree."""
    title = "FLOPs (and parameters) of the worst comparison, or of the largest where all agree"
    table = titled_table(title, "Config", "Stage", "Operator", "Rows", "Analytic", "Measured", "Gap")
    for group in work.grouped():
        row = max(group, key=lambda row: (row.gap, row.measured))
        table.add_row(
            row.config, row.stage, row.operator, f"{len(group)}", f"{row.analytic:,}", f"{row.measured:,}",
            f"{row.gap:.2g}",
        )  # fmt: skip
    console.print(table)


COMMANDS: Mapping[str, Command] = {"report": report, "sweep": print_sweep, "verify": verify}
