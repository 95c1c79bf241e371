"""`measure floor`: shares from recorded benches, by hand and from the examples, and their picture."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dsocr_core.base.console import BAD_USAGE, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import main
from dsocr_core.measure.floor import Recorded, StageFloor, floors_of, recorded_benches
from dsocr_core.measure.floor_picture import draw
from dsocr_core.models.family import load_config

CONFIG = PROJECT_ROOT / "analytic_model" / "published.json"
SVG = "{http://www.w3.org/2000/svg}"


def bench(**engine: Any) -> dict[str, Any]:
    """Of a device that copies 1 TB/s and computes without limit: every floor is bytes over 1e9 a ms."""
    times = {"sam": 4.0, "clip": 2.0, "projector": 0.5, "vision_fusion": 0.5, "prefill": 10.0, "decode": 90.0}
    stages = {name: {"milliseconds": {"median": ms}, "flops": None} for name, ms in times.items()}
    stages["sam"]["flops"] = 2.2816e12  # as the examples' record has it
    return {
        "preset": "gundam", "size": [1280, 1280], "batch": 1, "nvtx_only": False,
        "device": {
            "name": "Toy", "copy_bytes_per_s": 1e12, "matmul_flops_per_s": 1e21, "matmul_dtype": "bfloat16",
        },
        "engines": [
            {
                "name": "fast", "dtype": "bfloat16", "prompt_tokens": 741, "new_tokens": 101,
                "stages": stages, "pages_per_s": {"median": 8.0}, "ms_per_token": {"median": 4.0},
                "bytes_per_token": 5e7,
            }
            | engine
        ],
    }  # fmt: skip


def floors(*benches: dict[str, Any], commit: str = "abc") -> dict[str, StageFloor]:
    recorded = [Recorded(f"run-{number}", "abcdef", found) for number, found in enumerate(benches)]
    return {floor.stage: floor for floor in floors_of(commit, recorded, load_config(CONFIG))}


def test_measured_times_and_floors_of_one_page() -> None:
    found = floors(bench())
    assert list(found) == ["sam", "clip", "projector", "prefill", "decode", "whole page"]
    # 10 ms of prefill's clock hold 7 ms of vision; 8 pages a second are 125 ms each.
    assert [floor.measured_ms for floor in found.values()] == [4.0, 2.0, 0.5, 3.0, 90.0, 125.0]
    # A decode step reads 1.225 GB at 1 TB/s with 1,000 tokens' cache, less with 100: 61 KB a position.
    assert found["decode"].floor_ms == pytest.approx(100 * (1.2251 - 450 * 61.4e-6), rel=1e-3)
    vision_and_text = sum(found[stage].floor_ms for stage in ("sam", "clip", "projector", "prefill"))
    page = found["whole page"].floor_ms
    assert page == pytest.approx(vision_and_text + found["decode"].floor_ms, rel=1e-3)
    assert found["whole page"].share == page / 125


def test_many_pages_take_the_bytes_of_a_step_for_all_streams() -> None:
    found = floors(bench(), bench(streams=32))
    step, page = found["decode, 32 pages"], found["whole page, 32 pages"]
    assert (step.floor_ms, step.measured_ms, step.share) == pytest.approx((1.6, 4.0, 0.4))
    one = found["whole page"].floor_ms - found["decode"].floor_ms
    assert page.floor_ms == pytest.approx(one + 100 * 1.6 / 32)


def test_commits_have_the_floor_of_the_fastest_rates_of_their_device() -> None:
    fast, other = bench(), bench()
    fast["device"]["copy_bytes_per_s"] = 2e12
    other["device"] |= {"name": "Other", "copy_bytes_per_s": 8e12}
    recorded = [Recorded("a", "abc", bench()), Recorded("b", "def", fast), Recorded("c", "eee", other)]
    sizes = load_config(CONFIG)
    before, after, elsewhere = (floors_of(commit, recorded, sizes)[4] for commit in ("abc", "def", "eee"))
    assert before.floor_ms == after.floor_ms == pytest.approx(4 * elsewhere.floor_ms)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda bench: bench["engines"][0].pop("pages_per_s"), "bench.json: not whole (KeyError"),
        (lambda bench: bench["device"].update(copy_bytes_per_s=None), "bench.json: not whole (TypeError"),
        (lambda bench: bench["engines"][0]["stages"]["sam"].update(flops=1e12), "give the config.json"),
        (lambda bench: bench["engines"].clear(), "bench.json: not whole (ValueError"),
    ],
)  # fmt: skip
def test_what_is_no_bench_of_the_model_is_named(change: Any, words: str) -> None:
    broken = copy.deepcopy(bench())
    change(broken)
    with pytest.raises(DsocrError) as raised:
        floors(broken)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_the_picture_is_what_its_documented_command_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PROJECT_ROOT / "docs" / "performance.md").read_text()
    documented = re.search(r"dsocr (measure floor .*) --config CONFIG --svg docs/floor.svg", text)
    assert documented is not None
    arguments = [*documented[1].split(), "--config", str(CONFIG), "--history", str(tmp_path / "none")]
    assert main([*arguments, "--svg", str(tmp_path / "floor.svg")]) == OK
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    shares = {(row["stage"], row["commit"]): float(row["share"]) for row in rows}
    commits = re.findall(r"\b[0-9a-f]{7}\b", documented[1])
    assert len(shares) == 8 * len(commits) > 8 and all(0 < share < 1 for share in shares.values())
    drawn, kept = (tmp_path / "floor.svg").read_text(), (PROJECT_ROOT / "docs" / "floor.svg").read_text()
    assert drawn == kept, "the examples changed: run the command, and mend the table beside the picture"
    # What the batch's own record says of itself, at a rate of copies that differs by a few percent at most.
    newest = [
        found for found in recorded_benches(str(tmp_path / "none"), "gundam") if found.bench["batch"] > 1
    ]
    [engine] = newest[-1].bench["engines"]
    share = shares["decode, 256 pages", arguments[3]]
    assert share == pytest.approx(engine["copy_share"], rel=0.05)


def test_json_has_the_same_figures_and_an_unknown_commit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["measure", "floor", "--config", str(CONFIG), "--history", str(tmp_path / "none")]
    assert main([*command, "a7b87b0", "--json"]) == OK
    [*_, page] = json.loads(capsys.readouterr().out)["floors"]
    assert page["stage"] == "whole page" and page["share"] == page["floor_ms"] / page["measured_ms"]
    assert main([*command, "beef"]) == BAD_USAGE
    shown = capsys.readouterr()
    assert "commit beef: no bench of the fast engine" in " ".join((shown.out + shown.err).split())


def test_a_bar_is_as_long_as_its_share() -> None:
    found = [
        StageFloor("a<b", "old", 1.0, 4.0, 0.25),
        StageFloor("a<b", "new", 2.0, 4.0, 0.5),
        StageFloor("c", "new", 8.0, 4.0, 2.0),
    ]
    drawn = ElementTree.fromstring(draw(found, ["old", "new"]))
    bars = {
        style: [
            float(bar.attrib["width"]) for bar in drawn.iter(f"{SVG}rect") if bar.attrib["class"] == style
        ]
        for style in ("before", "after")
    }
    # The first of each is the legend's; a share above 1 ends at the scale's end.
    assert bars == {"before": [12.0, 110.0], "after": [12.0, 220.0, 440.0]}
    words = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "a<b" in words and "not measured" in words and "25%: 1 of 4 ms" in words
