"""`compare RUN --again`: a recorded run is read again as A; what differs is named by page and token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import load_file, save_file

import dsocr_core.runs.result_cache as results
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.cli.again import batch_of
from dsocr_core.cli.main import main
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.results import Readings
from dsocr_core.runs.results import results as results_of
from tests.support.planted_causes import made_pages
from tests.support.results import make_result
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

TOKENS = 12
PAGES = ("one.png", "two.png")


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RUNS_DIRECTORY", tmp_path / "runs")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("again") / "tiny", torch.float32)


@pytest.fixture(scope="module")
def recorded(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A history with one run over two pages, and the run's id."""
    folder = tmp_path_factory.mktemp("pages")
    for name in PAGES:
        picture = Image.new("RGB", (300, 200), "white")
        ImageDraw.Draw(picture).text((20, 20), f"Hello {name}", fill="black")
        picture.save(folder / name)
    history, out = folder / "history", folder / "out"
    options = ["--checkpoint", checkpoint, "--preset", "tiny", "--infer.max_new_tokens", TOKENS]
    assert command("run", *(folder / name for name in PAGES), *options, "--save", "--history", history,
                   "--out", out) == OK  # fmt: skip
    with History(history) as opened:
        (run_id,) = opened.runs()["run_id"]
    return history, run_id


def command(*words: object) -> int:
    return main([str(word) for word in words])


def again(
    recorded: tuple[Path, str], out: Path, capsys: pytest.CaptureFixture[str], *more: object
) -> tuple[int, dict[str, Any]]:
    history, run_id = recorded
    code = command("compare", run_id, *more, "--again", "--history", history, "--out", out, "--json")
    return code, json.loads(capsys.readouterr().out)


def tokens(history: Path, run_id: str) -> dict[str, Sequence[int]]:
    with History(history) as opened:
        return {page: result.token_ids or () for (page, _), result in results_of(opened, run_id).items()}


def test_an_unchanged_run_is_identical(
    recorded: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are the run's, and `--save` records the second reading under them."""
    code, document = again(recorded, tmp_path / "out", capsys, "--save")
    assert (code, document["passed"], document["failed"]) == (OK, 2, 0)
    assert all(row["verdict"] == "identical" and row["tokens_equal"] for row in document["pages"])
    with History(recorded[0]) as history:
        (made,) = {*history.runs()["run_id"]} - {recorded[1]}
        assert history.record(made).settings["infer"]["max_new_tokens"] == TOKENS
    assert tokens(recorded[0], made) == tokens(*recorded)


def test_one_changed_weight_is_named_by_page_and_token(
    recorded: tuple[Path, str], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(checkpoint, changed)
    file = next(changed.glob("*.safetensors"))
    weights = load_file(file)
    weights["model.norm.weight"][0] += 4.0
    save_file(weights, file, {"format": "pt"})

    code, document = again(recorded, tmp_path / "out", capsys, "--checkpoint", changed)

    assert (code, document["failed"]) == (FAILED, 2)
    for row in document["pages"]:
        assert row["verdict"] != "identical" and row["first_divergence"] is not None


def test_what_is_on_the_command_line_wins_and_what_a_page_is_asked_is_the_runs(
    recorded: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document = again(recorded, tmp_path / "out", capsys, "--dtype", "bfloat16", "--engine", "eager")
    changed = {row["name"] for row in document["settings"] if not row["equal"]}
    assert "dtype" in changed
    assert (
        command("compare", recorded[1], "--again", "--preset", "base", "--history", recorded[0]) == BAD_USAGE
    )
    assert "--preset is not for --again" in " ".join(capsys.readouterr().out.split())


def test_the_cause_of_another_text_is_found(
    recorded: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the pages that differ: with B as a backend, with two recorded runs, and with one read again."""
    page, run = made_pages(tmp_path)[0].path, ("--history", tmp_path / "h", "--json")
    short = ("--preset", "tiny", "--prompt", "free_ocr", "--device", "cpu", "--infer.max-new-tokens", "64")
    b = ("--b", "eager", "--b.infer.no-repeat-ngram-size", "35")
    pair = ("compare", page, *short, "--a", "eager", *b, "--out", tmp_path / "out", "--save")
    commands = [(*pair, "--why", "1", *run)]
    for number in range(3):
        files = [tmp_path / "r.html", tmp_path / "r.xml"]
        assert command(*commands[number], "--html", files[0], "--junit", files[1]) == FAILED
        document = json.loads(capsys.readouterr().out)
        # Each place names what was reproduced, and no cause that was only likely.
        cause = {"cause": "reproduced", "words": "B is reproduced exactly with n-gram 35"}
        assert [row["causes"] for row in document["pages"]] == [[cause]]
        for report in map(Path.read_text, files):
            assert f"cause: {cause['words']}" in report and "likely cause" not in report.lower()
        (found,) = document["why"]["pages"]
        assert (found["causes"], found["explained"]) == (["ngram-35"], True)
        facts = {line["name"]: (line["a"], line["b"], line["state"]) for line in found["facts"]}
        assert facts["n-gram size"] == ("20", "35", "differs")
        with History(tmp_path / "h") as history:
            recorded_pair = history.runs()["run_id"].iloc[-1]
            causes = [each.causes for each in open_review(history, recorded_pair).pages]
            assert [[each.document() for each in of_page] for of_page in causes] == [[cause]]
        again = (recorded_pair, "--again", "--a", "eager", "--backend-b", "eager-2")
        commands += [("compare", recorded_pair, "--why", "1", *run), ("compare", *again, "--why", "1", *run)]


def test_pages_are_read_together_as_they_were() -> None:
    """The backend that is verified decides, and of its pages the most; a stranger's run may say anything."""
    page = make_result("text")

    def read(*batches: str | None, backend: str = "fast") -> Readings:
        made = [replace(page, environment={} if batch is None else {"batch": batch}) for batch in batches]
        others = {("other.png", "eager"): replace(page, environment={"batch": "8"})}
        return Readings({(f"{n}.png", backend): result for n, result in enumerate(made)} | others)

    assert batch_of(read("64", "64", None), "fast") == 64 and batch_of(read(None, None, "4"), "fast") == 1
    assert batch_of(read(), "fast") == 1 and batch_of(read("64"), "eager") == 8
    assert [batch_of(read(said), "fast") for said in ("-3", "0", "many", "9" * 9)] == [1, 1, 1, 256]


def test_a_page_whose_file_is_another_now_is_not_read(
    recorded: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = recorded[0].parent / "two.png"
    kept = picture.read_bytes()
    picture.write_bytes(kept + b" ")
    try:
        code, document = again(recorded, tmp_path / "out", capsys)
    finally:
        picture.write_bytes(kept)
    assert code == FAILED
    two, one = document["pages"]
    assert (one["verdict"], two["verdict"]) == ("identical", "not_comparable")
    assert "is not there any more, or is another" in json.dumps(two)


def test_images_that_are_given_are_those_that_are_read(
    recorded: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copy(recorded[0].parent / "two.png", moved)
    code, document = again(recorded, tmp_path / "out", capsys, moved)
    assert (code, document["passed"], document["only_b"]) == (OK, 1, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none-such",), "has no run 'none-such'"),
        (("RUN", "--backend-b", "vendor"), "has no backend 'vendor'; it has eager"),
        (("RUN", "README.md"), "none of the given files is called like a page"),
    ],
)
def test_what_cannot_be_verified_is_said(
    recorded: tuple[Path, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    said: str,
) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "other.png")
    names = {"RUN": recorded[1], "README.md": tmp_path / "other.png"}
    given = [names.get(word, word) for word in words]
    assert (
        command("compare", *given, "--again", "--history", recorded[0], "--out", tmp_path / "out")
        == BAD_USAGE
    )
    assert said in " ".join(capsys.readouterr().out.split())
