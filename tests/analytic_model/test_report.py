"""`dsocr flops report`: the table, the JSON, and every error by its field."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.cli.main import main
from dsocr_core.runs.store import SEED_LOCATION, History
from tests.support.paths import ROOT

MINI = ROOT / "data" / "mini" / "config.json"
PAGE = ["flops", "report", "--config", str(MINI), "--width", "1300", "--height", "1300"]


def report(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main([*PAGE, *options, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_the_json_report_has_workload_and_stages(capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "--prompt-tokens", "12", "--decode-tokens", "40", "--preset", "gundam")
    assert document["workload"]["views"] == [640, 640, 640, 640, 1024]
    assert document["workload"]["sequence_length"] == 705
    stages = {row["stage"]: row for row in document["stages"]}
    assert list(stages) == [
        "sam", "clip", "projector", "vision_fusion", "prefill", "prefill with vision", "decode", "everything",
        "one token",
    ]  # fmt: skip
    assert list(document["operators"]) == ["sam", "clip", "projector", "vision_fusion", "prefill", "decode"]
    for name, operators in document["operators"].items():
        assert stages[name]["flops"] == sum(operator["flops"] for operator in operators)
    assert stages["everything"]["parameters"] == document["parameters"]["total"]
    assert document["kv_cache_bytes"] == 744 * 2 * 6 * 320 * 2
    assert document["not_counted"]


def test_a_price_is_the_users_and_prices_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "--peak", "100", "--bandwidth", "500", "--price", "3.6", "--decode-tokens", "9")
    stages = {row["stage"]: row for row in document["stages"]}
    # 3.60 an hour is 0.001 a second, and a thousand pages are a thousand bounds.
    assert document["cost_of_1000_pages"]["at_least"] == pytest.approx(stages["everything"]["bound_s"])
    assert stages["sam"]["bound_s"] == pytest.approx(stages["sam"]["flops"] / 100e12)  # as the peak says
    assert document["hardware"]["source"] == "given by the user"
    assert report(capsys)["cost_of_1000_pages"] == {}
    assert main([*PAGE, "--hardware", "l4", "--price", "0.8"]) == 0
    assert "1,000 pages cost at least" in capsys.readouterr().out


def test_options_reach_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    def flops(stage: str, *options: str) -> float:
        return next(row["flops"] for row in report(capsys, *options)["stages"] if row["stage"] == stage)

    every = ("--lm-head", "all", "--no-window-padding", "--causal", "halved")
    assert flops("sam", *every) < flops("sam") == flops("sam", "--batch", "2") / 2
    assert report(capsys, *every)["policy"]["lm_head"] == "all"
    flash = ("--attention", "flash_attention_2")
    assert flops("prefill", *flash) < flops("prefill", *flash, "--count-unsupported") == flops("prefill")


def test_the_table_has_each_stage_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PAGE, "--decode-tokens", "500", "--hardware", "rtx-4090"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 110 and not any("…" in line for line in lines)
    rows = [
        line.split() for line in lines if line.strip().startswith(("sam", "prefill", "decode", "one token"))
    ]
    assert len(rows) == 5 and all(row[-1] in ("compute", "memory", "sum") for row in rows)
    assert any("GeForce RTX 4090" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--width", "0"], "width is 0"),
        (["--height", "-5"], "height is -5"),
        (["--preset", "huge"], "unknown preset 'huge'"),
        (["--prompt-tokens", "0"], "--prompt-tokens is 0"),
        (["--decode-tokens", "-1"], "--decode-tokens is -1"),
        (["--batch", "0"], "batch is 0"),
        (["--hardware", "abacus"], "unknown hardware 'abacus'"),
        (["--hardware", "gh200"], "bfloat16 peak of GH200 96 GB is not known"),
        (["--price", "0"], "--price is 0: give a number above 0"),
        (["--hardware", "h200-measured", "--dtype", "float32"], "float32 peak"),
        (["--config", "/nowhere/config.json"], "/nowhere/config.json"),
    ],
)
def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], options: list[str], problem: str) -> None:
    assert main([*PAGE, *options]) == 2
    out, err = capsys.readouterr()
    assert "error: " in out + err and problem in out + err


def test_the_report_needs_no_torch() -> None:
    code = (
        "import sys; from dsocr_core.cli.main import main; "
        f"code = main({[*PAGE, '--json']!r}); "
        "sys.exit(code or any(name in sys.modules for name in ('torch', 'streamlit', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True).returncode == 0


def test_recorded_times_stand_beside_their_bounds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with History(tmp_path / "history", also=[SEED_LOCATION]) as history:
        runs = history.runs(engines=["fast"], profiled=False)
        run = str(runs.loc[runs["gpu"].notna(), "run_id"].iloc[0])
        timed, _ = history.query("page_timings", run_ids=[run])
    where = ["--history", str(tmp_path / "history")]
    assert main(["flops", "against", run, *where, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    decode = next(row for row in document["stages"] if row["stage"] == "decode")
    mine = timed[(timed["page"] == document["page"]) & (timed["stage"] == "decode")]
    assert decode["measured_s"] == pytest.approx(mine["milliseconds"].median() / 1e3)
    assert (
        decode["above_bound"] == pytest.approx(decode["measured_s"] / decode["bound_s"])
        and document["hardware"]
    )
    assert main(["flops", "against", run, *where]) == 0
    assert "Of bandwidth" in capsys.readouterr().out
    assert main(["flops", "against", "nowhere", *where]) == 2
    assert "is not in this history" in capsys.readouterr().out
