"""Random text: dictionary words, numbers of many forms, and strings of letters that no prior can guess."""

import random
import re
import string
from functools import cache
from pathlib import Path

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
# No sans serif tells l, I and | apart at the start of a word, where no neighbour helps.
FIRST_LETTERS = string.ascii_lowercase.replace("i", "").replace("l", "")
CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
NUMBERS = 0.09  # share of words that are numbers
COMMON = 0.25  # share of dictionary words that are of these, as in any running text
COMMON_WORDS = (
    "the the the of of and and to to in in a is that it was for as with on be at by this had not are but "
    "from or have an they which one you were all her she there would their we him been has when who will if"
)
# What the tokenizer writes as one token although it is several characters.
ONE_TOKEN = re.compile(r"[0-9]{1,3}|, |## |# ")


@cache
def dictionary() -> tuple[str, ...]:
    return tuple(Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split())


@cache
def common_words() -> tuple[str, ...]:
    return tuple(COMMON_WORDS.split())


def token_count(text: str) -> int:
    """Tokens of ASCII text: one a character, digits in groups of up to three."""
    return len(ONE_TOKEN.sub("0", text))


def number(rng: random.Random) -> str:
    """A number as papers print them: counts, prices, shares, decimals, dates, times, ranges, codes."""
    value = rng.randint(0, 10 ** rng.randint(1, 4))
    form = rng.random()
    if form < 0.40:
        return str(value)
    if form < 0.52:
        return f"{value / 100:.2f}"
    if form < 0.60:
        return f"${value}" if rng.random() < 0.5 else f"${value / 100:.2f}"
    if form < 0.68:
        return f"{value % 101}%" if rng.random() < 0.6 else f"{value % 1000 / 10:.1f}%"
    other = rng.randint(1, 99)
    if form < 0.74:
        return f"{value % 24}:{other % 60:02}"
    if form < 0.80:
        return f"{value}-{value + other}"
    if form < 0.85:
        return f"{value * other:,}"
    if form < 0.93:
        day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1950, 2035)
        return rng.choice(
            (
                f"{year}-{month:02}-{day:02}",
                f"{day}/{month}/{year}",
                f"{day} {MONTHS[month - 1]} {year}",
                f"{MONTHS[month - 1]} {day}, {year}",
                str(year),
            )
        )
    if form < 0.96:
        return f"{rng.choice(CODE_LETTERS)}{rng.choice(CODE_LETTERS)}-{value}"
    return rng.choice(
        (f"{value}/{other}", f"{other}th", f"+{value}", f"-{value}", f"{other} km", f"{other} kg")
    )


def plain_word(rng: random.Random, guessable: float) -> str:
    """Lower-case letters; with probability 1 - `guessable` drawn at random."""
    if rng.random() < guessable:
        return rng.choice(dictionary())
    return rng.choice(FIRST_LETTERS) + "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 7)))


def word(rng: random.Random, guessable: float) -> str:
    """One word of running text, now and then a number, in capitals or with marks about it."""
    if rng.random() < NUMBERS:
        return number(rng)
    if rng.random() < COMMON * guessable:
        return rng.choice(common_words())
    chosen = plain_word(rng, guessable)
    form = rng.random()
    if form < 0.78:
        return chosen
    if form < 0.88:
        return chosen.capitalize()
    if form < 0.92:
        return chosen.upper()
    if form < 0.94:
        return f"({chosen})"
    if form < 0.955:
        return f'"{chosen}"'
    if form < 0.965:
        return f"{chosen}'s"
    if form < 0.985:
        return f"{chosen}-{plain_word(rng, guessable)[:6]}"
    if form < 0.99:
        return f"{chosen}@{plain_word(rng, guessable)}.com"
    return rng.choice("&+=#*@_<>[]~^{}\\") + chosen


def sentences(rng: random.Random, characters: int, guessable: float) -> str:
    """Text of at least `characters` characters with sentence case and punctuation."""
    words: list[str] = []
    length = 0
    start = True
    while length < characters:
        chosen = word(rng, guessable)
        if start:
            chosen = chosen[:1].upper() + chosen[1:]
        mark = rng.random()
        start = mark < 0.10
        if start:
            chosen += rng.choice("....!?")
        elif mark < 0.22:
            chosen += rng.choice(",,,,;:")
        words.append(chosen)
        length += len(chosen) + 1
    return " ".join(words)


def heading(rng: random.Random, characters: int, guessable: float) -> str:
    """A few words without an end: in sentence case, title case or capitals, sometimes numbered."""
    text = sentences(rng, characters, guessable).rstrip(".,;:")
    form = rng.random()
    if form < 0.15:
        text = text.upper()
    elif form < 0.40:
        text = string.capwords(text)
    if rng.random() < 0.15:
        text = rng.choice((f"{rng.randint(1, 9)}", f"{rng.randint(1, 9)}.{rng.randint(1, 9)}")) + " " + text
    return text


def caption(rng: random.Random, kind: str, characters: int, guessable: float, plain: bool) -> str:
    """A line for a picture or table (`kind` is "image" or "table"), its number before it; few go without.

    Only a `plain` one may: where its type tells that it is a caption.
    """
    if plain and rng.random() < 0.2:
        return sentences(rng, characters, guessable)
    names = ("Table", "Table", "Tab.") if kind == "table" else ("Figure", "Figure", "Fig.", "Photo", "Chart")
    place = rng.choice((str(rng.randint(1, 30)), f"{rng.randint(1, 9)}.{rng.randint(1, 9)}"))
    return f"{rng.choice(names)} {place}{rng.choice(':::.')} {sentences(rng, characters, guessable)}"
