"""Builds the checkpoint's tokenizer files.

Byte-level, so any text round-trips. A pre-token that is in the vocabulary is one token; everything else
falls apart into bytes: there are no merges. So text is one token per character (ASCII), digits go in groups
of up to three as in the published tokenizer, and the pieces of the markup are one token each. Reading one
character per token is what lets so small a model spell words it has never seen.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
IMAGE = "<image>"
MARKUP = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>")
SPECIAL = (BOS, EOS, PAD, IMAGE, *MARKUP, "<td>", "</td>", "<tr>", "</tr>", "<|User|>", "<|Assistant|>")
CONVERSATION_ROLES = SPECIAL[-2:]

# One token where the label stands alone between <|ref|> and <|/ref|>; inside other text it is spelled.
LABELS = ("title", "sub_title", "text", "image", "image_caption", "table", "table_caption", "equation")
PIECES = ("[[", "]]", ", ", "\n\n", "## ", "# ")
PRE_TOKENS = r"\A(?:" + "|".join(LABELS) + r")\z|[0-9]{1,3}|\[\[|\]\]|, |\n\n|## |# "


def vocabulary() -> dict[str, int]:
    """Every token's id: special tokens first, then bytes, digit groups, pieces of markup, labels."""
    digit_groups = [f"{value:0{width}}" for width in (2, 3) for value in range(10**width)]
    to_byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    pieces = [to_byte_level(piece)[0][0] for piece in (*PIECES, *LABELS)]
    ordered = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *digit_groups, *pieces]
    return {token: index for index, token in enumerate(ordered)}


def build_tokenizer() -> Tokenizer:
    """The tokenizer itself, as `tokenizer.json` holds it."""
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary(), merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


def write_tokenizer(directory: Path) -> None:
    """Writes `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`."""
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    added = {
        str(index): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for index, token in enumerate(SPECIAL)
    }
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": list(CONVERSATION_ROLES),
        **names,
        "clean_up_tokenization_spaces": False,
        "legacy": True,
        "model_max_length": 8192,
        "tokenizer_class": "LlamaTokenizerFast",
        "unk_token": None,
        "use_default_system_prompt": False,
    }
    special_map = {"additional_special_tokens": list(CONVERSATION_ROLES), **names}
    build_tokenizer().save(str(directory / "tokenizer.json"), pretty=False)
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special_map)):
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (directory / name).write_text(text, encoding="utf-8")
