"""FLOPs and bounds: how exact the arithmetic is in every run, and what each stage loses to its bound."""

from __future__ import annotations

from functools import partial

import duckdb

from dsocr_core.base.errors import DsocrError
from pages.widgets.flops import address, gaps, what_if
from pages.widgets.shared import figure, heading
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import part, refused

_VIEWS = {"All runs": gaps.draw, "What if": what_if.draw}


def page() -> None:
    heading.draw("flops")
    address.read()
    if refused():
        return
    try:
        part(address.read, partial(figure.tabs, _VIEWS, address.key("view")), address.write)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        address.write()


page()
