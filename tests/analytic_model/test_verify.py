"""Predicted FLOPs against torch's counter: the tool itself, and the gap of 0 that it must find."""

from collections.abc import Sequence

import pytest
import torch

from analytic_model import ops, verify
from analytic_model.measure import META, Meter
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.verify import CONFIGS, Row, Verification, page_cases, small_cases
from analytic_model.workload import Workload
from dsocr_core.base.console import FAILED, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main as dsocr
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config, parse_config
from dsocr_core.models.stages import Stage
from tests.analytic_model.reference_flops import ROTARY, ReferenceMeter
from tests.support.seeded_weights import tiny_config

TINY = parse_config(tiny_config())
EMBEDDED = load_config(CONFIGS["embedded"])
PAGE = Workload(views=(128, 128, 192), grid=(2, 1), prompt_tokens=5, decode_tokens=4)


def verified(options: Sequence[str]) -> int:
    return dsocr(["flops", "verify", *options])


def over(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.gap]


# --- what is measured -----------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_meta_device_counts_what_a_real_run_with_its_routing_does(attention: str) -> None:
    on_meta = Meter(TINY).measure(PAGE, attention)
    assert on_meta == Meter(TINY, torch.device("cpu")).measure(PAGE, attention)
    assert on_meta == Meter(TINY, META, whole=True).measure(PAGE, attention)
    assert set(on_meta) == set(predict(TINY, PAGE).stages) and not on_meta[Stage.VISION_FUSION]
    with pytest.raises(DsocrError, match="flash"):
        Meter(TINY).measure(PAGE, "flash_attention_2")


def test_a_decoded_token_by_hand() -> None:
    """3 layers of width 64 and 4 heads of 16; 2 of 4 experts of 48; 287 positions before it."""
    config = TINY.decoder
    context, width, inner, layers = 287, 64, 48, 3
    mixtures = 2 * (4 * width + 2 * 3 * width * inner + 3 * width * 2 * inner)
    multiply_adds = layers * 4 * width * width + 3 * width * 96 + mixtures + width * config.vocab_size
    flops = Meter(TINY).forward(context, 1, attention="eager")
    assert flops == {"mm": 2 * multiply_adds, "bmm": layers * 2 * 2 * width * (context + 1)}


# --- the comparison -------------------------------------------------------------------------------------


def test_no_gap_on_the_embedded_config() -> None:
    work = Verification(["tiny", "gundam"], quick=True)
    work.core("embedded", EMBEDDED)
    work.parameters("embedded", EMBEDDED, CONFIGS["embedded"])
    assert over(work.rows) == []
    assert {row.stage for row in work.rows} == {*predict(EMBEDDED, PAGE).stages, "parameters"}
    assert {row.operator for row in work.rows} >= {"mm", "addmm", "bmm", "convolution", "all"}
    runs = {row.run for row in work.rows}
    assert {"sdpa, meta", "eager, meta", "sdpa, cpu, plain", "eager, cpu, fused"} <= runs


@pytest.mark.parametrize("presets", [["tiny"], pytest.param(list(PRESETS), marks=pytest.mark.slow)])
def test_no_gap_to_the_reference_modules_but_for_the_rotary_angles(presets: list[str]) -> None:
    meter, policy = ReferenceMeter(), Policy(attention="eager", lm_head="all")
    rotary = 0
    for case, workload in page_cases(presets, quick=True):
        measured = meter.measure(workload, "eager")
        for stage, cost in predict(EMBEDDED, workload, policy).stages.items():
            left_out = measured[stage].pop(ROTARY, 0)
            # One product of (32, 1) and (1, N) for the prompt's positions and for each of the new tokens.
            if stage == Stage.DECODE:
                assert left_out == 2 * 32 * workload.decode_steps
            elif stage == Stage.PREFILL:
                assert left_out == 2 * 32 * workload.sequence_length
            rotary += left_out
            analytic = {name: part.flops for name, part in cost.by_operator().items() if part.flops}
            assert analytic == measured[stage], (case, stage)
    assert rotary


def test_a_wrong_formula_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ops.conv2d
    monkeypatch.setattr(ops, "conv2d", lambda images, *more, **named: right(images + 1, *more, **named))
    work = Verification(["tiny"])
    work.compare("tiny", "meta", TINY, Policy(), Meter(TINY), [*small_cases()])
    assert {(row.stage, row.operator) for row in over(work.rows)} == {("sam", "convolution"), ("sam", "all")}
    first = over(work.rows)[0]
    assert first.gap == pytest.approx(0.5)
    assert first.analytic == 2 * first.measured


def test_the_worst_rows_with_a_gap_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work, run = Verification(["tiny"]), ("mine", "sdpa, meta", "tiny 1x1, prompt 1, new 1", "clip")
    work.rows = [Row(*run, "addmm", 100, 100), Row(*run, "mm", 100, 90), Row(*run, "bmm", 75, 100)]
    monkeypatch.setattr(verify, "verify", lambda *asked: work)
    assert verified([]) == FAILED
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "3 comparisons, 2 with a gap" in lines
    assert lines[-2] == "  mine, sdpa, meta, tiny 1x1, prompt 1, new 1: clip, bmm: 75 against 100 measured"
    del work.rows[1:]
    assert verified([]) == OK


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_gap_on_the_full_table() -> None:
    assert verified([]) == OK
