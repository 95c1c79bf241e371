"""The measured history: every size, every query, and whether the targets are met."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perf.history import bench, missed


@pytest.mark.usefixtures("quick_spawn")
def test_every_size_and_every_query_is_measured(tmp_path: Path) -> None:
    found = bench(10, 1000, tmp_path, repeats=2)
    assert [size["runs"] for size in found["sizes"]] == [2, 3, 10]
    assert found["sizes"][-1]["stage_rows"] == pytest.approx(1000, rel=0.1)
    queries = found["sizes"][-1]["queries"]
    assert {"runs", "trend", "pairs", "kernels"} <= {query["name"] for query in queries}
    assert all(query["p95_ms"] >= query["median_ms"] > 0 for query in queries)
    assert list(tmp_path.iterdir()) == []
    slow = {
        "open_s": 1.0,
        "refresh_s": 0.4,
        "queries": [{"name": "runs", "over": "history", "p95_ms": 401.0}],
    }
    assert missed(slow) == ["refresh_s: 0.4 > 0.3", "runs: 401 ms > 400 ms"]
