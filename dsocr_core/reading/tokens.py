"""The words and values of a text: signs, currencies, units and months joined with the number beside them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from dsocr_core.reading.lexicon import CURRENCIES, MONTHS, follows_a_number, is_unit
from dsocr_core.reading.spelling import FORMULA, FORMULA_END, GROUPS, STRUCK, joined

_NEGATIVE = re.compile(r"\([ \t]*([^\w\s]?[ \t]*\d[\d.,' ]*[ \t]*[^\w\s()]?)[ \t]*\)")
_CJK_DIGITS = "〇零一二三四五六七八九十百千万億亿兆萬两壹贰叁肆伍陆柒捌玖拾佰仟"
_CJK_NUMBER = re.compile(rf"第?[{_CJK_DIGITS}]+")
_MARKS = "○●◯◉†‡↳\u2600-\u27bf\U0001f300-\U0001faff"
"""Boxes to tick, stars and other symbols: whether one is ticked is a value."""
_MARK = re.compile(f"[{_MARKS}]")
APART = re.compile(
    rf"第[{_CJK_DIGITS}]+|[{_CJK_DIGITS}]+|[{_MARKS}]|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u3001-\u301f]"
)
"""Characters that are tokens by themselves, and numbers in Chinese."""
_ROMAN = re.compile(r"(?=[MDCLXVI]{2})M{0,3}(?:C[MD]|D?C{0,3})(?:X[CL]|L?X{0,3})(?:I[XV]|V?I{0,3})[a-z]?")
_CURRENCY_SIGNS = "$€£¥₹₽₩₺₫₪฿¢₴₦元円"
_PREFIXES = "+-±<>≤≥≈~#№§=≠×÷√" + _CURRENCY_SIGNS
_CHUNK = re.compile(
    rf"{FORMULA}[^{FORMULA_END}]*{FORMULA_END}|[{re.escape(_CURRENCY_SIGNS)}]"
    rf"|[^\s()\[\]{{}}\"“”„«»|{FORMULA}{FORMULA_END}]+"
)
_TRAILING_WORD = re.compile(r"(?<=\d)[^\W\d_]+$")
_PUNCTUATION = ".,;:!?'*·،؛؟।"
_ADDRESS = re.compile(r"\w@\w|[^\W\d_][./][a-z]{2,}[/.?#]|\w\.[a-z]{2,6}$")


class Token(NamedTuple):
    """A word or a value, and where it stands."""

    text: str
    start: int
    end: int


def apart(text: str) -> str:
    """Give a tidy text with numbers in one piece, and blanks around what is a token by itself."""
    text = GROUPS.sub(lambda found: found[0].replace(" ", ""), _NEGATIVE.sub(r" ⁽\1⁾ ", text))
    return APART.sub(r" \g<0> ", text)


def tokens(text: str) -> list[Token]:
    """Words and values of a text of `apart`, in order. Punctuation between words is left out."""
    found: list[Token] = []
    for match in _CHUNK.finditer(text):
        chunk = _formula(match[0]) if match[0][0] == FORMULA else _stripped(match[0])
        known = is_unit(chunk) or _is_sign(chunk) or is_value(chunk)
        if chunk and (known or any(map(str.isalnum, chunk))):
            found.append(Token(chunk, *match.span()))
    return _joined_values(found)


def is_value(token: str) -> bool:
    """Tell whether a token is a value: a number, a currency, a box to tick, a formula, a sign of one."""
    if (
        FORMULA in token
        or "^" in token
        or any(map(str.isdigit, token))
        or _is_currency(token)
        or _ROMAN.fullmatch(token)
        or (("." in token or "@" in token) and _ADDRESS.search(token))
        or STRUCK in token
        or token == "&&"
    ):
        return True
    if len(token) == 1:
        return _MARK.match(token) is not None or unicodedata.category(token) == "Sm"
    return _CJK_NUMBER.match(token) is not None


def _is_currency(token: str) -> bool:
    """Tell whether a token is EUR, $ or US$."""
    return token in CURRENCIES or (token[-1:] in _CURRENCY_SIGNS and len(token) < 5 and bool(token))


def _is_sign(chunk: str) -> bool:
    return not chunk.strip(_PREFIXES)


def _formula(chunk: str) -> str:
    """A formula as a token: a letter or a value where it is no more."""
    text = joined(chunk).rstrip(".,;:")
    is_plain = len(text) == 1 or (text.isalnum() and any(map(str.isdigit, text)))
    return text if is_plain else FORMULA + text


def _stripped(chunk: str) -> str:
    """A chunk without punctuation around it; 5' and the code !done keep theirs."""
    bare = chunk.rstrip(".,;:!?")
    chunk = bare if bare.endswith("'") and bare.rstrip("'")[-1:].isdigit() else bare.rstrip(_PUNCTUATION)
    while chunk and chunk[0] in _PUNCTUATION and not re.match(r"[.,]\d|!\w", chunk):
        chunk = chunk[1:]
    return chunk


def _joined_values(chunks: Sequence[Token]) -> list[Token]:
    """Signs, currencies, units and months joined with the number that they stand beside."""
    found: list[Token] = []
    prefix: Token | None = None
    for chunk in chunks:
        text, last = chunk.text, found[-1].text if found else ""
        numeric = any(map(str.isdigit, text))
        if numeric and not prefix and last.lower() in MONTHS:
            found[-1] = _merged(found[-1], chunk)
        elif numeric:
            found.append(_merged(prefix, chunk))
            prefix = None
        elif not prefix and (any(map(str.isdigit, last)) or _CJK_NUMBER.fullmatch(last)) and _follows(text):
            found[-1] = _merged(found[-1], chunk)
        elif _is_sign(text) or _is_currency(text):
            prefix = _merged(prefix, chunk)
        else:
            found += [prefix, chunk] if prefix else [chunk]
            prefix = None
    if prefix:
        found.append(prefix)
    return [token for token in found if any(map(str.isalnum, token.text)) or is_value(token.text)]


def _merged(first: Token | None, second: Token) -> Token:
    return Token(first.text + second.text, first.start, second.end) if first else second


def _follows(chunk: str) -> bool:
    return follows_a_number(chunk) or _is_currency(chunk)


def shown(value: str) -> str:
    """Give a value for people: a blank before a unit that is a word, brackets as written."""
    value = unmarked(value).replace("⁽", "(").replace("⁾", ")")
    found = _TRAILING_WORD.search(value)
    apart = found and _follows(found[0]) and not APART.search(found[0])
    return f"{value[: found.start()]} {found[0]}" if found and apart else value


def unmarked(text: str) -> str:
    """Give a text of `marked` without its marks."""
    return text.replace(FORMULA, "").replace(FORMULA_END, "")
