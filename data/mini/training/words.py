"""Random text: dictionary words, numbers, and strings of letters that no prior can guess."""

import random
import string
from functools import cache
from pathlib import Path


@cache
def dictionary() -> tuple[str, ...]:
    return tuple(Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split())


def number(rng: random.Random) -> str:
    value = rng.randint(0, 10 ** rng.randint(1, 4))
    form = rng.random()
    if form < 0.55:
        return str(value)
    if form < 0.7:
        return f"{value / 100:.2f}"
    if form < 0.8:
        return f"${value}"
    if form < 0.9:
        return f"{value % 101}%"
    other = rng.randint(1, 99)
    return rng.choice((f"{value % 24}:{other % 60:02}", f"{value}-{other}", f"{value}/{other}"))


def word(rng: random.Random, guessable: float) -> str:
    """One word; with probability 1 - `guessable` its letters are drawn at random."""
    if rng.random() < 0.08:
        return number(rng)
    if rng.random() < guessable:
        chosen = rng.choice(dictionary())
    else:
        chosen = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 8)))
    form = rng.random()
    if form < 0.10:
        return chosen.capitalize()
    if form < 0.14:
        return chosen.upper()
    if form < 0.16:
        return f"({chosen})"
    if form < 0.17:
        return f'"{chosen}"'
    if form < 0.18:
        return f"{chosen}'s"
    if form < 0.20:
        return f"{chosen}-{rng.choice(dictionary())[:5]}"
    if form < 0.21:
        return rng.choice("&+=#*@_<>[]") + chosen
    return chosen


def sentences(rng: random.Random, characters: int, guessable: float) -> str:
    """Text of about `characters` characters with sentence case and punctuation."""
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
