"""`flops NAME`: report, sweep, verify: what a page costs by arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from analytic_model.hardware import Hardware, hardware_named, with_figures
from analytic_model.policy import Attention, Causal, Dtype, LmHead, Policy
from analytic_model.predict import decode_step, kv_cache_bytes, predict
from analytic_model.sweep import ENGINES, Axis, Engine, Quantity, spread, sweep
from analytic_model.workload import Workload
from dsocr_core.base.console import FAILED, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import amount
from dsocr_core.cli.answers import Answer, Columns, figures_table, records
from dsocr_core.cli.history import HistoryOptions
from dsocr_core.cli.options import Command
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import load_config, read_config
from dsocr_core.reading.spreadsheet import frame_csv

Target = Literal["ttft", "tpot"]
_COSTS: Columns = {
    "flops": ("FLOPs", ""), "other_flops": ("Other", ""), "bytes_read": ("Read", "B"),
    "bytes_written": ("Written", "B"), "weight_bytes": ("Weights", "B"), "kv_bytes": ("KV", "B"),
    "parameters": ("Params", ""), "bound_s": ("Bound", "s"), "bound_by": ("By", ""),
}  # fmt: skip
_COSTS_NOTES = (
    "FLOPs: of products and convolutions, a multiply-add is 2. Read, written: sums of operators. Bound: the",
    "larger of FLOPs at peak and bytes that have to move. One token: the first after prefill. Not counted:",
)
_STAGES: Columns = {
    "milliseconds": ("Measured", "s"), "lower_bound_ms": ("Bound", "s"), "lost_ms": ("Lost", "s"),
    "times_bound": ("x", ""), "bound_by": ("By", ""), "analytic": ("FLOPs analytic", "FLOP"),
    "counted": ("Counted", "FLOP"), "gap_flops": ("Gap", "FLOP"), "published": ("Published", "FLOP"),
}  # fmt: skip
_DEVICES: Columns = {
    "least_s": ("Least", "s"), "share": ("Of limit", "%"), "peak_share": ("Of peak", "%"),
    "bandwidth_share": ("Of bandwidth", "%"), "reaches": ("Reaches it", ""),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Page:
    """The model, the page, its tokens, how they are counted, and the device of the bounds.

    Args:
        config: config.json or the directory of one
        width: of the page in pixels
        height: of the page in pixels
        preset: tiny, small, base, large or gundam
        decode_tokens: new tokens (default: 1 of report, 100 of sweep)
        batch: pages of this shape side by side
        hardware: the device of the bounds, like h100 or l40s (default: h200)
        prompt_tokens: text tokens of the prompt, bos included
        dtype: number type
        causal: prefill attention that is counted
        lm_head: prefill positions that get logits
        peak: the device's TFLOP/s in the number type, in place of its sheet's
        bandwidth: the device's GB/s, in place of its sheet's
    """

    config: Path | None = None
    width: int = 1654  # A4 at 200 dpi
    height: int = 2339
    preset: str = "gundam"
    decode_tokens: int | None = None
    batch: int = 1
    hardware: str = ""
    prompt_tokens: int = 10
    dtype: Dtype = "bfloat16"
    causal: Causal = "full"
    lm_head: LmHead = "last"
    peak: float | None = None
    bandwidth: float | None = None

    def asked(self, tokens: int) -> tuple[ModelConfig, Workload, Policy, Hardware]:
        """The options, resolved. `tokens` is the default of new ones. Raises DsocrError."""
        if self.config is None:
            raise DsocrError("give --config, a config.json or its directory (or --run of report)")
        page, new = (self.width, self.height), self.decode_tokens or tokens
        workload = Workload.from_image(*page, self.preset, self.prompt_tokens, new, self.batch)
        policy = Policy(causal=self.causal, lm_head=self.lm_head, dtype=self.dtype)
        key = self.hardware or ("h200" if None in (self.peak, self.bandwidth) else "")
        device = with_figures(hardware_named(key) if key else None, self.peak, self.bandwidth)
        assert device is not None
        return load_config(self.config), workload, policy, device


def report(
    *,
    run: str = "",
    ttft: float | None = None,
    tpot: float | None = None,
    page: Page,
    backend: str = "",
    history: str | None = None,
    attention: Attention = "sdpa",
    count_unsupported: bool = False,
) -> Answer:
    """Print the cost of one page, stage by stage; or what a recorded run loses to its lower bound; or what a
    target takes, and which devices reach it.

    Args:
        run: id of a run of the history: its stages, what loses most first; FLOPs that it lacks are counted
        ttft: target in ms to the first token, vision and prefill
        tpot: target in ms per output token of every page
        backend: one of the run's backends (default: the first)
        attention: the decoder's
        count_unsupported: count cores that torch's counter does not see
    """
    if run:
        return _of_run(run, backend, HistoryOptions(history=history), page.config)
    if ttft is not None and tpot is not None:
        raise DsocrError("flops report: give one target, --ttft MS or --tpot MS")
    if ttft is not None:
        return _requirements(page, "ttft", ttft)
    if tpot is not None:
        return _requirements(page, "tpot", tpot)
    return _costs(page, attention, count_unsupported)


def _costs(page: Page, attention: Attention, count_unsupported: bool) -> Answer:
    from analytic_model import frames

    model, workload, policy, device = page.asked(1)
    policy = replace(policy, ignore_torch_unsupported_flops=not count_unsupported, attention=attention)
    dtype = policy.dtype
    peak = device.peak_flops(dtype)  # a device without a figure for it is refused before anything
    prediction = predict(model, workload, policy)
    cache = kv_cache_bytes(model.decoder, workload.cached_length, dtype, workload.batch)
    costs = frames.summed_costs(frames.stage_costs(prediction, device), prediction.parameters["total"])
    step = decode_step(model, workload.sequence_length, policy, workload.batch)
    costs.loc[len(costs)] = frames.cost_row("one token", step, device, dtype)
    sizes = {name: getattr(workload, name) for name in ("image_tokens", "sequence_length", "final_length")}
    document = {
        "workload": asdict(workload) | sizes, "policy": asdict(policy), "hardware": asdict(device),
        "stages": records(costs),
        "operators": {str(name): records(frames.operators(of)) for name, of in prediction.stages.items()},
        "parameters": prediction.parameters, "kv_cache_bytes": cache, "not_counted": prediction.not_counted,
    }  # fmt: skip
    columns, rows = workload.grid
    views = ", ".join(f"{count} x {side} px" for count, side in workload.view_groups)
    text = f"{workload.image_tokens} image + {workload.prompt_tokens} prompt = {workload.sequence_length}"
    size, cached = amount(prediction.parameters["total"]), amount(cache, "B")
    lines = [
        f"views      {views} (grid {columns} x {rows}), {workload.vision_tokens} vision tokens",
        f"sequence   {text} tokens, then {workload.decode_tokens} new; batch {workload.batch}",
        f"model      {size} parameters; {dtype}, {policy.attention}; KV cache {cached} at the end",
        f"hardware   {device.name}: {amount(peak, 'FLOP/s')}, {amount(device.bandwidth, 'B/s')}",
    ]
    notes = (f"- {note}" for note in prediction.not_counted)
    return Answer(document, (*lines, figures_table(costs, _COSTS), *_COSTS_NOTES, *notes))


def _of_run(run: str, backend: str, options: HistoryOptions, config: Path | None) -> Answer:
    """Time, lower bound and FLOPs of each stage of a run. `config` is for a run without one."""
    from analytic_model.counted import count_run
    from dsocr_core.runs.flop_gaps import NOT_COUNTED, lost_sentence, stage_gaps

    with options.opened(name_problems=False) as opened:
        missing, _ = opened.query("gap_missing")
        if ((missing["run_id"] == run) & (missing["reason"] == NOT_COUNTED)).any():
            count_run(opened, run, None if config is None else read_config(config)[0])
        stages = stage_gaps(opened, run, backend)
    times = {name: stages[name] / 1e3 for name in ("milliseconds", "lower_bound_ms", "lost_ms")}
    table = figures_table(stages.assign(**times)[["stage", *_STAGES]], _STAGES)
    return Answer({"run": run, "stages": records(stages)}, (lost_sentence(stages), table))


def _requirements(page: Page, target: Target, value: float) -> Answer:
    """Requirements of a target, and devices that reach it."""
    from analytic_model.requirements import requirements, sentence

    model, workload, policy, _ = page.asked(500)
    needed = requirements(model, workload, target, value, policy)
    document = {
        "target": needed.target, "seconds": needed.seconds, "workload": asdict(workload),
        "stages": records(needed.needs), "devices": records(needed.devices),
    }  # fmt: skip
    devices = figures_table(
        needed.devices, _DEVICES, "Of limit: the sum of the stages' bounds over the target"
    )
    return Answer(document, (sentence(workload, needed), devices))


def print_sweep(
    page: Page,
    *,
    axis: Axis,
    quantity: Quantity,
    engine: tuple[Engine, ...] = ENGINES,
    from_: int = 1,
    to: int = 1000,
    points: int = 100,
) -> None:
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
    import pandas as pd

    model, workload, policy, device = page.asked(100)
    values = spread(from_, to, points)
    found = sweep(model, workload, axis, values, quantity, engine, device, policy)
    print(frame_csv(pd.DataFrame(found)), end="")


def verify(
    *,
    config: tuple[Path, ...] = (),
    quick: bool = False,
    device: str = "",
) -> Answer:
    """Compare predicted FLOPs with what torch counts; exits 1 on a gap.

    Args:
        config: config.json files (default: embedded, published)
        quick: compare a small table
        device: also run every config for real there, such as cuda
    """
    from analytic_model.verify import verify as compared

    work = compared(config, quick, device)
    off = sorted((row for row in work.rows if row.gap), key=lambda row: -row.gap)
    lines = [f"{len(work.rows):,} comparisons, {len(off):,} with a gap"]
    for row in off[:10]:  # --json has them all
        where = f"{row.config}, {row.run}, {row.case}: {row.stage}, {row.operator}"
        lines.append(f"  {where}: {row.analytic:,} against {row.measured:,} measured")
    rows = [{**asdict(row), "gap": row.gap} for row in work.rows]
    return Answer({"ok": not off, "rows": rows}, lines, FAILED if off else OK)


COMMANDS: Mapping[str, Command] = {"report": report, "sweep": print_sweep, "verify": verify}
