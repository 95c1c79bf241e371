"""A scheduler that is gone is one line, however the driver comes to know of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.driver import Driver, SchedulerGone
from dsocr_core.cluster.local import quiet


class Lost:
    """A future whose result cannot be fetched: lost with the connection, or raised by the task itself."""

    def __init__(self, status: str, error: Exception) -> None:
        self.status, self._error = status, error

    def result(self, timeout: float) -> Any:
        raise self._error


def driver() -> Driver:
    made = Driver.__new__(Driver)
    made.figures, made.order = (
        cast("Any", SimpleNamespace(pages=1234)),
        cast("Any", SimpleNamespace(again="go on")),
    )
    return made


def test_a_result_that_nobody_can_be_asked_for_is_the_schedulers_end() -> None:
    lost = cast("Any", Lost("finished", OSError("Stream is closed")))
    with pytest.raises(SchedulerGone, match="the scheduler is gone; 1,234 pages are committed"):
        driver()._take(lost, cast("Any", None))


def test_an_error_of_the_work_is_not() -> None:
    raised = cast("Any", Lost("error", OSError("no such file")))
    with pytest.raises(DsocrError, match=r"a worker failed: .*no such file") as found:
        driver()._take(raised, cast("Any", None))
    assert not isinstance(found.value, SchedulerGone)


def test_lost_connections_are_not_logged_beside_the_drivers_own_words() -> None:
    logger = logging.getLogger("distributed.client")
    before = logger.level
    logger.setLevel(logging.WARNING)  # as Dask's own configuration has it
    try:
        quiet()
        assert not logger.isEnabledFor(logging.ERROR)
    finally:
        logger.setLevel(before)
