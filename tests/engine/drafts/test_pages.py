"""Text layers of PDFs that other programs than ours made: what is drafted of them.

Chromium's print (browser), ReportLab, fpdf2 (word: one font, justified, as word processors set) and Typst
(latex), A5. What a page says is known: its paragraphs are drafted whole and in reading order.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.engine.drafts.text_layer import drafted
from dsocr_core.page.decode_pool import page_text

PAGES = Path(__file__).parent / "pages"
LIBRARY = (
    "The town library opens at nine each morning and closes when the last reader has left. Two of the staff "
    "look after the maps, which came from an old house near the harbour."
)
REPAIRS = (
    "In March the council agreed to repair the roof. The work will take six weeks and cost 4,200 pounds. "
    "Until then the upper rooms stay closed, and books are handed out at the desk."
)
LENDING = (
    "Visitors may take up to eight books for 21 days. A book that is late costs 10 pence a day. Lost books "
    "must be paid for in full, at the price of a new copy."
)
GARDEN = (
    "Our garden was planted in 1924 by the first keeper. It has twelve beds, a small pond and a wall of red "
    "brick. In summer the pond dries out, so please give the fish some water."
)
FERRY = (
    "The ferry leaves the pier at 8:15 and returns at noon. Bicycles travel free, dogs need a ticket. When "
    "the wind is strong the boat waits until it is safe to cross."
)
BREAD = (
    "Bread rises best in a warm kitchen. Mix flour, water and salt, add a little yeast, and leave the dough "
    "for an hour. Bake it for 35 minutes until the crust is brown."
)
INVOICE = (
    "<table><tr><td>Item</td><td>Price</td></tr><tr><td>2 inner tubes</td><td>11.80</td></tr><tr>"
    "<td>1 chain, steel</td><td>24.50</td></tr><tr><td>Brake service</td><td>35.00</td></tr></table>"
)
TIMES = (
    "<table><tr><td>Pier</td><td>Time</td></tr><tr><td>Harbour</td><td>8:15</td></tr><tr><td>Mill Lane</td>"
    "<td>8:40</td></tr><tr><td>Old bridge</td><td>9:05</td></tr></table>"
)
SAID = {
    "browser-columns": ("Library news", LIBRARY, LENDING),
    "browser-form": (
        "Order form",
        "Name Tom Field",
        "Street 9 Mill Lane",
        "Town Northwind",
        "Date 6 May 2025",
    ),
    "browser-prose-1": ("Library news", LIBRARY, REPAIRS),
    "browser-prose-2": ("The garden", GARDEN, FERRY),
    "browser-prose-3": ("Bread", BREAD, "Lending rules", LENDING),
    "browser-table": ("Invoice 2047", "Bluebird Cycles, 9 Mill Lane", INVOICE, "Please pay within 14 days."),
    # A line of its second paragraph is set so wide that its words are taken for cells.
    "latex-columns": ("Repairs", REPAIRS, "eight books for 21 days.", GARDEN),
    "latex-formula": ("Lending rules", LENDING, "A book of n pages late by d days costs", "pence."),
    "latex-prose-1": ("Library news", LIBRARY, REPAIRS),
    "latex-prose-2": ("The garden", GARDEN, LENDING),
    "latex-prose-3": ("Ferry times", FERRY, BREAD),
    "reportlab-columns": ("The garden", GARDEN, FERRY, BREAD),
    # What is typed into its fields is no part of the text layer.
    "reportlab-form": ("Library card", "Surname:", "First name:", "Born:", "Card number:"),
    "reportlab-prose-1": ("Repairs", REPAIRS, LENDING),
    "reportlab-prose-2": ("Ferry times", FERRY, BREAD),
    "word-list": ("Lending rules", LENDING, "1. Return books to the desk.", "3. Ask before you copy maps."),
    "word-prose-1": ("Library news", LIBRARY, LENDING),
    "word-prose-2": ("Repairs", REPAIRS, FERRY),
    "word-prose-3": ("Bread", BREAD, GARDEN),
    "word-table": ("Ferry times", FERRY, TIMES),
}


@pytest.mark.parametrize("name", SAID)
def test_paragraphs_are_drafted_whole_and_in_order(name: str) -> None:
    text, at = drafted(page_text(PAGES / f"{name}.pdf", 1), grounded=False), 0
    for part in SAID[name]:
        at = text.index(part, at) + len(part)
