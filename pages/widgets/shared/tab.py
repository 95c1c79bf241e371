"""Whether the browser tab that asked for something is still open."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.runtime import get_instance
from streamlit.runtime.scriptrunner import get_script_run_ctx


def open_tab() -> Callable[[], bool]:
    """What tells, from any thread, whether the tab that is drawn now is still open."""
    context = get_script_run_ctx()
    if context is None:
        return lambda: True
    runtime, session = get_instance(), context.session_id
    return lambda: bool(runtime.is_active_session(session))
