"""Names of any bytes have one text each; nothing shown can steer a terminal."""

from __future__ import annotations

import json
import os

from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.base.sanitise import encodable, json_line, name_text, text_name, visible

_PARTS = st.sampled_from([b"\\", b"\\x", b"\\xff", b"\xff", b"\xc3", b"\xa9", b"x", b"41", b"\x1b", b"e.png"])


@given(st.one_of(st.lists(_PARTS, max_size=8).map(b"".join), st.binary(max_size=20)))
def test_every_name_has_a_text_that_leads_back_to_it(name: bytes) -> None:
    text = name_text(os.fsdecode(name))
    text.encode()
    assert os.fsencode(text_name(text)) == name


@given(st.text(st.characters(), max_size=20))
def test_nothing_visible_steers(text: str) -> None:
    for shown in (visible(text), json_line({"text": text})):
        shown.encode()
        assert not any((ord(each) < 32 and each not in "\t\n") or 0x7F <= ord(each) < 0xA0 for each in shown)
    assert json.loads(json_line(text)) == text


def test_escapes() -> None:
    assert visible("a\x1b[2J\x9b\u202e\u061cb\udcff\td\n") == "a\\x1b[2J\\x9b\\u202e\\u061cb\\xff\td\n"
    assert encodable("caf\udce9 \ud800") == "caf\\xe9 ?"
    assert name_text("caf\udce9\\x41") == "caf\\xe9\\\\x41"
