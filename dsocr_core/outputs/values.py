"""Values and words of two readings of a text, compared one to one.

A value is a run of characters with a digit in it, with its sign, separators, currency and unit, at its place:
a block, a row and column of a table. Spelling of markup (HTML or Markdown, entities, emphasis, bullets, LaTeX
delimiters), blanks and line breaks are no difference. Thousands separators of another locale are one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from dsocr_core.outputs.tables import Table, split_tables

MOST_CHARACTERS = 100_000
"""Of each text; what lies beyond is not compared here."""

_NEAR = 4
"""Tokens of a stretch with one value on each side that are named together: a unit read as a word."""

_TAG = re.compile(r"</?[a-zA-Z][^<>]*(?:>|$)")
_ESCAPE = re.compile(r"\\([%$&_#|*~`])")
_MATH = re.compile(r"\\[()\[\]]|\$\$|(?<![\w$])\$(?=[^$\n]*[\\^_={][^$\n]*\$)|(?<=[\w})\]])\$(?![\d.])")
_MATH_SIGN = re.compile(r"\\(pm|times|cdot|div|le|leq|ge|geq|approx|sim|circ|degree|neq|ne)\b")
_SIGN_OF = {
    "pm": "±", "times": "×", "cdot": "·", "div": "÷", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "approx": "≈", "sim": "~", "circ": "°", "degree": "°", "neq": "≠", "ne": "≠",
}  # fmt: skip
_BRACE = re.compile(r"([_^])\{(\w)\}")
_BULLET = re.compile(
    r"(?m)^[ \t]*(?:#{1,6}|[-*+•‣◦▪–]|>)[ \t]+|^[ \t]*(?:[-*_=][ \t]*){3,}$|^[ \t]*```\w*[ \t]*$"
)
_LIST_NUMBER = re.compile(r"(?m)^([ \t]*)\(?(\d{1,3}|[a-zA-Z])[.)](?=[ \t])")
_EMPHASIS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|[`]+")
_DASHES = str.maketrans(dict.fromkeys("−–‒—―﹣－", "-") | dict.fromkeys("\u00a0\u2007\u2009\u202f", " "))
_NEGATIVE = re.compile(r"\([ \t]*([^\w\s]?[ \t]*\d[\d.,' ]*[ \t]*[^\w\s()]?)[ \t]*\)")
_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:[ ']\d{3})+(?![\d])")
_CURRENCY_SIGNS = "$€£¥₹₽₩₺₫₪฿¢₴₦元円￥"
_PREFIXES = "+-±<>≤≥≈~#№§=≠×÷" + _CURRENCY_SIGNS
_CHUNK = re.compile(rf"[{re.escape(_CURRENCY_SIGNS)}]|[^\s()\[\]{{}}\"“”„«»|]+")
_TRAILING_WORD = re.compile(r"(?<=\d)[^\W\d_]+$")
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff01-\uff0f\uff1a-\uff20\u3001-\u301f])")
_OPENING, _CLOSING = ".,;:!?'’‘*…·", ".,;:!?'’‘*…·"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CURRENCIES = _words("""
    EUR USD GBP CHF JPY CNY RMB INR RUB KRW TRY CAD AUD NZD SEK NOK DKK PLN CZK HUF RON BRL MXN ZAR SGD HKD
    THB IDR ILS AED SAR UAH euro euros dollar dollars yen pounds Euro Dollar
""")
_UNITS = _words("""
    % ‰ ° °C °F K kg g mg µg μg t lb lbs oz km m cm mm µm μm nm mi ft in yd l L ml mL cl dl hl m² m³ cm² cm³
    km² m2 m3 ha s ms µs ns min h hr hrs d Hz kHz MHz GHz V mV kV A mA W kW MW kWh MWh J kJ kcal cal Pa hPa
    kPa MPa bar psi B kB KB MB GB TB KiB MiB GiB bit bits px pt dpi pp bp bps ppm ppb mol mmol dB Ω rpm mph
    km/h m/s Nm N kN am pm AM PM a.m p.m Uhr Std Stk St pcs pc k M bn mn million billion trillion thousand
    hundred Mio Mrd Tsd years months weeks days hours minutes seconds year month week day hour minute second
    年 月 日 号 時 时 分 秒 点 個 个 件 枚 人 本 万 億 亿 千 百 % ％ ℃ 年度 层 页 回 歳 岁 원 년 월 일 시 명
    개
""")
_MONTHS = _words("""
    january february march april may june july august september october november december jan feb mar apr
    jun jul aug sep sept oct nov dec januar februar märz mai juni juli oktober dezember janvier février mars
    avril juin juillet août septembre octobre novembre décembre enero febrero marzo abril mayo junio julio
    agosto septiembre octubre noviembre diciembre gennaio febbraio aprile maggio giugno luglio settembre
    ottobre dicembre januari februari maart mei augustus fevereiro março maio junho julho setembro outubro
    dezembro января февраля марта апреля мая июня июля августа сентября октября ноября декабря
""")
_NEGATIONS = _words("""
    no not never none nor neither without cannot can't don't doesn't isn't aren't won't wasn't mustn't
    shouldn't nicht kein keine keinen keiner keinem ohne nie niemals ne pas sans jamais aucun aucune sin
    nunca ningún non senza mai niet geen não nem sem не нет без 不 没 無 无 非 未 ない ません
""")
_NUMBER_WORDS = _words("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
    million billion first second third fourth fifth sixth seventh eighth ninth tenth half quarter dozen
    double once twice null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig
    hundert tausend un deux trois quatre cinq sept huit neuf dix onze douze vingt cent mille uno dos tres
    cuatro cinco seis siete ocho nueve diez cien mil due tre quattro cinque sei sette otto nove dieci 一 二 三
    四 五 六 七 八 九 十
""")
_OPPOSITES = (
    "dis",
    "un",
    "in",
    "im",
    "ir",
    "il",
    "non",
    "non-",
    "mis",
    "de",
    "anti",
    "anti-",
    "nicht",
    "in-",
)


@dataclass(frozen=True)
class Change:
    """A value or some words that are not the same. An absent side is empty."""

    a: str
    b: str
    place: str = ""
    """Row and column, or empty in prose."""

    @property
    def words(self) -> str:
        """The change for people: `row 3, Price: 1.20 -> 0.80`."""
        a, b = _around_difference(self.a, self.b)
        return f"{self.place}: {a} -> {b}" if self.place else f"{a} -> {b}"

    @property
    def weight(self) -> int:
        """How early it is named: negations and opposites, then numbers in words, then the rest."""
        sides = [set(side.lower().split()) for side in (self.a, self.b)]
        different = sides[0] ^ sides[1]
        if different & _NEGATIONS or _opposite(self.a.lower(), self.b.lower()):
            return 0
        return 1 if different & _NUMBER_WORDS else 2


@dataclass(frozen=True)
class TextChanges:
    """What differs between two texts."""

    values: tuple[Change, ...] = ()
    structures: tuple[str, ...] = ()
    """Tables that have other rows or cells, in words."""
    words: tuple[Change, ...] = ()

    def __add__(self, other: TextChanges) -> TextChanges:
        return TextChanges(
            self.values + other.values, self.structures + other.structures, self.words + other.words
        )


def text_changes(a: str, b: str) -> TextChanges:
    """The values, tables and words in which two texts differ; nothing where only their spelling does."""
    parts_a, parts_b = (split_tables(text[:MOST_CHARACTERS]) for text in (a, b))
    if _canonical(parts_a) == _canonical(parts_b):
        return TextChanges()
    kinds = [[isinstance(part, Table) for part in parts] for parts in (parts_a, parts_b)]
    if kinds[0] == kinds[1]:
        pairs: list[tuple[str | Table, str | Table]] = list(zip(parts_a, parts_b, strict=True))
        return sum((_part_changes(x, y) for x, y in pairs), TextChanges())
    tables = [[part for part in parts if isinstance(part, Table)] for parts in (parts_a, parts_b)]
    prose = ["\n".join(part for part in parts if isinstance(part, str)) for parts in (parts_a, parts_b)]
    if len(tables[0]) == len(tables[1]):
        pairs = [(prose[0], prose[1]), *zip(tables[0], tables[1], strict=True)]
        return sum((_part_changes(x, y) for x, y in pairs), TextChanges())
    structure = f"{_counted(len(tables[0]), 'table')} and {len(tables[1])}"
    flat = ["\n".join(map(_flat, parts)) for parts in (parts_a, parts_b)]
    return _prose_changes(flat[0], flat[1]) + TextChanges(structures=(structure,))


def _part_changes(a: str | Table, b: str | Table) -> TextChanges:
    if isinstance(a, Table) and isinstance(b, Table):
        return _table_changes(a, b)
    return _prose_changes(str(a), str(b))


def _table_changes(a: Table, b: Table) -> TextChanges:
    if a.shape != b.shape:
        return _prose_changes(_flat(a), _flat(b)) + TextChanges(structures=(_structure_words(a, b),))
    header = [tidy(cell[0]) for cell in a.rows[0]] if a.rows else []
    named = bool(header) and not any(re.search(r"\d", text) for text in header)
    found = TextChanges()
    for number, (row_a, row_b) in enumerate(zip(a.rows, b.rows, strict=True), start=0 if named else 1):
        for column, ((text_a, *_), (text_b, *_)) in enumerate(zip(row_a, row_b, strict=True)):
            if text_a != text_b:
                place = _place(number, header[column] if named and column < len(header) else "", column)
                found += _prose_changes(text_a, text_b, place)
    return found


def _place(row: int, header: str, column: int) -> str:
    return f"{f'row {row}' if row else 'header'}, {_cut(header) or f'column {column + 1}'}"


def _structure_words(a: Table, b: Table) -> str:
    if len(a.rows) != len(b.rows):
        return f"a table has {_counted(len(a.rows), 'row')} and {len(b.rows)}"
    counts = [[sum(span[0] for span in row) for row in table.shape] for table in (a, b)]
    rows = [number for number, (x, y) in enumerate(zip(*counts, strict=True), start=1) if x != y]
    if rows:
        x, y = (side[rows[0] - 1] for side in counts)
        return f"row {rows[0]} of a table has {_counted(x, 'cell')} and {y}"
    return "cells of a table span other rows or columns"


def _prose_changes(a: str, b: str, place: str = "") -> TextChanges:
    """Words are aligned by the fewest edits; values in what differs are paired in order."""
    tidy_a, tidy_b = tidy(a), tidy(b)
    if _joined(tidy_a) == _joined(tidy_b):
        return TextChanges()
    tokens_a, tokens_b = tokens(tidy_a), tokens(tidy_b)
    values: list[Change] = []
    words: list[Change] = []
    for left, right in _regions(tokens_a, tokens_b):
        values_a, values_b = ([token for token in side if is_value(token)] for side in (left, right))
        if values_a != values_b and len(values_a) == len(values_b) == 1 and len(left) + len(right) <= _NEAR:
            values.append(Change(" ".join(map(_shown, left)), " ".join(map(_shown, right)), place))
            continue
        if values_a != values_b:
            values += _paired(values_a, values_b, place)
        words_a, words_b = ([token for token in side if not is_value(token)] for side in (left, right))
        if words_a != words_b:
            words.append(Change(" ".join(words_a), " ".join(words_b), place))
    return TextChanges(tuple(values), (), tuple(words))


def _regions(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Stretches of tokens that differ, as both sides have them."""
    left = right = 0
    open_at: tuple[int, int] | None = None
    for block in Levenshtein.opcodes(a, b):
        if block.tag == "equal":
            if open_at is not None:
                yield a[open_at[0] : left], b[open_at[1] : right]
            open_at = None
        elif open_at is None:
            open_at = (left, right)
        left, right = block.src_end, block.dest_end
    if open_at is not None:
        yield a[open_at[0] : left], b[open_at[1] : right]


def _paired(a: Sequence[str], b: Sequence[str], place: str) -> list[Change]:
    return [
        Change(_shown(x), _shown(y), place)
        for left, right in _regions(a, b)
        for x, y in zip_longest(left, right, fillvalue="")
    ]


def _shown(value: str) -> str:
    """A value for people: a blank before a unit that is a word, brackets as written."""
    value = value.replace("⁽", "(").replace("⁾", ")")
    found = _TRAILING_WORD.search(value)
    apart = found and _follows(found[0]) and not _CJK.search(found[0])
    return f"{value[: found.start()]} {found[0]}" if found and apart else value


# --- tokens ---------------------------------------------------------------------------------------


def tidy(text: str) -> str:
    """A text without the spelling of its markup: tags, entities, emphasis, bullets, LaTeX delimiters."""
    text = html.unescape(_TAG.sub(" ", text)).translate(_DASHES)
    text = _MATH.sub(" ", _MATH_SIGN.sub(lambda found: _SIGN_OF[found[1]], text))
    text = _ESCAPE.sub(r"\1", _BRACE.sub(r"\1\2", text))
    text = _LIST_NUMBER.sub(r"\1\2 ", _BULLET.sub("", text))
    return _EMPHASIS.sub("", text).strip()


def tokens(text: str) -> list[str]:
    """Words and values of a tidy text, in order. Punctuation between words is left out."""
    text = _GROUPS.sub(lambda found: found[0].replace(" ", ""), _NEGATIVE.sub(r" ⁽\1⁾ ", text))
    found: list[str] = []
    for chunk in _CHUNK.findall(_CJK.sub(r" \1 ", text)):
        chunk = _stripped(chunk)
        if chunk and (
            any(map(str.isalnum, chunk)) or chunk in _CURRENCY_SIGNS or chunk in _UNITS or _is_sign(chunk)
        ):
            found.append(chunk)
    return _joined_values(found)


def is_value(token: str) -> bool:
    """Whether a token is a value: it has a digit, or is a currency."""
    return (
        (any(map(str.isnumeric, token)) and not _is_cjk_number(token))
        or token in _CURRENCIES
        or token in _CURRENCY_SIGNS
    )


def _is_cjk_number(token: str) -> bool:
    return len(token) == 1 and _CJK.fullmatch(token) is not None


def _is_sign(chunk: str) -> bool:
    return all(character in _PREFIXES for character in chunk)


def _stripped(chunk: str) -> str:
    chunk = chunk.rstrip(_CLOSING)
    while chunk and chunk[0] in _OPENING and not (chunk[0] in ".," and chunk[1:2].isdigit()):
        chunk = chunk[1:]
    return chunk


def _joined_values(chunks: Sequence[str]) -> list[str]:
    """Signs, currencies, units and months joined with the number that they stand beside."""
    found: list[str] = []
    prefix = ""
    for chunk in chunks:
        numeric = any(map(str.isdigit, chunk))
        if numeric and found and found[-1].lower() in _MONTHS and not prefix:
            found[-1] += chunk
        elif numeric:
            found.append(prefix + chunk)
            prefix = ""
        elif found and not prefix and any(map(str.isdigit, found[-1])) and _follows(chunk):
            found[-1] += chunk
        elif _is_sign(chunk) or chunk in _CURRENCIES:
            prefix += chunk
        else:
            if prefix:
                found.append(prefix)
            prefix = ""
            found.append(chunk)
    if prefix:
        found.append(prefix)
    return [token for token in found if any(map(str.isalnum, token)) or token in _CURRENCY_SIGNS]


def _follows(chunk: str) -> bool:
    return chunk in _UNITS or chunk in _CURRENCIES or chunk in _CURRENCY_SIGNS or chunk.lower() in _MONTHS


# --- small things ---------------------------------------------------------------------------------


def _canonical(parts: Sequence[str | Table]) -> str:
    """A text by what it says: without blanks, tables by their cells."""
    return "\x1d".join(
        "\x1e".join(
            "\x1f".join(f"{_joined(tidy(text))}\x1c{spans}" for text, *spans in row) for row in part.rows
        )
        if isinstance(part, Table)
        else _joined(tidy(part))
        for part in parts
    )


def _flat(part: str | Table) -> str:
    if isinstance(part, str):
        return part
    return "\n".join("  \n".join(cell[0] for cell in row) for row in part.rows)


def _joined(text: str) -> str:
    return "".join(text.split())


def _opposite(a: str, b: str) -> bool:
    short, long = sorted((a, b), key=len)
    return bool(short) and any(long == prefix + short for prefix in _OPPOSITES)


def _around_difference(a: str, b: str) -> tuple[str, str]:
    """Both sides, cut where they are long so that the first difference is in sight."""
    alike = next((i for i, (x, y) in enumerate(zip_longest(a, b)) if x != y), 0)
    start = alike - 20 if max(len(a), len(b)) > 60 and alike > 30 else 0
    left, right = (f"…{side[start:]}" if start and side else side for side in (a, b))
    return _cut(left) or "(nothing)", _cut(right) or "(nothing)"


def _cut(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"
