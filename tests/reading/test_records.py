"""Records: what is derived, the way to JSON and back, and names by content."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.fingerprints import checkpoint_fingerprint, read_file
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.reading.records import UNLIMITED, OcrRequest, result_from_jsonable
from tests.support.any_results import any_result
from tests.support.results import make_result


def written(result: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(to_jsonable(result)))
    return found


def test_json_and_back() -> None:
    for seed in range(300):
        assert result_from_jsonable(written(any_result(seed))) == any_result(seed)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("request", None), ("request.image", 5), ("request.unknown", 1), ("image_size", [1]),
        ("image_size", ["a", "b"]), ("token_ids", ["a"]), ("token_ids", 5), ("inputs.image_mask", [[1]]),
        ("inputs.grid", "xy"), ("inputs.dtype", None), ("text_raw", None), ("finish_reason", "tired"),
        ("timings", [{"stage": "nap", "milliseconds": 1, "calls": 1}]), ("timings", [{"stage": "sam"}]),
    ],
)  # fmt: skip
def test_foreign_data_is_refused(path: str, value: object) -> None:
    data = parent = written(make_result())
    *parents, last = path.split(".")
    for key in parents:
        parent = parent[key]
    parent[last] = value
    if value is None:
        del parent[last]
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        result_from_jsonable(data)


def test_what_is_not_known_is_said_to_what_needs_it() -> None:
    silent = replace(make_result(), token_ids=None, inputs=None)
    assert silent.new_tokens is None
    for name in ("tokens", "inputs"):
        with pytest.raises(DsocrError, match=f"page.png: eager does not tell its {name}"):
            getattr(silent, f"required_{name}")
    request = OcrRequest.imported(Path("page.png"), source="page", preset="small")
    assert (request.preset, request.prompt, request.max_new_tokens) == ("small", None, None)
    with pytest.raises(DsocrError, match="page: with which preset, prompt and limits it was read"):
        _ = request.required
    assert OcrRequest(Path("page.png"), max_new_tokens=UNLIMITED).required.max_new_tokens == UNLIMITED


def test_the_published_code_beside_the_weights_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    code = tmp_path / "modeling.py"
    code.write_text("NGRAM_SIZE = 20")
    before = checkpoint_fingerprint(str(tmp_path))
    code.write_text("NGRAM_SIZE = 2")
    assert checkpoint_fingerprint(str(tmp_path)) != before


def test_a_file_that_cannot_be_hashed_is_named_with_its_cause(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.png", "no such file; check"), (tmp_path, "cannot be read")):
        with pytest.raises(DsocrError, match=f"{path}: {words}"):
            read_file(path)
