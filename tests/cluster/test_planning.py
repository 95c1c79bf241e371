"""Shards: the same for the same inputs, written before they are read, compared when a run goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsocr_core.cluster.job import Job, OtherJob
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.planning import Counts, Planning
from dsocr_core.cluster.shards import PageRef, Shard
from dsocr_core.runs.sharded import COMPLETE
from dsocr_core.settings import InferSettings, Settings

PAGES = {"b.pdf": 5, "d.pdf": 3, "broken.pdf": None}


class Counting:
    """Stands for workers that count; says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self, paths: Sequence[str]) -> Counts:
        self.asked += paths
        return lambda: [PAGES[path] for path in paths]


def job_of(shard_pages: int = 2, **settings: object) -> Job:
    return Job.of(Settings(preset="tiny", **settings), ("folder",), shard_pages)  # type: ignore[arg-type]


def plan(output: Output, files: Sequence[str], job: Job | None = None) -> tuple[list[Shard], Counting]:
    counting = Counting()
    planning = Planning(output, job or job_of(), counting.start, lambda cause: None, threading.Event())
    return list(planning.shards(files)), counting


FILES = ["a.png", "b.pdf", "broken.pdf", "c.png", "d.pdf"]


def test_pdfs_become_pages_and_pages_shards(tmp_path: Path) -> None:
    shards, counting = plan(Output(str(tmp_path)), FILES)
    assert counting.asked == ["b.pdf", "broken.pdf", "d.pdf"]
    assert [page for shard in shards for page in shard.pages] == [
        PageRef(0, "a.png"), *(PageRef(number, "b.pdf", number) for number in range(1, 6)),
        PageRef(6, "broken.pdf"), PageRef(7, "c.png"),
        *(PageRef(7 + number, "d.pdf", number) for number in range(1, 4)),
    ]  # fmt: skip
    assert [len(shard.pages) for shard in shards] == [2, 2, 2, 2, 2, 1]
    assert shards[1].pages[0].source == "b.pdf#2"


def test_the_same_inputs_make_the_same_shards_and_nothing_is_counted_again(tmp_path: Path) -> None:
    first, _ = plan(Output(str(tmp_path)), FILES)
    again, counting = plan(Output(str(tmp_path)), FILES)
    elsewhere, _ = plan(Output(str(tmp_path / "other")), FILES)
    assert first == again == elsewhere
    assert counting.asked == []
    assert Output(str(tmp_path)).document(COMPLETE) == {"pages": 11, "shards": 6}


def test_a_plan_that_was_cut_off_is_completed_with_the_same_shards(tmp_path: Path) -> None:
    """With one page a shard, 16 shards are a part: the second part is lost, in the middle of a PDF."""
    PAGES["long.pdf"] = 40
    output, job = Output(str(tmp_path)), job_of(1)
    whole, _ = plan(output, ["a.png", "long.pdf", "c.png"], job)
    for name in ("plan/00000001.parquet", "plan/00000002.parquet", COMPLETE):
        output.store.remove(name)
    again, counting = plan(output, ["a.png", "long.pdf", "c.png"], job)
    assert again == whole
    assert counting.asked == ["long.pdf"]
    assert len(list(output.planned())) == 42


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["a.png", "x.png", *FILES[2:]], "had b.pdf as file 2, now it is x.png"),
        ([*FILES, "e.png"], "had 5 files, now there is e.png"),
        (FILES[:-1], "had d.pdf, which is not there now"),
    ],
)
def test_other_inputs_are_refused_with_the_difference(tmp_path: Path, files: list[str], words: str) -> None:
    plan(Output(str(tmp_path)), FILES)
    with pytest.raises(OtherJob, match=words):
        plan(Output(str(tmp_path)), files)


def test_a_key_follows_pages_settings_checkpoint_and_code(tmp_path: Path) -> None:
    def key(job: Job, files: Sequence[str]) -> str:
        return plan(Output(str(tmp_path / str(len(list(tmp_path.iterdir()))))), files, job)[0][0].key

    usual = key(job_of(), ["a.png"])
    assert key(job_of(), ["a.png"]) == usual
    others = [
        key(job_of(), ["b.png"]),
        key(job_of(infer=InferSettings(max_new_tokens=9)), ["a.png"]),
        key(Job(**{**vars(job_of()), "checkpoint": "another"}), ["a.png"]),
        key(Job(**{**vars(job_of()), "code": "another"}), ["a.png"]),
    ]
    assert len({usual, *others}) == 5
    # What changes no result changes no key; nor does a checkpoint that lies elsewhere.
    assert key(job_of(history="elsewhere", clean_pages=False), ["a.png"]) == usual


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (job_of(3), "shard_pages 2, now it is 3"),
        (job_of(infer=InferSettings(max_new_tokens=9)), r"infer.max_new_tokens 8192, now it is 9"),
        (job_of(engine="fast"), "engine eager, now it is fast"),
        (Job(**{**vars(job_of()), "code": "0123"}), "code .*, now it is 0123"),
    ],
)
def test_an_output_of_another_job_is_refused_in_one_line(tmp_path: Path, other: Job, words: str) -> None:
    output = Output(str(tmp_path))
    assert not output.begin(job_of())
    assert output.begin(job_of())
    with pytest.raises(OtherJob, match=words):
        output.begin(other)
