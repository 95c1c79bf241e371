"""The parity command on a small checkpoint: equal in float32, and what is not equal is seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.parity_fast as parity_fast
from dsocr_core.parity_fast import BAD_USAGE, FAILED, OK, Agreement, _agreement, main
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint


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
        [str(page), str(page.with_name("turned.png")), "--checkpoint", str(checkpoint), "--preset", "tiny",
         "--device", "cpu", "--tokens", "9", "--batch", "2", *more]
    )  # fmt: skip
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_in_float32_nothing_differs(checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(checkpoint, page, capsys)
    assert code == OK and found["passes"] is True
    (batch,) = found["agreements"]  # type: ignore[misc]
    assert (batch["name"], batch["misses"], batch["eager_error"]) == ("batch", 0, 0.0)
    assert batch["positions"] == 18 and batch["error"] < 1e-5
    assert [(d["name"], d["pages"], d["equal"]) for d in found["distances"]] == [  # type: ignore[attr-defined]
        ("eager, other attention / eager", 2, 2), ("batch / eager", 2, 2),
    ]  # fmt: skip
    assert [(r["name"], r["equal"]) for r in found["repeats"]] == [("batch", 2), ("batch, other order", 2)]  # type: ignore[attr-defined]


def test_bf16_is_held_against_the_oracle(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(checkpoint, page, capsys, "--dtype", "bfloat16")
    (batch,) = found["agreements"]  # type: ignore[misc]
    assert 0 < batch["error"] < 0.1 and 0 < batch["eager_error"] < 0.1
    assert code == (OK if found["passes"] else FAILED)
    assert len(batch["margins"]) == min(batch["misses"], 20)


def test_a_wrong_way_is_seen(
    checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = parity_fast.forced_batch

    def shifted(*arguments: object) -> object:
        way = right(*arguments)  # type: ignore[arg-type]
        return type(way)(way.logits.roll(1, dims=1), way.chosen)

    monkeypatch.setattr(parity_fast, "forced_batch", shifted)
    code, found = run(checkpoint, page, capsys)
    assert code == FAILED and found["passes"] is False


def test_misses_and_margins_by_hand() -> None:
    missed = torch.tensor([False, True, True])
    margins, errors, eager = (
        torch.tensor(row) for row in ([5.0, 0.25, 0.5], [0.1, 0.2, 0.3], [0.3, 0.3, 0.3])
    )
    found = _agreement("way", [(missed, margins, errors, eager)])
    assert (found.positions, found.misses, found.margins) == (3, 2, (0.5, 0.25))
    assert (found.error, found.error_max) == pytest.approx((0.2, 0.3))
    assert found.holds and not Agreement("way", 1, 0, (), 0.34, 0.4, 0.3, 0.3).holds


def test_usage_errors_are_one_line(checkpoint: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(page), "--tokens", "0"]) == BAD_USAGE
    assert "tokens is 0" in capsys.readouterr().out
    assert main([str(page.with_name("none.png"))]) == BAD_USAGE
    assert "none.png" in capsys.readouterr().out


@pytest.mark.slow
def test_the_embedded_checkpoint_reads_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """The batch's text is the eager engine's on samples of the project."""
    samples = Path(__file__).parents[2] / "data" / "samples"
    pages = [str(samples / name) for name in ("06-small-ticket.png", "05-square-card.png")]
    assert main([*pages, "--device", "cpu", "--tokens", "200", "--batch", "2"]) == OK
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(row["equal"] == row["pages"] for row in found["distances"])
