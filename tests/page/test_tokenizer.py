"""The tokenizer against transformers' on the embedded checkpoint, its errors, and streaming."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.page.tokenizer import BOS, EOS, StreamDecoder, Tokenizer
from tests.support.paths import MINI

TEXTS = [
    *PROMPTS.values(),
    "<|ref|>title<|/ref|><|det|>[[10, 20, 500, 60]]<|/det|>\n# Hello\n\n",
    "  leading and trailing  ",
    "naïve café – 漢字 🙂 \u0000\ufffd",
    "<td>1</td><tr></tr><｜end▁of▁sentence｜>",
    "",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MINI)


def test_same_as_transformers(tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    other = transformers.AutoTokenizer.from_pretrained(MINI)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == other.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == other.decode(ids, skip_special_tokens=False)
        decoder = StreamDecoder(tokenizer.decode)
        assert "".join(map(decoder.push, ids)) + decoder.flush() == tokenizer.decode(ids)
    assert tokenizer.bos_token_id == other.bos_token_id
    assert tokenizer.eos_token_id == other.eos_token_id
    assert tokenizer.image_token_id == other.convert_tokens_to_ids("<image>")


def test_a_tokenizer_that_would_add_bos_adds_none(tmp_path: Path) -> None:
    backend = Backend.from_file(str(MINI / "tokenizer.json"))
    backend.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, backend.token_to_id(BOS))]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    assert backend.encode("abc").ids[0] == backend.token_to_id(BOS)
    assert Tokenizer.load(tmp_path).encode("abc") == Tokenizer.load(MINI).encode("abc")


def without(token: str) -> bytes:
    data = json.loads((MINI / "tokenizer.json").read_text(encoding="utf-8"))
    data["added_tokens"] = [each for each in data["added_tokens"] if each["content"] != token]
    data["model"]["vocab"].pop(token, None)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "missing"), (b"{ not json", "not a tokenizer"), (b"\xff\xfe\x00", "not a tokenizer"),
        *((without(token), f"has no token {token}") for token in ("<image>", "<|ref|>", EOS)),
    ],
)  # fmt: skip
def test_a_damaged_tokenizer_file_is_named(tmp_path: Path, content: bytes | None, cause: str) -> None:
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DsocrError) as error:
        Tokenizer.load(tmp_path)
    message = str(error.value)
    assert cause in message and str(file) in message and "\n" not in message


hostile = st.one_of(
    st.text().map(str.encode),
    st.binary(),
    st.lists(st.sampled_from([0x80, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xC0, 0xED, 0xA0, 0x41])).map(bytes),
    st.lists(st.sampled_from([0xE2, 0x82, 0xF0, 0x9F]), min_size=30).map(bytes),
)


@given(hostile)
@example(b"\xe2" * 8192)
@example(b"\x80" * 8192)
@example(b"\xf0\x9f" * 4096)
@settings(max_examples=300)
def test_deltas_sum_to_the_whole_in_linear_time(raw: bytes) -> None:
    """One token a byte; those that are decoded are counted."""
    decoded = list[int]()

    def decode(ids: Iterable[int]) -> str:
        decoded.extend(ids := list(ids))
        return bytes(ids).decode(errors="replace")

    decoder = StreamDecoder(decode)
    assert "".join([*map(decoder.push, raw), decoder.flush()]) == raw.decode(errors="replace")
    assert len(decoded) <= 40 * len(raw)
