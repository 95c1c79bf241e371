"""The parity command on a small checkpoint: equal in float32, and what is not equal is found."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

import dsocr_core.measure.fast_parity as parity_fast
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.cli.main import main
from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.page import PageInputs, Pixels
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.measure.fast_parity import _agreement
from dsocr_core.measure.fast_parity_report import Agreement
from dsocr_core.measure.teacher_forcing import oracle_of, teacher_forced_eager, teacher_forced_oracle
from dsocr_core.models.blocks.attention import flash_core
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import Settings
from tests.support.paths import SAMPLES
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint
from tests.support.tiny_members import WINDOW, tiny_ocr2, tiny_unlimited, written

COMMAND = ("measure", "fast-parity")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = with_changes(tiny_config(), num_hidden_layers=2)
    return write_seeded_checkpoint(
        config, tmp_path_factory.mktemp("parity") / "tiny_fast_parity", torch.float32
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    path = tmp_path_factory.mktemp("pages") / "page.png"
    picture.save(path)
    other = picture.rotate(180)
    other.save(path.with_name("turned.png"))
    return path


def run(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, dict[str, object]]:
    code = main(
        [*COMMAND, str(page), str(page.with_name("turned.png")), "--checkpoint", str(checkpoint),
         "--preset", "tiny", "--device", "cpu", "--tokens", "9", "--batch", "2", *more]
    )  # fmt: skip
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_in_float32_nothing_differs(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dsocr_core.measure.fast_parity"):
        code, found = run(checkpoint, page, capsys)
    assert code == OK and found["passes"] is True
    (batch,) = found["agreements"]  # type: ignore[misc]
    assert (batch["name"], batch["misses"], batch["positions"]) == ("batch", 0, 18)
    assert batch["error"] < 1e-5 and batch["eager_error"] < 1e-5
    assert [(d["name"], d["pages"], d["equal"]) for d in found["distances"]] == [  # type: ignore[attr-defined]
        ("batch / eager", 2, 2), ("eager, other attention / eager", 2, 2),
    ]  # fmt: skip
    assert [(r["name"], r["equal"]) for r in found["repeats"]] == [("batch", 2), ("batch, other order", 2)]  # type: ignore[attr-defined]
    lines = [line for name, _, line in caplog.record_tuples if name == parity_fast.__name__]
    phases = (
        "eager", "batch", "batch again", "batch, other order", "eager, other attention", "teacher-forced",
    )  # fmt: skip
    logged = [re.sub(r"\d+ s$", "S s", line) for line in lines]
    assert [line for line in logged if "/2 pages" in line] == [
        f"{phase} {done}/2 pages, S s" for phase in phases for done in range(3)
    ]
    # What is found is logged as soon as it is: a run that is cut off has logged it.
    same = "2 of 2 pages have eager's tokens"
    assert [line for line in logged if "/2 pages" not in line] == [
        f"batch: {same}", f"eager, other attention: {same}",
    ]  # fmt: skip
    assert logged.index(f"batch: {same}") == 6  # after its own three lines and eager's


def taken_in(checkpoint: Path, page: Path, attention: str = "sdpa") -> tuple[EagerEngine, PageInputs, Pixels]:
    """An engine in float32 and what it makes of a page."""
    engine = EagerEngine(
        load_checkpoint(str(checkpoint), torch.device("cpu"), torch.float32), EngineOptions(attention)
    )
    timer = StageTimer(torch.device("cpu"), marks=Marks.NONE)
    with engine.modes():
        return engine, *engine.take_in(OcrRequest(page, "tiny"), None, timer)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_oracle_in_one_pass_is_the_model_token_by_token(
    checkpoint: Path, page: Path, attention: str
) -> None:
    engine, inputs, pixels = taken_in(checkpoint, page, attention)
    tokens = torch.randint(3, 259, (12,), generator=torch.Generator().manual_seed(0)).tolist()
    for fed in (tokens, tokens[:1]):
        exact = teacher_forced_oracle(oracle_of(engine), engine, inputs, pixels, fed)
        torch.testing.assert_close(
            exact, teacher_forced_eager(engine, inputs, pixels, fed).logits, rtol=1e-5, atol=1e-5
        )
    engine.core = flash_core  # it has no float32: the oracle keeps off it
    torch.testing.assert_close(
        teacher_forced_oracle(oracle_of(engine), engine, inputs, pixels, tokens[:1]), exact
    )


def test_the_oracle_forgets_what_a_ring_does(page: Path, tmp_path: Path) -> None:
    source = written(tiny_unlimited(), tmp_path)
    engine = EagerEngine(load_checkpoint(source, torch.device("cpu"), torch.float32))
    with engine.modes():
        request = Settings(checkpoint=source, preset="base").request(page)
        inputs, pixels = engine.take_in(request, None, StageTimer(torch.device("cpu"), marks=Marks.NONE))
    tokens = torch.randint(3, 259, (3 * WINDOW,), generator=torch.Generator().manual_seed(0)).tolist()
    exact = teacher_forced_oracle(oracle_of(engine), engine, inputs, pixels, tokens)
    ring = teacher_forced_eager(engine, inputs, pixels, tokens).logits
    torch.testing.assert_close(exact, ring, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("config", "preset"), [(tiny_ocr2, "768"), (tiny_unlimited, "base")])
def test_the_other_models_are_compared(  # type: ignore[no-untyped-def]
    config, preset: str, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        [*COMMAND, str(page), "--checkpoint", written(config(), tmp_path), "--preset", preset,
         "--device", "cpu", "--tokens", "7", "--batch", "2"]
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    (batch,) = found["agreements"]
    assert code == OK and (batch["positions"], batch["misses"]) == (7, 0) and batch["error"] < 1e-5


def test_the_oracle_does_without_tf32(checkpoint: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution in TF32 is wrong in the fourth digit: an oracle with it would measure itself."""
    engine, inputs, pixels = taken_in(checkpoint, page)
    seen, model = list[bool](), oracle_of(engine)

    def sam(views: Tensor) -> Tensor:
        seen.append(torch.backends.cudnn.allow_tf32)
        return forward(views)

    forward = model.sam.forward
    monkeypatch.setattr(model.sam, "forward", sam)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    teacher_forced_oracle(model, engine, inputs, pixels, [5])
    assert seen == [False] and torch.backends.cudnn.allow_tf32 is True


def test_bf16_is_held_against_the_oracle(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(checkpoint, page, capsys, "--dtype", "bfloat16")
    (batch,) = found["agreements"]  # type: ignore[misc]
    assert 0 < batch["error"] < 0.1 and 0 < batch["eager_error"] < 0.1
    assert code == (OK if found["passes"] else FAILED)
    assert len(batch["margins"]) == min(batch["misses"], 20)


def test_a_wrong_way_does_not_pass(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = parity_fast.teacher_forced_batch

    def shifted(*arguments: object) -> object:
        way = right(*arguments)  # type: ignore[arg-type]
        return type(way)(way.logits.roll(1, dims=1), way.chosen)

    monkeypatch.setattr(parity_fast, "teacher_forced_batch", shifted)
    code, found = run(checkpoint, page, capsys)
    assert code == FAILED and found["passes"] is False


def test_a_page_with_other_tokens_is_named(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = parity_fast._read_all

    def last_page_cut(*arguments: object) -> list[OcrResult]:
        *others, last = right(*arguments)  # type: ignore[arg-type]
        return [*others, replace(last, token_ids=last.token_ids[:-1])]

    monkeypatch.setattr(parity_fast, "_read_all", last_page_cut)
    arguments = [*COMMAND, str(page), str(page.with_name("turned.png")), "--checkpoint", str(checkpoint)]
    main([*arguments, "--preset", "tiny", "--device", "cpu", "--tokens", "9", "--batch", "2"])
    logged = capsys.readouterr().out
    assert "batch / eager: other tokens on turned.png\n" in logged
    batch, other = json.loads(logged.splitlines()[-1])["distances"]
    assert (batch["equal"], batch["differing"], other["differing"]) == (1, ["turned.png"], [])


def test_misses_are_counted_and_the_largest_margin_comes_first() -> None:
    missed = torch.tensor([False, True, True])
    margins, errors, eager = (
        torch.tensor(row) for row in ([5.0, 0.25, 0.5], [0.1, 0.2, 0.3], [0.3, 0.3, 0.3])
    )
    found = _agreement("way", [(missed, margins, errors, eager)])
    assert (found.positions, found.misses, found.margins) == (3, 2, (0.5, 0.25))
    assert (found.error, found.error_max) == pytest.approx((0.2, 0.3))
    assert found.holds and not Agreement("way", 1, 0, (), 0.34, 0.4, 0.3, 0.3).holds


def test_usage_errors_are_one_line(checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, str(page), "--tokens", "0"]) == BAD_USAGE
    assert "tokens is 0" in capsys.readouterr().out
    assert main([*COMMAND, str(page.with_name("none.png"))]) == BAD_USAGE
    assert "none.png" in capsys.readouterr().out


@pytest.mark.slow
def test_the_embedded_checkpoint_reads_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """The batch's text is the eager engine's on samples of the project."""
    samples = SAMPLES
    pages = [str(samples / name) for name in ("06-small-ticket.png", "05-square-card.png")]
    assert main([*COMMAND, *pages, "--device", "cpu", "--tokens", "200", "--batch", "2"]) == OK
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(row["equal"] == row["pages"] for row in found["distances"])
