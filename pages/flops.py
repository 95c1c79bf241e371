"""FLOPs and bounds: how exact the arithmetic is in every run, and what each stage loses to its bound."""

from __future__ import annotations

from functools import partial

import duckdb

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.flops import gaps, what_if
from pages.widgets.flops.address import STATE
from pages.widgets.shared import figure, resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.shown_runs import watch
from pages.widgets.shared.url_state import part


def page() -> None:
    STATE.read()
    figure.heading(STATE)
    try:
        watch(history := resources.history())
        part(STATE.read, partial(_draw, history), STATE.write)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        STATE.write()


def _draw(history: History) -> None:
    gaps.draw(history)
    what_if.draw()


page()
