"""`profile`: ncu is driven over one stage, and what it writes becomes a run. ncu is made up."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path

import pytest

from dsocr_core.base.console import BAD_USAGE, OK
from dsocr_core.cli.main import main
from dsocr_core.runs.history import History

TABLE = """\
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
"0","7","_qkv_rotary","GPU Speed Of Light Throughput","Duration","us","6.14",
"0","7","_qkv_rotary","GPU Speed Of Light Throughput","DRAM Throughput","%","33.43",
"0","7","_qkv_rotary","SpeedOfLight","","","","SOLBottleneck","OPT","Look at the launch."
"1","7","_down","GPU Speed Of Light Throughput","Duration","ns","7,810",
==PROF== Disconnected from process 7
"""  # noqa: E501


def made_up_ncu(folder: Path, body: str, patch: pytest.MonkeyPatch) -> None:
    """Put a program in place of ncu that writes its arguments down; `$log` is the table's path."""
    script = folder / "ncu"
    script.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {shlex.quote(str(folder / 'arguments'))}\n"
        f'while [ "$1" != --log-file ]; do shift; done; log="$2"\n{body}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    patch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_the_stage_alone_is_profiled_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table").write_text(TABLE)
    made_up_ncu(tmp_path, f'cp {shlex.quote(str(tmp_path / "table"))} "$log"', monkeypatch)
    words = ["profile", "decode", "--engine", "fast", "--preset", "small", "--json"]
    words += ["--skip", "2", "--count", "76", "--history", str(tmp_path / "history")]
    assert main([*words, "--checkpoint", "random:config.json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert (found["launches"], found["stage"], found["engine"]) == (2, "decode", "fast")
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given[given.index("--nvtx-include") + 1] == "decode/"
    assert given[given.index("--launch-skip") + 1] == "2" and given[given.index("--launch-count") + 1] == "76"
    bench = given[given.index("bench") :]
    assert given.count("--section") == 6 and "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in " ".join(given)
    assert "--nvtx-only" in bench and bench[bench.index("--engine") + 1] == "fast"
    assert bench[bench.index("--checkpoint") + 1] == "random:config.json"

    with History(tmp_path / "history") as history:
        record = history.record(found["run"])
        launches, _ = history.query("launches", run_ids=[found["run"]])
    assert record.profiled and record.backends == ("fast",) and record.source == "dsocr"
    assert str(record.command).startswith(
        "ncu --csv --page details --print-units base --log-file ncu.details.csv "
    )
    assert str(tmp_path) not in str(record.command)
    assert launches["kernel"].tolist() == ["_qkv_rotary", "_down"]
    assert launches["stage"].tolist() == ["decode", "decode"]


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM" > "$log"; exit 1', "exit code 1: ==ERROR== ERR_NVGPUCTRPERM"),
        ("echo no GPU >&2; exit 9", "ncu gave no table (not there), exit code 9: no GPU"),
        ('printf \'"ID","Kernel Name"\\n\' > "$log"', "a head and no rows"),
    ],
)
def test_what_ncu_could_not_do_is_one_line(
    body: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_ncu(tmp_path, body, monkeypatch)
    words = ["profile", "sam", "--history", str(tmp_path / "history")]
    assert main(words) == BAD_USAGE
    assert cause in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "history" / "runs").is_dir() or not list((tmp_path / "history" / "runs").iterdir())
