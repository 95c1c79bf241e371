"""The tokenizer against transformers' on the embedded checkpoint, its errors, and streaming."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.page.tokenizer import StreamDecoder, Tokenizer, TokenizerError
from tests.support.paths import MINI

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")

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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copy(MINI / name, tmp_path / name)
    return tmp_path


def test_same_as_transformers(tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    other = transformers.AutoTokenizer.from_pretrained(MINI)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == other.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == other.decode(ids, skip_special_tokens=False)
        decoder = StreamDecoder(tokenizer)
        assert "".join(map(decoder.push, ids)) + decoder.flush() == tokenizer.decode(ids)
    assert tokenizer.bos_token_id == other.bos_token_id
    assert tokenizer.eos_token_id == other.eos_token_id
    assert tokenizer.pad_token_id == other.pad_token_id
    assert tokenizer.image_token_id == other.convert_tokens_to_ids("<image>")


def test_a_tokenizer_that_would_add_bos_is_told_not_to(copy: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers.processors import TemplateProcessing

    backend = Backend.from_file(str(copy / "tokenizer.json"))
    bos = "<｜begin▁of▁sentence｜>"
    backend.post_processor = TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
    )
    backend.save(str(copy / "tokenizer.json"))
    assert backend.encode("abc").ids[0] == backend.token_to_id(bos)
    assert Tokenizer.load(copy).encode("abc") == Tokenizer.load(MINI).encode("abc")


@pytest.mark.parametrize("missing", ["<image>", "<|ref|>", "<｜end▁of▁sentence｜>"])
def test_a_missing_special_token_is_named(copy: Path, missing: str) -> None:
    data = json.loads((copy / "tokenizer.json").read_text(encoding="utf-8"))
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] != missing]
    data["model"]["vocab"].pop(missing, None)
    refused(copy / "tokenizer.json", json.dumps(data).encode(), missing)


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("tokenizer.json", None, "missing"), ("tokenizer.json", b"{ not json", "not a tokenizer"),
        ("tokenizer.json", b"\xff\xfe\x00", "not a tokenizer"),
        ("tokenizer_config.json", b"{ not json", "not valid JSON"),
        ("tokenizer_config.json", b"[1]", "not a JSON object"),
    ],
)  # fmt: skip
def test_a_damaged_tokenizer_file_is_named(copy: Path, name: str, content: bytes | None, cause: str) -> None:
    refused(copy / name, content, cause)


def refused(file: Path, content: bytes | None, cause: str) -> None:
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(TokenizerError) as error:
        Tokenizer.load(file.parent)
    message = str(error.value)
    assert cause in message and str(file) in message and "\n" not in message


# --- streaming ------------------------------------------------------------------------------------


class ByteCodec:
    """One token a byte; counts the tokens it decodes."""

    decoded = 0

    def decode(self, ids: Iterable[int]) -> str:
        ids = list(ids)
        self.decoded += len(ids)
        return bytes(ids).decode(errors="replace")

    def streamed(self, ids: Iterable[int]) -> str:
        decoder = StreamDecoder(self)
        return "".join([*map(decoder.push, ids), decoder.flush()])


hostile = st.one_of(
    st.text().map(str.encode),
    st.binary(),
    st.lists(st.sampled_from([0x80, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xC0, 0xED, 0xA0, 0x41])).map(bytes),
    st.lists(st.sampled_from([0xE2, 0x82, 0xF0, 0x9F]), min_size=30).map(bytes),
)


@given(hostile)
@settings(max_examples=300)
def test_deltas_sum_to_the_whole(raw: bytes) -> None:
    assert ByteCodec().streamed(raw) == raw.decode(errors="replace")


@pytest.mark.parametrize("raw", [b"\xe2" * 8192, b"\x80" * 8192, b"\xf0\x9f" * 4096, b"a" * 8192])
def test_linear_on_hostile_bytes(raw: bytes) -> None:
    codec = ByteCodec()
    assert codec.streamed(raw) == raw.decode(errors="replace")
    assert codec.decoded < 40 * len(raw)
