"""Messages between the two processes: every one comes back as it was, anything else is refused."""

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsocr_core.base.child import MOST_LINE_BYTES
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.vendor import protocol
from dsocr_core.vendor.backend import VendorBackend
from dsocr_core.vendor.protocol import ProtocolError, Recognize, Result, Trace
from tests.support.paths import MINI
from tests.support.results import make_result

RECOGNIZE = Recognize(3, ("/a/b.png",), {"prompt": "<image>\n"}, None, None, True, True, False)
VALUES = st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1))
OPEN = {Recognize: {"arguments": VALUES}, Trace: {"arguments": VALUES}, Result: {"result": VALUES}}
KINDS = [st.builds(kind, **OPEN.get(kind, {})) for kind in get_args(protocol.Message)]


def fits(message: protocol.Message) -> bool:
    """Tell whether its numbers are finite and of 64 bits: others are refused."""
    return re.search(rb"[0-9]{19}|Infinity|NaN", json.dumps(to_jsonable(message)).encode()) is None


@given(st.one_of(KINDS).filter(fits))
def test_every_message_round_trips_on_one_line(message: protocol.Message) -> None:
    line = protocol.encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert protocol.decode(line) == message


def changed(**more: Any) -> bytes:
    """A good message with other fields."""
    return json.dumps({**json.loads(protocol.encode(RECOGNIZE)), **more}).encode()


PROGRESS = b'{"type":"StageProgress","number":1,"stage":'


@given(st.binary(max_size=200))
@example(changed(number="3"))
@example(changed(number=True))
@example(changed(number=3.5))
@example(changed(stream_text=1))
@example(changed(arguments=None))
@example(changed(images={}))
@example(changed(max_new_tokens="inf"))
@example(changed(extra=1))
@example(b'{"type":"Popen","args":["sh"]}')
@example(b'{"type":["Text"]}')
@example(b"[" * 100_000)
@example(PROGRESS + b'"sam","milliseconds":true}')
@example(PROGRESS + b'["sam"],"milliseconds":1}')
@example(PROGRESS + b'"sam"}')
@example(b'{"type":"Text","number":1,"delta":"a"')
@example(b"x" * (MOST_LINE_BYTES + 1))
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode(line)


SENSELESS = {
    "a finish reason": {"finish_reason": "stop"},
    "tokens that are no numbers": {"token_ids": ["a"]},
    "no inputs": {"inputs": None},
    "an input of another type": {"inputs": {"dtype": 1}},
    "an unknown input": {"inputs": {"more": 1}},
    "an unknown stage": {"timings": [{"stage": "x", "milliseconds": 1.0, "calls": 1}]},
    "a best token that was not chosen": {"top_two": [{"ids": [5, 1], "logits": [2.0, 1.0]}]},
    "no size": {"image_size": []},
    "another number of sizes": {"more_sizes": [[1, 1]]},
    "an environment that is a list": {"environment": []},
}


@pytest.mark.parametrize("change", SENSELESS.values(), ids=SENSELESS)
def test_a_result_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    result = make_result("abc", "vendor")
    good = json.loads(json.dumps(to_jsonable(result)))
    backend = VendorBackend(MINI)
    assert backend._result(result.request, good).token_ids == result.token_ids
    inputs = {"inputs": good["inputs"] | change["inputs"]} if change.get("inputs") else {}
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        backend._result(result.request, {**good, **change, **inputs})
