"""What was recorded on a GPU machine, as runs of the history."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from data.history_seed import record_gpu
from data.history_seed.make import GPU_RECORDINGS
from data.history_seed.recorded_runs import write_recorded
from data.history_seed.recorder import portable
from data.history_seed.recordings import CONFIG, PROFILES, RECORDINGS, ProfileRecording
from dsocr_core.errors import DsocrError
from dsocr_core.history.kernel_profiles import figures
from dsocr_core.history.store import History
from dsocr_core.review.review import open_review
from tests.support.flat_tables import flat_tables


def written(names: list[str], folder: Path) -> History:
    """A history of some recordings."""
    (folder / "recordings").mkdir()
    for name in names:
        shutil.copy(GPU_RECORDINGS / name, folder / "recordings")
    write_recorded(folder / "recordings", folder / "history")
    return History(folder / "history")


def test_every_recording_is_there_and_names_no_machine() -> None:
    recorded = {recording.name for recording in RECORDINGS}
    assert {file.name.removesuffix(".json.gz") for file in GPU_RECORDINGS.glob("*.json.gz")} == recorded
    for file in GPU_RECORDINGS.glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        assert not [path for path in ("/tmp", "/home/", "/root", "/opt/") if path in text], file.name


def test_a_bench_is_a_run_with_its_command_commit_and_machine(tmp_path: Path) -> None:
    with written(["fast-5.json.gz"], tmp_path) as history:
        (run_id,) = history.run_ids()
        record = history.record(run_id)
        bench = json.loads((tmp_path / "history" / "runs" / run_id / "bench.json").read_bytes())
        [engine] = bench["engines"]
        assert record.command is not None and record.command.startswith(
            "python -m dsocr_core bench --checkpoint"
        )
        assert record.git_commit is not None and len(record.git_commit) == 40 and record.git_dirty is False
        assert (record.gpu, record.host, record.backends) == ("NVIDIA H200", None, ("fast",))
        assert {"gpu_sm_mhz", "gpu_power_w", "load_1m", "driver"} <= record.environment["machine"].keys()
        # The figure that a reader is shown is what SQL gives.
        rate = history.sql(
            "SELECT median(1000 * (new_tokens - 1) / milliseconds) AS rate FROM stage_timings JOIN images "
            "USING (run_id, page) WHERE stage = 'decode'"
        )["rate"].iloc[0]
        assert rate == pytest.approx(engine["tokens_per_s"]["median"], rel=1e-9)
        assert record.notes is not None and f"{rate:,.0f} tokens/s" in record.notes
        images = flat_tables(history, run_id)["images"].to_pylist()
        assert {row["text_raw"] for row in images} == {None}, "random weights write nothing to review"


def test_the_old_gelu_is_a_regression_to_review(tmp_path: Path) -> None:
    with written(["old-gelu.json.gz"], tmp_path) as history:
        (run_id,) = history.run_ids()
        assert history.record(run_id).git_dirty is True, "the reference's code is that of a later commit"
        verdicts = [page.verdict for page in open_review(history, run_id).pages]
        assert (verdicts.count("within_tolerance"), verdicts.count("identical")) == (3, 11)


RECORDED = [profile for profile in PROFILES if (GPU_RECORDINGS / f"{profile.name}.csv.gz").is_file()]


ENDS = {
    "ncu-fast": ("_embed_token", "_take_best"),
    "ncu-fast-ops": ("_embed_token", "_down"),
    "ncu-eager": ("ArgMaxOps", "CUDAFunctor_add<c10::BFloat16>"),  # the choice of a token; a layer's sum
}
"""The first and the last kernel of each profile."""


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_a_profile_has_the_kernels_of_whole_layers(recorded: ProfileRecording, tmp_path: Path) -> None:
    with written([f"{recorded.name}.json", f"{recorded.name}.csv.gz"], tmp_path) as history:
        (run_id,) = history.run_ids()
        record = history.record(run_id)
        assert record.profiled and record.engine == recorded.profile.engine and record.gpu == "NVIDIA H200"
        rows = flat_tables(history, run_id)["kernels"].to_pylist()
        assert sum(row["instances"] for row in rows) == recorded.taken
        assert sum(row["time_percent"] for row in rows) == pytest.approx(100)
        assert rows[0]["name"] == "_gate_up" or rows[0]["total_ns"] == max(row["total_ns"] for row in rows)
        launches, _ = history.query("launches", run_ids=[run_id])
        assert set(launches["stage"]) == {"decode"}
        first, last = ENDS[recorded.name]
        assert first in launches["kernel"].iloc[0] and last in launches["kernel"].iloc[-1]


def test_the_operations_counted_on_the_gpu_are_those_of_the_products(tmp_path: Path) -> None:
    """The dense layer's two first products: 2 x 6,848 rows of 1,280, a multiply-add each, and little else."""
    name = "ncu-fast-ops"
    with written([f"{name}.json", f"{name}.csv.gz"], tmp_path) as history:
        (run_id,) = history.run_ids()
        metrics, _ = history.query("launch_metrics", run_ids=[run_id])
    of = {
        kernel: figures(part[part["number"] == part["number"].min()].to_dict("records"))
        for kernel, part in metrics.groupby("kernel")
    }
    products = 2 * 2 * 6848 * 1280
    dense = of["_dense_gate_up"]
    assert dense["tensor_flops"] == 0 and products < float(dense["flops"]) < 1.3 * products
    weights = products  # bytes: two a weight, and a multiply-add of two FLOPs each
    assert weights <= float(dense["bytes_read"]) < 1.01 * weights
    assert {row["class"] for row in of.values()} == {"memory", "latency"}
    assert of["_gate_up"]["l2_hits"] is not None and of["_gate_up"]["limiter"] is not None


def made_up_ncu(folder: Path, body: str) -> Path:
    """A program in place of ncu; `$log` is the table's path, and it is started in the checkout."""
    script = folder / "ncu"
    script.write_text(f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done; log="$2"\n{body}\n')
    script.chmod(0o755)
    return script


def test_recording_a_profile_is_one_command_that_writes_table_and_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up_ncu(tmp_path, f'grep -q small {CONFIG} && printf \'"ID","Kernel Name"\\n\' > "$log"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "config.json").write_text('"small"')
    words = ["--config", str(tmp_path / "config.json"), "--to", str(tmp_path / "to"), "ncu-fast", "ncu-eager"]
    assert record_gpu.main(words) == 0
    assert capsys.readouterr().out.splitlines() == ["ncu-fast: recorded", "ncu-eager: recorded"]
    about = json.loads((tmp_path / "to" / "ncu-eager.json").read_bytes())
    assert "--engine eager" in about["command"] and str(tmp_path) not in json.dumps(about)
    assert len(about["commit"]) == 40 and about["versions"]["python"]
    assert gzip.decompress((tmp_path / "to" / "ncu-fast.csv.gz").read_bytes()) == b'"ID","Kernel Name"\n'
    made_up_ncu(tmp_path, "exit 9")
    assert record_gpu.main([*words[:-2], "ncu-eager"]) == 1
    assert capsys.readouterr().out == "ncu-eager: failed with 9\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"{}"), gzip.compress(b'{"format": 2}')],
    ids=["empty", "no gzip", "no format", "another format"],
)
def test_half_a_recording_is_named_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "fast-1.json.gz").write_bytes(content)
    with pytest.raises(DsocrError, match=r"fast-1\.json\.gz: not a whole recording .* record it again"):
        write_recorded(tmp_path, tmp_path / "history")


def test_paths_of_the_checkout_are_written_relative_to_it() -> None:
    found = portable({"a": Path("/x/tree/data/mini"), "b": ["/x/tree", 1, None, True]}, "/x/tree")
    assert found == {"a": "data/mini", "b": [".", 1, None, True]}
