"""The speed of workers that are all busy."""

import json

import pytest

from dsocr_core.settings import SettingsError

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")
from tests.perf.scaling import main, steady


def batches(pages: int, slots: int, from_s: float = 0.0, page_s: float = 1.0) -> list[float]:
    """When the pages of a worker end whose `slots` are begun together and each take `page_s`."""
    return [from_s + page_s * (number // slots + 1) for number in range(pages)]


def test_the_time_is_that_in_which_all_workers_are_busy() -> None:
    # The slower loads until 4 s and reads a page in 0.5 s: pages 2 to 7 of 10 are timed, from 5.0 to 8.0 s.
    slow = [4.0 + 0.5 * number for number in range(1, 11)]
    # The faster is done at 12 s, with 2 pages left at 11 s; 3 of its pages ended from 5.0 to 8.0 s.
    fast = [3.0 + number for number in range(1, 10)]
    assert steady([slow, fast], 2) == (6 + 3, 3.0)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_as_many_pages_a_second_for_each_worker_of_many(workers: int) -> None:
    """Also where one loads 3 s longer: before that, and when the first is done, fewer read."""
    ended = [batches(400, 40, from_s=3.0 * worker) for worker in range(workers)]
    pages, seconds = steady(ended, 40)
    assert pages / seconds == pytest.approx(40 * workers)


@pytest.mark.parametrize(
    "ended", [[[1.0, 2.0, 3.0, 4.0]], [batches(20, 2), [1.0]], [batches(9, 2), batches(9, 2, 90)]]
)
def test_too_few_pages_are_refused_in_one_line(ended: list[list[float]]) -> None:
    with pytest.raises(SettingsError, match="give more --pages or fewer --shard-pages"):
        steady(ended, 2)


def test_the_speed_of_workers_is_measured_beside_that_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "--workers",
        "0",
        "1",
        "--pages",
        "6",
        "--shard-pages",
        "2",
        "--repeat",
        "1",
        "--size",
        "320x200",
    ]
    assert main([*command, "--preset", "tiny", "--infer.max_new_tokens", "6", "--device", "cpu"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    turns = {turn["workers"]: turn for turn in document["turns"]}
    assert [turn["pages"] for turn in turns.values()] == [6, 6]
    # Without the first and the last shard of two pages; the last pages may be told after the run is over.
    assert turns[0]["timed_pages"] == 2 and 0 < turns[1]["timed_pages"] <= 2
    assert all(turn["pages_per_s"] > 0 for turn in turns.values())
