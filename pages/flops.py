"""FLOPs and bounds: how exact the arithmetic is in every run, and what each stage loses to its bound."""

from __future__ import annotations

from functools import partial

import duckdb

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.flops import address, gaps, what_if
from pages.widgets.shared import heading, resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import part, refused


def page() -> None:
    heading.draw("flops")
    address.read()
    if refused():
        return
    try:
        part(address.read, partial(_draw, resources.history()), address.write)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        address.write()


def _draw(history: History) -> None:
    if gaps.draw(history):
        what_if.draw()


page()
