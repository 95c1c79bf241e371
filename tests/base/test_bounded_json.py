"""Files of strangers: each reader of JSON refuses what is too large, too deep or no regular file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from dsocr_core.base.bounded_json import DEPTH_LIMIT, InvalidFile, parse_json, parse_value, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.taps.files import Dump
from dsocr_core.runs.record import RunRecord
from dsocr_core.vendor.protocol import ProtocolError, decode

HOSTILE = {
    "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deeper than allowed": b'{"a":' + b"[" * DEPTH_LIMIT + b"]" * DEPTH_LIMIT + b"}",
    "5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "no UTF-8": b'{"a": "\xff"}',
    "cut short": b'{"a": [1, 2',
    "a list": b"[1, 2]",
    "a number": b"7",
    "empty": b"",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_each_reader_refuses_hostile_json_in_one_line(tmp_path: Path, case: str) -> None:
    (tmp_path / "trace.json").write_bytes(HOSTILE[case])
    with pytest.raises(DsocrError, match=r"trace\.json") as raised:
        Dump(tmp_path)
    assert "\n" not in str(raised.value)
    with pytest.raises(ProtocolError):
        decode(HOSTILE[case] + b"\n")
    with suppress(DsocrError):  # of a number of any size the document is one
        RunRecord.from_json(parse_json(HOSTILE[case], any_number=True))
        pytest.fail("a record was made of it")


def test_values_at_the_limits_are_taken() -> None:
    deepest = "[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT
    assert parse_value(deepest) is not None
    with pytest.raises(InvalidFile, match="deeper"):
        parse_value(f"[{deepest}]")
    assert parse_value("7") == 7
    assert parse_json('{"a": 9223372036854775807}') == {"a": 2**63 - 1}
    with pytest.raises(InvalidFile, match="64 bits"):
        parse_json('{"a": 9223372036854775808}')


def test_what_is_no_file_or_beyond_its_limit_is_not_read(tmp_path: Path) -> None:
    """A pipe is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as handle:
        handle.truncate(10**12)
    irregular = "not a regular file"
    for source, words in (
        (tmp_path / "pipe", irregular),
        (Path("/dev/zero"), irregular),
        (tmp_path / "sparse", "1,000,000,000,000 bytes; at most 100"),
    ):
        with pytest.raises(InvalidFile, match=words):
            read_bytes(source, 100)
