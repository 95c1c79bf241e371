"""A changed value is never within tolerance; another spelling of blanks, lines and markup is no change."""

from __future__ import annotations

import time

import pytest

from dsocr_core.reading.parity import parity
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.values import MOST_CHARACTERS, text_changes
from tests.support.results import make_result

PROSE = " ".join(
    f"This sentence says a little more about the contract and its parties {word}." for word in "abcdefgh"
)


def table(*rows: str) -> str:
    cells = ("".join(f"<td>{cell}</td>" for cell in row.split("|")) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


PRICES = table("Item|Price", "Pen|1.20", "Ink|0.80", "Pad|3.40")

CHANGED: list[tuple[str, str, str]] = [
    # amounts: digits, sign, separators, currency, unit
    ("Total 1,234.00", "Total 7,234.00", "1,234.00 -> 7,234.00"),
    ("Total 1,234.00", "Total -1,234.00", "1,234.00 -> -1,234.00"),
    ("Total 1,234.00", "Total 1.234,00", "1,234.00 -> 1.234,00"),
    ("Total 1,234.00", "Total 12,340.0", "1,234.00 -> 12,340.0"),
    ("Total (1,234.00)", "Total 1,234.00", "(1,234.00) -> 1,234.00"),
    ("Total 1 234", "Total 1,234", "1234 -> 1,234"),
    ("Balance +50", "Balance -50", "+50 -> -50"),
    ("Balance: −50", "Balance: 50", "-50 -> 50"),
    ("Sum: 100 EUR", "Sum: 100 USD", "100 EUR -> 100 USD"),
    ("Sum: € 100", "Sum: £ 100", "€100 -> £100"),
    ("Sum: $100", "Sum: 100", "$100 -> 100"),
    ("Weight 340 g", "Weight 340 kg", "340 g -> 340 kg"),
    ("Weight 340 g net", "Weight 340 a net", "340 g -> 340 a"),
    ("Rate 5 %", "Rate 5 ‰", "5% -> 5‰"),
    ("Rate 5.5%", "Rate 5.5", "5.5% -> 5.5"),
    ("at 20 °C", "at 20 °F", "20°C -> 20°F"),
    ("p < 0.05", "p > 0.05", "<0.05 -> >0.05"),
    ("5 ± 2", "5 + 2", "±2 -> +2"),
    ("1.5e-3", "1.5e-8", "1.5e-3 -> 1.5e-8"),
    ("Price (EUR)", "Price (USD)", "EUR -> USD"),
    ("共计1,234元整", "共计1,284元整", "1,234元 -> 1,284元"),
    ("合計 12,500円", "合計 12,600円", "12,500円 -> 12,600円"),
    ("المجموع ١٢٣", "المجموع ١٢٤", "١٢٣ -> ١٢٤"),
    # dates, times, numbers of things
    ("Date: 2024-03-01", "Date: 2024-03-07", "2024-03-01 -> 2024-03-07"),
    ("on 12 March 2024", "on 12 May 2024", "12 March -> 12 May"),
    ("on March 12, 2024", "on March 21, 2024", "March12 -> March21"),
    ("am 3. Mai 2024", "am 8. Mai 2024", "3 Mai -> 8 Mai"),
    ("2024年3月5日", "2024年3月6日", "5日 -> 6日"),
    ("at 10:30 am", "at 10:30 pm", "10:30 am -> 10:30 pm"),
    ("Invoice INV-2024/0815", "Invoice INV-2024/0851", "INV-2024/0815 -> INV-2024/0851"),
    ("IBAN DE89 3704 0044", "IBAN DE89 3704 0041", "0044 -> 0041"),
    ("Tel. +49 30 1234", "Tel. +49 30 1284", "1234 -> 1284"),
    ("Section 3.2.1", "Section 3.2.7", "3.2.1 -> 3.2.7"),
    ("see page 7", "see page", "7 -> (nothing)"),
    ("see page", "see page 7", "(nothing) -> 7"),
    ("from 3 to 5", "from 5 to 3", "3 -> 5"),
    # formulas
    (r"\(x^{2}\)", r"\(x^{3}\)", "x^2 -> x^3"),
    (r"\[\frac{1}{23}\]", r"\[\frac{12}{3}\]", "1/23 -> 12/3"),
    (r"$10^{-3}$", r"$10^{-8}$", "10^-3 -> 10^-8"),
    # tables: a cell, an exchange, another column
    (PRICES, PRICES.replace("1.20", "7.20"), "row 1, Price: 1.20 -> 7.20"),
    (PRICES, PRICES.replace("0.80", "1.2").replace("1.20", "0.80"), "row 1, Price: 1.20 -> 0.80"),
    (table("a|100", "b|900"), table("a|900", "b|100"), "row 1, column 2: 100 -> 900"),
    (table("Year|Sum", "2023|5", "2024|6"), table("Year|Sum", "2023|6", "2024|5"), "row 1, Sum: 5 -> 6"),
    (
        "| Item | Price |\n|---|---|\n| Pen | 5 |",
        "| Item | Price |\n|---|---|\n| Pen | 6 |",
        "row 1, Price: 5 -> 6",
    ),
    (table("a|1", "b|"), table("a|", "b|1"), "row 1, column 2: 1 -> (nothing)"),
]

STRUCTURE: list[tuple[str, str, str]] = [
    (table("a|b", "c|d"), table("a|b|c", "d"), "row 1 of a table has 2 cells and 3"),
    (table("a|b", "c|d"), table("a|b", "c|d", "e|f"), "a table has 2 rows and 3"),
    (table("a|b", "c|d"), table("a|b").replace("<td>a", '<td colspan="2">a'), "a table has 2 rows and 1"),
    (
        table("a|b"),
        table("a|b").replace("<td>a", '<td rowspan="2">a'),
        "cells of a table span other rows or columns",
    ),
    (table("a|b"), "a b", "1 table and 0"),
    (table("a|b") + "x" + table("c|d"), table("a|b") + "x c d", "2 tables and 1"),
]


@pytest.mark.parametrize(("a", "b", "words"), CHANGED)
def test_a_changed_value_is_named_and_beyond_tolerance(a: str, b: str, words: str) -> None:
    assert words in [change.words for change in text_changes(a, b).values]
    report = parity(make_result(f"{PROSE} {PROSE}\n\n{a}"), make_result(f"{PROSE} {PROSE}\n\n{b}"))
    assert report.character_error_rate < 0.02, "it is not the rate that decides"
    assert report.verdict == "differs"
    assert any("differ" in reason and words in reason for reason in report.reasons)


@pytest.mark.parametrize(("a", "b", "words"), STRUCTURE)
def test_another_structure_of_a_table_is_beyond_tolerance(a: str, b: str, words: str) -> None:
    assert text_changes(a, b).structures == (words,)
    assert parity(make_result(PROSE + a), make_result(PROSE + b)).verdict == "differs"


def test_every_value_of_a_long_table_is_counted() -> None:
    rows = [f"item number {i} of the long list|{100 + i}.00" for i in range(40)]
    a, b = table("Name|Sum", *rows), table("Name|Sum", *(row.replace(".00", ".50") for row in rows))
    report = parity(make_result(a), make_result(b))
    assert report.verdict == "differs"
    assert report.reasons[0].startswith("40 values differ: row 1, Sum: 100.00 -> 100.50; row 2")
    assert report.reasons[0].endswith("; and 35 more")
    assert parity(make_result(a), make_result(b), Tolerance(values=40)).verdict == "within_tolerance"


@pytest.mark.parametrize(
    ("a", "b", "first"),
    [
        ("I agree and the kat sat", "I disagree and the cat sat", "agree -> disagree"),
        ("the kat may enter", "the cat may not enter", "(nothing) -> not"),
        ("the kat has seven lives", "the cat has eleven lives", "seven -> eleven"),
        ("die Kaze darf nie hinein", "die Katze darf gern hinein", "nie -> gern"),
    ],
)
def test_negations_and_numbers_in_words_are_beyond_tolerance(a: str, b: str, first: str) -> None:
    report = parity(make_result(a), make_result(b), Tolerance(character_error_rate=1))
    assert report.verdict == "differs"
    assert f"deciding words changed: {first}" in report.reasons
    looser = parity(make_result(a), make_result(b), Tolerance(character_error_rate=1, values=1))
    assert looser.verdict == "within_tolerance"


def block(label: str, x: int, y: int, text: str) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>[[{x}, {y}, {x + 200}, {y + 50}]]<|/det|>\n{text}\n"


LEFT, RIGHT = block("text", 100, 100, "alpha"), block("text", 500, 100, "omega")


@pytest.mark.parametrize(
    ("a", "b", "verdict", "words"),
    [
        (LEFT + RIGHT, RIGHT + LEFT, "within_tolerance", "2 boxes come in another order"),
        (
            LEFT + RIGHT,
            LEFT.replace("alpha", "omega") + RIGHT.replace("omega", "alpha"),
            "differs",
            "the texts of 2 boxes are exchanged",
        ),
        (
            block("image", 100, 100, "") + block("image", 500, 100, ""),
            block("image", 500, 100, "") + block("image", 100, 100, ""),
            "within_tolerance",
            "2 boxes come in another order",
        ),
        (
            LEFT + RIGHT,
            LEFT + RIGHT + block("text", 500, 800, "PAID"),
            "differs",
            'a box with text on one side alone: "PAID"',
        ),
        (LEFT + RIGHT, LEFT + RIGHT + block("image", 500, 800, ""), "within_tolerance", "2 boxes and 3"),
    ],
)
def test_order_assignment_and_lone_boxes(a: str, b: str, verdict: str, words: str) -> None:
    report = parity(make_result(a), make_result(b), Tolerance(character_error_rate=1))
    assert (report.verdict, words in report.reasons) == (verdict, True), report.reasons
    assert "text and boxes are equal, written with other tokens" not in report.reasons


def test_how_boxes_moved_is_said() -> None:
    a = "".join(block("text", 100, 60 * i, f"line {i}") for i in range(14))
    b = "".join(block("text", 100, 60 * i + 18, f"line {i}") for i in range(14))
    report = parity(make_result(b), make_result(a))
    assert report.reasons == ("all 14 boxes moved by 1.8 % down",)


def seconds(text: str) -> float:
    started = time.process_time()
    text_changes(text, text + "x")
    return time.process_time() - started


def test_long_hostile_texts_take_linear_time() -> None:
    """Eight times the text may take about eight times as long; quadratic would take 64."""
    html = ("<table>", "<td", "<tr><td colspan=9999 rowspan=9999>1", "<b a", "<sup>", "<!--", "&#")
    latex = (r"\(", r"\[x", r"\frac{", r"\frac{1}{", "$1", "$a ", "^{", "x_{1}", "{", r"\sqrt", "\\")
    rest = ("|-", "|a\n|-|\n", "1 ", "(1", "**", "**a", "- 1\n", "[a](", "# ", "1'", "三", "½", "²", "_ ")
    for unit in (*html, *latex, *rest):
        short = unit * (2_000 // len(unit))
        eighth = min(seconds(short) for _ in range(3))
        assert any(seconds(short * 8) < 24 * eighth + 0.05 for _ in range(3)), unit
    seconds("½" * 2 * MOST_CHARACTERS)
