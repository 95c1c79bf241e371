"""Our tokenizer against transformers' on the embedded checkpoint, and broken files."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from dsocr_core.inputs.prompt import PromptError, build_prompt, prompt_layout
from dsocr_core.inputs.tokenizer import StreamDecoder, Tokenizer, TokenizerError
from dsocr_core.records import PROMPTS
from dsocr_core.settings import EMBEDDED_CHECKPOINT

OURS = Tokenizer.load(EMBEDDED_CHECKPOINT)
THEIRS = AutoTokenizer.from_pretrained(EMBEDDED_CHECKPOINT)
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")

texts = st.lists(
    st.sampled_from(
        ["<|ref|>", "<|/ref|>", "<|det|>", "[[1, 22, 333, 999]]", "text", "\n", "é", "漢", "🙂", "<td>"]
    )
    | st.text(max_size=8)
).map("".join)


@given(texts)
def test_encodes_and_decodes_as_transformers_does(text: str) -> None:
    ids = OURS.encode(text)
    assert ids == THEIRS.encode(text, add_special_tokens=False)
    assert OURS.decode(ids) == THEIRS.decode(ids, skip_special_tokens=False)


@given(texts)
def test_a_stream_adds_up_to_the_text(text: str) -> None:
    ids = OURS.encode(text)
    stream = StreamDecoder(OURS)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) == OURS.decode(ids)


def test_special_ids_are_found_by_text() -> None:
    assert OURS.bos_token_id == THEIRS.bos_token_id
    assert OURS.eos_token_id == THEIRS.eos_token_id
    assert OURS.image_token_id == THEIRS.convert_tokens_to_ids("<image>")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copy(EMBEDDED_CHECKPOINT / name, tmp_path)
    return tmp_path


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: not here"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": {}}'])
def test_a_broken_tokenizer(copy: Path, content: str) -> None:
    (copy / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: not a tokenizer") as error:
        Tokenizer.load(copy)
    assert "\n" not in str(error.value)


def test_a_tokenizer_without_the_image_token(copy: Path) -> None:
    data = json.loads((copy / "tokenizer.json").read_text())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] != "<image>"]
    data["model"]["vocab"].pop("<image>", None)
    (copy / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(TokenizerError, match="no image token '<image>'"):
        Tokenizer.load(copy)


def test_no_file_names_the_end_token(copy: Path) -> None:
    (copy / "tokenizer_config.json").write_text("{}")
    (copy / "special_tokens_map.json").unlink()
    with pytest.raises(TokenizerError, match="names no bos_token"):
        Tokenizer.load(copy)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
def test_prompt_layout(prompt: str) -> None:
    before, after = prompt.split("<image>")
    layout = prompt_layout(OURS.encode, build_prompt(prompt), OURS.image_token_id, OURS.bos_token_id, 5)
    expected = [OURS.bos_token_id, *OURS.encode(before), *[OURS.image_token_id] * 5, *OURS.encode(after)]
    assert list(layout.ids) == expected
    start, length = layout.mask[0]
    assert len(layout.mask) == 1
    assert {layout.ids[i] for i in range(start, start + length)} == {OURS.image_token_id}


def test_the_prompt_is_stripped_and_needs_one_image() -> None:
    assert build_prompt("  <image>\nFree OCR. \n") == "<image>\nFree OCR."
    for bad in ("Free OCR.", "<image><image>"):
        with pytest.raises(PromptError, match="exactly one"):
            prompt_layout(OURS.encode, bad, 3, 0, 5)
