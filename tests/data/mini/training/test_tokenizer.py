"""The embedded checkpoint's tokenizer: shipped files, special tokens, one token a character, round trip."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from data.mini.training.tokenizer import SPECIAL, build_tokenizer, write_tokenizer
from tests.support.paths import MINI, SHARED

PUBLISHED = SHARED / "data" / "vendor" / "tokenizer_config.json"
PIECES = [*SPECIAL, "text", "[[", "]]", ", ", "\n\n", "# ", "007", "ä", "x"]
MARKUP = "<|ref|>text<|/ref|><|det|>[[12, 345, 999, 7]]<|/det|>\nbody"


@pytest.fixture(scope="module")
def loaded():
    return AutoTokenizer.from_pretrained(str(MINI))


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def test_shipped_files_are_what_the_builder_writes(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert json.loads((tmp_path / name).read_text()) == json.loads((MINI / name).read_text()), name


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published facts are not beside the checkout")
def test_special_tokens_have_the_published_texts(loaded) -> None:
    published = json.loads(PUBLISHED.read_text())
    texts = {each["content"] for each in published["added_tokens_decoder"].values()}
    assert set(SPECIAL) <= texts
    for name in ("bos_token", "eos_token", "pad_token"):
        assert getattr(loaded, name) == published[name]
    assert len({loaded.convert_tokens_to_ids(token) for token in SPECIAL}) == len(SPECIAL)


def test_special_tokens_are_one_token_inside_text(loaded) -> None:
    for token in SPECIAL:
        middle = ids(loaded, f"a{token}b")
        assert [loaded.convert_ids_to_tokens(each) for each in middle] == ["a", token, "b"]


def test_markup_is_spelled_in_few_tokens(loaded) -> None:
    tokens = [loaded.decode([each]) for each in ids(loaded, MARKUP)]
    wanted = ["<|ref|>", "text", "<|/ref|>", "<|det|>", "[[", "12", ", ", "345", ", ", "999", ", ", "7", "]]"]
    assert tokens == [*wanted, "<|/det|>", "\n", *"body"]


def test_a_label_word_inside_text_is_spelled(loaded) -> None:
    assert len(ids(loaded, "text")) == 1
    assert len(ids(loaded, "a text")) == len("a text")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_any_text_round_trips(text: str) -> None:
    tokenizer = build_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([*SPECIAL, "text", "[[", "]]", ", ", "\n\n", "# ", "007", "ä", "x"]), max_size=30
    )
)
def test_any_markup_round_trips(pieces: list[str]) -> None:
    tokenizer = Tokenizer.from_file(str(MINI / "tokenizer.json"))
    text = "".join(pieces)
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
