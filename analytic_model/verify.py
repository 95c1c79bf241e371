"""Predicted FLOPs against counted ones, operator by operator. No gap is accepted.

It takes presets, grids, prompts and new tokens of the tables below, under both attentions; parameters; and
the weight names and bytes of an index next to the config. A small model also runs for real on the CPU: with
attention's plain form, which must count as on the meta device, and with torch's own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch

from analytic_model.measure import META, Meter, count_parameters
from analytic_model.policy import Attention, Policy
from analytic_model.predict import parameters, predict
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.resolution import TILE_SIZE
from dsocr_core.models.weights import INDEX_NAME, published_parameters, read_index
from dsocr_core.page.tiling import Grid

CONFIGS: dict[str, Path] = {
    "embedded": EMBEDDED_CHECKPOINT / "config.json",
    "published": PROJECT_ROOT.parent / "shared" / "data" / "vendor" / "config.json",
}
"""Configs that are verified by default; the published one only where its file is present."""

ATTENTIONS: tuple[Attention, ...] = ("sdpa", "eager")
GRIDS: tuple[Grid, ...] = (
    (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (1, 9), (9, 1),
)  # fmt: skip
EVERY = GRIDS, (1, 10, 2000), (1, 2, 5)
QUICK: tuple[tuple[Grid, ...], tuple[int, ...], tuple[int, ...]] = ((1, 1), (3, 2), (1, 9)), (1, 60), (1, 4)
"""(columns, rows), prompts and new tokens of the quick table."""
MIDDLE_DECODE, LONG_DECODE = 50, 500
ODD_SIDES = (64, 208, 528, 896, 1536)
"""View sides below SAM's window, not multiples of 64, and beyond the position table."""

SMALL_MODEL = 100_000_000
"""Most parameters of a model that also runs for real on the CPU."""
BF16_BYTES = 2


@dataclass(frozen=True)
class Row:
    """FLOPs of one operator of one stage, or `all` of them; of stage "parameters" its parameters."""

    config: str
    run: str
    """Attention, device, and anything special."""
    case: str
    stage: str
    operator: str
    analytic: int
    measured: int

    @property
    def gap(self) -> float:
        """Difference relative to the larger figure, 0 to 1."""
        if self.analytic == self.measured:
            return 0.0
        return abs(self.analytic - self.measured) / max(abs(self.analytic), abs(self.measured))


Case = tuple[str, Workload]
"""Name and workload."""


def page_cases(presets: Sequence[str], quick: bool = False) -> Iterator[Case]:
    """Cases of presets and grids x prompts x new tokens. The first and last page get longer ones, too."""
    grids, prompts, decodes = QUICK if quick else EVERY
    # Without tiles the size does not matter.
    pages = [
        (preset, *grid) for preset in presets for grid in (grids if PRESETS[preset].crop_mode else ((1, 1),))
    ]
    for page, prompt, new in product(pages, prompts, decodes):
        yield _page_case(*page, prompt, new)
    if not quick:
        yield _page_case(*pages[0], min(prompts), MIDDLE_DECODE)
        yield _page_case(*pages[-1], max(prompts), LONG_DECODE)


def odd_cases(quick: bool = False) -> Iterator[Case]:
    """Cases with shapes that no preset has: other sides, and several pages at once."""
    for side in ODD_SIDES[:2] if quick else ODD_SIDES:
        yield f"one view of {side}", Workload((side,), prompt_tokens=3, decode_tokens=2)
    yield "3 pages gundam 2x1, prompt 10, new 3", replace(_page_case("gundam", 2, 1, 10, 3)[1], batch=3)


def small_cases() -> Iterator[Case]:
    """Cases for real runs on the CPU."""
    yield _page_case("tiny", 1, 1, 10, 6)
    tiles = Workload(views=(128, 128, 192), grid=(2, 1), prompt_tokens=7, decode_tokens=4)
    yield "2 tiles of 128 and a view of 192, prompt 7, new 4", tiles


def _page_case(preset: str, columns: int, rows: int, prompt: int, new: int) -> Case:
    """Case of a page that the preset cuts into that grid."""
    workload = Workload.from_image(columns * TILE_SIZE, rows * TILE_SIZE, preset, prompt, new)
    columns, rows = workload.grid
    return f"{preset} {columns}x{rows}, prompt {prompt}, new {new}", workload


class Verification:
    """Comparisons of predicted and counted FLOPs, as `rows`.

    Every config also runs for real on `device`, if given.
    """

    def __init__(
        self, presets: Sequence[str], quick: bool = False, device: torch.device | None = None
    ) -> None:
        self.presets, self.quick, self.device = presets, quick, device
        self.rows: list[Row] = []

    def core(self, name: str, config: ModelConfig) -> None:
        """Compare our modules of a config under every attention."""
        cases, small = [*page_cases(self.presets, self.quick), *odd_cases(self.quick)], [*small_cases()]
        meta, whole = Meter(config), Meter(config, whole=True)
        for attention in ATTENTIONS:
            policy = Policy(attention=attention)
            self.compare(name, "meta", config, policy, meta, cases)
            self.compare(name, "meta, every layer", config, policy, whole, small[-1:])
        devices = [torch.device("cpu")] if parameters(config)["total"] <= SMALL_MODEL else []
        for device in [*devices, *([self.device] if self.device else [])]:
            plain, fused = Meter(config, device), Meter(config, device, fused=True)
            for attention in _attentions(device):
                policy = Policy(attention=attention)
                self.compare(name, f"{device}, plain", config, policy, plain, small)
                seen = replace(policy, counter="cuda" if device.type == "cuda" else "cpu")
                self.compare(name, f"{device}, fused", config, seen, fused, small)

    def parameters(self, name: str, config: ModelConfig, file: Path) -> None:
        """Compare parameters of each module, and the index next to the config if there is one."""
        counted = count_parameters(config)
        for part, analytic in parameters(config).items():
            self.rows.append(Row(name, "meta", "", "parameters", part, analytic, counted[part]))
        index = (file if file.is_dir() else file.parent) / INDEX_NAME
        if index.is_file():
            for what, analytic, measured in _against_index(config, index):
                self.rows.append(Row(name, INDEX_NAME, "", "parameters", what, analytic, measured))

    def compare(
        self, name: str, run: str, config: ModelConfig, policy: Policy, meter: Meter, cases: Sequence[Case]
    ) -> None:
        """Add rows of each case under the policy. `run` describes the run.

        There is a row for each operator that either side has, and one for all.
        """
        run, began = f"{policy.attention}, {run}", time.perf_counter()
        for case, workload in cases:
            counted = meter.measure(workload, policy.attention)
            for stage, cost in predict(config, workload, policy).stages.items():
                analytic = {key: of_key.flops for key, of_key in cost.by_operator().items() if of_key.flops}
                measured = {key: flops for key, flops in counted[stage].items() if flops}
                pairs = {key: (analytic.get(key, 0), measured.get(key, 0)) for key in {*analytic, *measured}}
                totals = sum(analytic.values()), sum(measured.values())
                for key, pair in (*sorted(pairs.items()), ("all", totals)):
                    self.rows.append(Row(name, run, case, stage, key, *pair))
        seconds = time.perf_counter() - began
        print(f"{name}: {run}: {len(cases)} workloads in {seconds:.1f} s", file=sys.stderr, flush=True)


def _attentions(device: torch.device) -> tuple[Attention, ...]:
    flash = device.type == "cuda" and find_spec("flash_attn") is not None
    return (*ATTENTIONS, "flash_attention_2") if flash else ATTENTIONS


def _against_index(config: ModelConfig, index: Path) -> Iterator[tuple[str, int, int]]:
    """(what, ours, the index's): weight names, names in both, and bytes in bf16."""
    shard_of, size = read_index(index)
    with META:
        ours = {name for name, _ in published_parameters(OcrModel(config))}
    yield "weight names", len(ours), len(shard_of)
    yield "names in common", len(ours), len(ours & shard_of.keys())
    if size is not None:
        yield "bytes in bf16", parameters(config)["total"] * BF16_BYTES, size


def verify(configs: Sequence[Path], quick: bool, device: str) -> Verification:
    """Make all comparisons for these configs, or for CONFIGS. Raises DsocrError."""
    known = {name: file for name, file in CONFIGS.items() if file.is_file()}
    files = {str(file): file for file in configs} or known
    try:
        also = torch.device(device) if device else None
    except RuntimeError:
        raise DsocrError(f"--device {device}: not a device; try cuda or cpu") from None
    work = Verification(list(PRESETS), quick, also)
    # Refuse bad input before anything runs.
    sizes = {name: load_config(file) for name, file in files.items()}
    for name, config in sizes.items():
        work.core(name, config)
        work.parameters(name, config, files[name])
    return work
