"""Outputs of earlier versions: every page and figure as it was, once, and resumable at every write.

`earlier_output.zip` is what version 0.1.0 wrote of six pages and a file that is none, with `--redo failed`
after one of them was mended; `expected.json` in it has its pages and figures as that version read them.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import StatusReader
from dsocr_core.cluster.upgrade import upgrade_output
from dsocr_core.reading.records import result_from_jsonable
from dsocr_core.runs.storage.store import Store

EARLIER = Path(__file__).with_name("earlier_output.zip")
PLACES = ["directory", "memory"]


@pytest.fixture(params=PLACES)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path / "out") if request.param == "directory" else f"memory://{tmp_path.name}"
    store = Store(place)
    with zipfile.ZipFile(EARLIER) as archive:
        for name in archive.namelist():
            if name != "expected.json":
                store.put(name, archive.read(name))
    return place


def expected() -> dict[str, Any]:
    with zipfile.ZipFile(EARLIER) as archive:
        found: dict[str, Any] = json.loads(archive.read("expected.json"))
    return found


def check(location: str) -> None:
    """All is there as it was, and nothing else."""
    output, given = Output(location), expected()
    pages = [
        page for _, name in sorted(output.marker_names().items()) for marker in output.markers([name])
        for page in output.pages(marker)
    ]  # fmt: skip
    assert [page.number for page in pages] == list(range(len(given["pages"])))
    for page, was in zip(pages, given["pages"], strict=True):
        row = was["row"]
        assert (page.name, page.path, page.status) == (row["source"], row["path"], row["status"])
        assert page.error == row["error"]
        if page.result is None:
            assert was["result"] is None
            continue
        times = [[each.stage.value, each.milliseconds, each.calls] for each in page.timings]
        assert times == row["times"]
        assert page.result == replace(result_from_jsonable(was["result"]), timings=page.result.timings)
    reader = StatusReader(output)
    assert reader.read().to_json() == given["status"]
    workers = reader.figures.workers.values()
    assert given["figures"] == {
        "workers": {one.name: [one.shards, one.pages, one.failed, one.tokens, one.stages] for one in workers},
        "causes": reader.figures.causes,
    }
    assert output.store.names("earlier") == [] and output.clear_attempts() == 0


def test_every_page_and_figure_is_as_it_was(location: str) -> None:
    with pytest.raises(DsocrError, match="dsocr history upgrade takes it over"):
        Output(location).run()
    assert upgrade_output(location) == (5, {})
    check(location)
    assert upgrade_output(location) == (0, {})
    check(location)


class Ended(BaseException):
    """The process ends here."""


def test_ended_at_any_write_it_goes_on(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [0]

    def fails(write: Any) -> Any:
        def instead(self: Store, name: str, *content: bytes) -> Any:
            if not name.startswith("drivers/"):
                left[0] -= 1
                if left[0] < 0:
                    raise Ended
            return write(self, name, *content)

        return instead

    for method in ("put", "put_new", "remove"):
        monkeypatch.setattr(Store, method, fails(getattr(Store, method)))
    ends = 0
    for writes in range(1, 200):
        left[0] = writes % 4 + 1
        try:
            upgrade_output(location)
            break
        except Ended:
            ends += 1
    assert ends > 5
    left[0] = 10**6
    check(location)


def test_a_damaged_shard_is_named_and_the_output_stays_as_it_is(location: str) -> None:
    store = Store(location)
    [name, *_] = store.names("shards")
    file = next(each for each in store.names(f"shards/{name}") if ".times" not in each)
    content = store.read(f"shards/{name}/{file}") or b""
    store.put(f"shards/{name}/{file}", content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    done, failed = upgrade_output(location)
    assert done == 4 and list(failed) == [f"done/{name}.json"]
    assert f"remove done/{name}.json" in failed[f"done/{name}.json"]
    store.put(f"shards/{name}/{file}", content)
    assert upgrade_output(location) == (1, {})
    check(location)


def test_the_command_takes_over_both_outputs_of_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in "ab":
        with zipfile.ZipFile(EARLIER) as archive:
            archive.extractall(tmp_path / side)
        (tmp_path / side / "expected.json").unlink()
    assert main(["history", "upgrade", str(tmp_path)]) == 0
    assert "10 shards" in capsys.readouterr().out
    check(str(tmp_path / "a"))
    check(str(tmp_path / "b"))
