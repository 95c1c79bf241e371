"""Predicted FLOPs against torch's counter: the tool itself, and the gap of 0 that it must find."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from analytic_model import ops, verify
from analytic_model.measure import META, Meter
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.verify import CONFIGS, Row, Verification, page_cases, small_cases
from analytic_model.workload import Workload
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.cli.main import main as dsocr
from dsocr_core.models.blocks.attention import AttentionUnavailableError
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config, parse_config
from dsocr_core.models.flop_counter import by_name
from dsocr_core.models.stages import Stage
from tests.support.reference_flops import ROTARY, ReferenceMeter
from tests.support.seeded_weights import tiny_config

needs_published = pytest.mark.skipif(
    not CONFIGS["published"].is_file(), reason="the published config is not beside the repository"
)

TINY = parse_config(tiny_config())
EMBEDDED = load_config(CONFIGS["embedded"])
PAGE = Workload(views=(128, 128, 192), grid=(2, 1), prompt_tokens=5, decode_tokens=4)


def verified(options: Sequence[str]) -> int:
    return dsocr(["flops", "verify", *options])


def measure_workload(
    config: ModelConfig, workload: Workload, attention: str = "sdpa", device: torch.device = META,
    fused: bool = False,
) -> dict[Stage, dict[str, int]]:  # fmt: skip
    measured = Meter(config, device, fused).measure(workload, attention)
    return {stage: dict(flops) for stage, flops in measured.items()}


def total(measured: dict[Stage, dict[str, int]]) -> dict[Stage, int]:
    return {stage: sum(operators.values()) for stage, operators in measured.items()}


def over(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.gap]


# --- what is measured -----------------------------------------------------------------------------------


@needs_published
@pytest.mark.parametrize(
    ("workload", "sam", "clip", "projector"),
    [
        (Workload.from_image(1000, 1400, "base"), 976_909_172_736, 161_715_683_328, 1_342_177_280),
        (Workload.from_image(1280, 1280), 2_279_392_346_112, 409_734_709_248, 3_439_329_280),
    ],
    ids=["base", "gundam 2x2"],
)
def test_the_figures_measured_on_the_published_code(
    workload: Workload, sam: int, clip: int, projector: int
) -> None:
    config = load_config(CONFIGS["published"])
    measured = total(measure_workload(config, workload))
    assert (measured[Stage.SAM], measured[Stage.CLIP], measured[Stage.PROJECTOR]) == (sam, clip, projector)
    stages = predict(config, workload).stages
    predicted = tuple(stages[stage].cost.flops for stage in (Stage.SAM, Stage.CLIP, Stage.PROJECTOR))
    assert predicted == (sam, clip, projector)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_meta_device_counts_what_a_real_run_with_its_routing_does(attention: str) -> None:
    on_meta = measure_workload(TINY, PAGE, attention)
    assert on_meta == measure_workload(TINY, PAGE, attention, device=torch.device("cpu"))
    assert {**Meter(TINY, META, whole=True).measure(PAGE, attention)} == on_meta
    assert set(on_meta) == set(predict(TINY, PAGE).stages)
    assert on_meta[Stage.VISION_FUSION] == {}


def test_a_decoded_token_by_hand() -> None:
    """3 layers of width 64 and 4 heads of 16; 2 of 4 experts of 48; 287 positions before it."""
    config = TINY.decoder
    context, width, inner, layers = 287, 64, 48, 3
    mixtures = 2 * (4 * width + 2 * 3 * width * inner + 3 * width * 2 * inner)
    multiply_adds = layers * 4 * width * width + 3 * width * 96 + mixtures + width * config.vocab_size
    flops = Meter(TINY).forward(context, 1, attention="eager")
    assert flops == {"mm": 2 * multiply_adds, "bmm": layers * 2 * 2 * width * (context + 1)}


def test_fused_attention_is_not_seen_on_the_cpu() -> None:
    """What the docstring says of torch: no formula for the CPU's kernel."""
    plain = measure_workload(TINY, PAGE, device=torch.device("cpu"))
    fused = measure_workload(TINY, PAGE, device=torch.device("cpu"), fused=True)
    assert "bmm" not in fused[Stage.CLIP] and "bmm" not in fused[Stage.PREFILL]
    assert 0 < fused[Stage.SAM]["bmm"] < plain[Stage.SAM]["bmm"]  # the position bias is still a bmm
    assert fused[Stage.PREFILL]["mm"] == plain[Stage.PREFILL]["mm"]


@pytest.mark.parametrize("kernel", ["efficient", "flash"])
def test_cudas_attention_kernels_cost_what_two_products_do(kernel: str) -> None:
    """What the docstring says of CUDA, as far as it can be seen without: on the meta device."""
    q, k = torch.empty(2, 3, 8, 16, device=META), torch.empty(2, 3, 24, 16, device=META)
    attention = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention")
    with FlopCounterMode(display=False) as counter:
        attention(q, k, k, *([None, False] if kernel == "efficient" else []))
    counts = by_name(counter.get_flop_counts()["Global"])
    assert counts == {"scaled_dot_product_attention": 2 * 2 * (2 * 3) * 8 * 24 * 16}


def test_flash_attention_needs_a_gpu() -> None:
    with pytest.raises(AttentionUnavailableError, match="flash"):
        measure_workload(TINY, PAGE, "flash_attention_2")


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
    for case in page_cases(presets, quick=True):
        measured = meter.measure(case.workload, "eager")
        for stage, cost in predict(EMBEDDED, case.workload, policy).stages.items():
            left_out = measured[stage].pop(ROTARY, 0)
            # One product of (32, 1) and (1, N) for the prompt's positions and for each of the new tokens.
            if stage == Stage.DECODE:
                assert left_out == 2 * 32 * case.workload.decode_steps
            elif stage == Stage.PREFILL:
                assert left_out == 2 * 32 * case.workload.sequence_length
            rotary += left_out
            analytic = {name: part.flops for name, part in cost.by_operator().items() if part.flops}
            assert analytic == measured[stage], (case.name, stage)
    assert rotary


def test_one_json_document_with_every_row(capsys: pytest.CaptureFixture[str], tiny_file: Path) -> None:
    assert verified(["--config", str(tiny_file), "--preset", "tiny", "--quick", "--json"]) == OK
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert document["tolerance"] == 0
    row = next(row for row in document["rows"] if (row["stage"], row["operator"]) == ("projector", "addmm"))
    patches = 64
    assert row["analytic"] == row["measured"] == 2 * patches * 64 * 64
    assert (row["gap"], row["run"], row["case"]) == (0, "sdpa, meta", "tiny 1x1, prompt 1, new 1")


def test_a_wrong_formula_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ops.conv2d

    def bordered(images: int, *shape: Any, **options: Any) -> ops.Cost:
        return right(images + 1, *shape, **options)

    monkeypatch.setattr(ops, "conv2d", bordered)
    work = Verification(["tiny"])
    work.compare("tiny", "meta", TINY, Policy(), Meter(TINY), [*small_cases()])
    assert {(row.stage, row.operator) for row in over(work.rows)} == {("sam", "convolution"), ("sam", "all")}
    first = over(work.rows)[0]
    assert first.gap == pytest.approx(0.5)
    assert first.analytic == 2 * first.measured


def test_the_tolerance_decides_and_the_worst_row_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Verification(["tiny"])
    work.rows = [
        Row("mine", "sdpa, meta", "tiny 1x1, prompt 1, new 1", "clip", "addmm", 100, 100),
        Row("mine", "sdpa, meta", "tiny 1x1, prompt 1, new 1", "clip", "bmm", 75, 100),
        Row("mine", "sdpa, meta", "tiny 1x1, prompt 1, new 2", "clip", "bmm", 100, 90),
    ]
    monkeypatch.setattr(verify, "verify", lambda *asked: work)
    assert verified([]) == FAILED
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "3 comparisons, 2 over the tolerance of 0" in lines
    assert lines[-2] == "  mine, sdpa, meta, tiny 1x1, prompt 1, new 1: clip, bmm: 75 against 100 measured"
    assert any(line.split()[2:] == ["bmm", "2", "75", "100", "0.25"] for line in lines)
    assert verified(["--tolerance", "0.2"]) == FAILED
    assert verified(["--tolerance", "0.25"]) == OK


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--preset", "huge"], "unknown preset 'huge'"),
        (["--config", "nowhere/config.json"], "nowhere/config.json"),
    ],
)
def test_bad_options_are_one_line_that_names_them(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verified(arguments) == BAD_USAGE
    said = capsys.readouterr().out
    assert said.startswith("error: ") and named in said


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(tiny_config()))
    return file


# --- the full table: minutes ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(CONFIGS))
def test_no_gap_on_the_full_table(name: str) -> None:
    if not CONFIGS[name].is_file():
        pytest.skip("the config is not beside the repository")
    config: ModelConfig = load_config(CONFIGS[name])
    work = Verification(list(PRESETS))
    work.core(name, config)
    work.parameters(name, config, CONFIGS[name])
    assert over(work.rows) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", list(CONFIGS))
def test_no_gap_on_a_gpu(name: str) -> None:
    if not CONFIGS[name].is_file():
        pytest.skip("the config is not beside the repository")
    work = Verification(["tiny"], quick=True, device=torch.device("cuda"))
    work.core(name, load_config(CONFIGS[name]))
    assert over(work.rows) == []
    assert {"sdpa, cuda, plain", "sdpa, cuda, fused"} <= {row.run for row in work.rows}
