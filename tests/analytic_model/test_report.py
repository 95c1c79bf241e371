"""`dsocr flops report`: the table, the JSON, and every error by its field."""

import json
import subprocess
import sys
from typing import Any

import pytest

from dsocr_core.cli.main import main
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


def test_options_reach_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    def flops(stage: str, *options: str) -> float:
        return next(row["flops"] for row in report(capsys, *options)["stages"] if row["stage"] == stage)

    every = ("--lm-head", "all", "--causal", "halved")
    assert flops("prefill", *every) != flops("prefill") and flops("sam") == flops("sam", "--batch", "2") / 2
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
        (["--ttft", "0"], "--ttft is 0: give a number above 0"),
        (["--ttft", "5", "--tpot", "1"], "give one target"),
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
