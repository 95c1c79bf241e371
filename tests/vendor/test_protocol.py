"""Messages between the two processes: every one comes back as it was, anything else is refused."""

import json
import math
import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.vendor import protocol
from dsocr_core.vendor.protocol import Failure, Page, ProtocolError, Recognize, Result, StageEnded, Timing

PAGE = Page(["/a/b.png", "/a/c.png"], "<image>\n", 640, 640, False, 35, 128)
RECOGNIZE = Recognize(3, PAGE, None, "/out", True, True, False, True, False)


def fits(message: protocol.Message) -> bool:
    """Whether all its whole numbers have 64 bits: others are refused."""
    if isinstance(message, StageEnded):  # its milliseconds may be what no line can hold
        return -(2**63) <= message.number < 2**63
    return re.search(rb"[0-9]{19}", protocol.encode(message)) is None


WHOLE = st.integers(-(2**63), 2**63 - 1)
TIMINGS = st.builds(Timing, st.text(), st.floats(allow_nan=False, allow_infinity=False), WHOLE)
NUMBERS = ("number", "no_repeat_ngram_size", "ngram_window", "max_new_tokens")
LISTS = ("prompt_ids", "grid", "global_shape", "tiles_shape", "token_ids", "top_ids")
RESULTS = st.builds(
    Result,
    **dict.fromkeys(NUMBERS, WHOLE),
    **dict.fromkeys(LISTS, st.lists(WHOLE)),
    **dict.fromkeys(("image_sizes", "image_mask"), st.lists(st.lists(WHOLE))),
    **dict.fromkeys(("token_texts", "overridden"), st.lists(st.text())),
    flops=st.dictionaries(st.text(), st.lists(WHOLE)),
    text_tokens=st.none() | WHOLE,
    text_raw=st.text(),
    timings=st.lists(TIMINGS),
    top_logits=st.lists(st.floats(allow_nan=False, allow_infinity=False)),
)


@given(RESULTS)
def test_results_round_trip_on_one_line(result: Result) -> None:
    line = protocol.encode(result)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert protocol.decode(line) == result


@given(
    st.one_of([st.from_type(kind) for kind in get_args(protocol.Message) if kind is not Result]).filter(fits)
)
def test_every_other_message_round_trips(message: protocol.Message) -> None:
    finite = not isinstance(message, StageEnded) or math.isfinite(message.milliseconds)
    if finite:
        assert protocol.decode(protocol.encode(message)) == message
    else:
        with pytest.raises(ValueError):
            protocol.encode(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode(line)


def test_optional_fields_may_be_absent_by_null_only() -> None:
    assert protocol.decode(protocol.encode(RECOGNIZE)) == RECOGNIZE
    body = json.loads(protocol.encode(RECOGNIZE))
    del body["max_new_tokens"]
    with pytest.raises(ProtocolError, match="max_new_tokens"):
        protocol.decode(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", "3"),
        ("number", True),
        ("number", 3.0),
        ("eval_mode", 1),
        ("page", None),
        ("page", {"images": []}),
        ("max_new_tokens", "inf"),
        ("extra", 1),
    ],
)
def test_wrongly_typed_or_unknown_fields_are_refused(field: str, value: Any) -> None:
    body = {**json.loads(protocol.encode(RECOGNIZE)), field: value}
    with pytest.raises(ProtocolError, match=rf"(?i){field}"):
        protocol.decode(json.dumps(body).encode())


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"Popen","args":["sh"]}',
        b'{"type":["Text"]}',
        b"[" * 100_000,
        b'{"type":"StageEnded","number":1,"stage":"sam","milliseconds":null}',
        b'{"type":"StageEnded","number":1,"stage":["sam"],"milliseconds":1}',
        b'{"type":"Text","number":1,"delta":"a","tokens":1',
    ],
)
def test_hostile_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode(line)


def test_whole_numbers_are_accepted_where_a_float_belongs() -> None:
    line = b'{"type":"StageEnded","number":1,"stage":"sam","milliseconds":12}'
    message = protocol.decode(line)
    assert message == StageEnded(1, "sam", 12.0)
    assert isinstance(message, StageEnded) and type(message.milliseconds) is float


def test_lines_are_bounded_both_ways() -> None:
    long = "x" * protocol.MAX_LINE_BYTES
    with pytest.raises(ProtocolError, match="bytes"):
        protocol.encode(Failure(0, "failed", long, False))
    with pytest.raises(ProtocolError, match="bytes"):
        protocol.decode(long.encode() + b"\n")
