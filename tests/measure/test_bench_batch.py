"""The bench of pages read together: full steps counted alone, figures by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import dsocr_core.measure.device as measure_device
from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.engine.fast.batch import BatchReader, GroupTime
from dsocr_core.engine.fast.weights import pack
from dsocr_core.kernels.launch import PLAIN
from dsocr_core.measure.bench import BenchPlan, bench, record_bench
from dsocr_core.measure.bench_batch import full_groups
from dsocr_core.settings import Settings
from tests.support.seeded_weights import tiny_config


@pytest.fixture
def readers() -> list[BatchReader]:
    """Those that were made, in order."""
    return []


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: list[BatchReader]) -> BenchPlan:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny_config()))
    monkeypatch.setattr(measure_device, "_CPU_COPY_BYTES", 2**16)
    monkeypatch.setattr(measure_device, "_CPU_SIDE", 16)
    monkeypatch.setattr(EngineBackend, "reads_many", True)

    def reader_of(self: EngineBackend, slots: int) -> BatchReader:
        if self._reader is None:
            self._reader = BatchReader(self.engine, slots, ignore_eos=True, group=2, kernels=PLAIN)
            readers.append(self._reader)
        return self._reader

    monkeypatch.setattr(EngineBackend, "reader_of", reader_of)
    settings = Settings(checkpoint=f"random:{path}", preset="tiny", device="cpu")
    return BenchPlan(settings, size=(300, 200), tokens=7, batch=2, repeat=2, pages=5)


def test_only_steps_of_full_slots_count() -> None:
    """By hand: groups of 8 steps over 4 slots; one has a page that ended in it, one was not timed."""
    full, short, empty = GroupTime(8, 32, 400, 2.0), GroupTime(8, 30, 390, 1.9), GroupTime(8, 32, 400, 0.0)
    assert full_groups([full, short, empty], 4) == [full]
    assert full_groups([short], 4) == [short]
    assert full_groups([], 4) == []


def test_a_pass_of_pages_read_together(plan: BenchPlan, readers: list[BatchReader], tmp_path: Path) -> None:
    found = bench(plan)
    (engine,) = found.engines
    assert (engine.streams, engine.new_tokens, found.pages, found.batch) == (2, 7, 5, 2)
    assert len(found.results["eager"]) == 10
    assert engine.pages_per_s and engine.pages_per_s.n == 2
    assert engine.stages["decode"].calls == 6 and engine.stages["decode"].milliseconds.n == 10
    # A page's times are shared with others: FLOPs over them are no rate.
    rates = {(stage.flops_per_s, stage.matmul_share) for stage in engine.stages.values()}
    assert rates == {(None, None)} and engine.stages["sam"].flops
    assert engine.ms_per_token and engine.tokens_per_s
    # Two streams: a step's two tokens.
    groups = full_groups(readers[0].times, 2)
    slowest = max(group.milliseconds / group.steps for group in groups)
    assert engine.tokens_per_s.min == pytest.approx(2e3 / slowest)

    decoder = readers[0].engine.checkpoint.model.decoder
    weights = pack(decoder).bytes_a_step()
    # By hand: 3 layers, keys and values of 64 in float32 a position, two pages in the middle of their tokens.
    least, most = (2 * (engine.prompt_tokens + more) * 2 * 3 * 64 * 4 for more in (0, 7))
    assert engine.bytes_per_token and weights + least < 2 * engine.bytes_per_token < weights + most

    stream = io.StringIO()
    found.print(Console(file=stream, width=100))
    assert "2 pages together" in stream.getvalue() and "5 pages a pass" in stream.getvalue()
    (name,) = record_bench(plan, found, "python -m dsocr_core bench", str(tmp_path / "history"))
    record = json.loads((tmp_path / "history" / "runs" / name / "run.json").read_text())
    assert record["tables"]["readings"] == 10
    assert record["engine"] == "eager, 2 pages together"
