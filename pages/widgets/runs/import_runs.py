"""Import uploaded runs; every file that was refused is listed with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from pages.widgets.runs.address import NARROWING, STATE, put
from pages.widgets.shared import table
from pages.widgets.shared.messages import show_error

_REPORT, _ROUND = "runs import report", "runs import round"


@dataclass(frozen=True)
class Outcome:
    """Outcome of an upload: runs with the files that they are of, and what was left out, and why."""

    runs: pd.DataFrame
    skipped: pd.DataFrame

    def of(self, state: str) -> list[str]:
        """Ids of the runs that are `imported`, or a `duplicate`."""
        return list(self.runs.loc[self.runs["state"] == state, "run"])


def take_uploads(history: History, uploads: Iterable[Any]) -> Outcome:
    """Import uploaded files, each by itself: a run's folder comes as a zip archive."""
    with Temporary("upload") as name:
        root = Path(name)
        paths: list[Path] = []
        refused: list[tuple[str, str]] = []
        for number, upload in enumerate(uploads):
            # The first part is a number, so that two files of one name do not meet.
            try:
                target = root / str(number) / PurePosixPath(upload.name.replace("\\", "/")).name
                target.parent.mkdir()
                target.write_bytes(upload.getvalue())
                paths.append(target)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                refused.append((upload.name, f"could not be stored ({reason})"))
        report = import_paths(history, dict.fromkeys(paths))

    def named(path: Path) -> str:
        return without_surrogates("/".join(path.relative_to(root).parts[1:])) or "the upload"

    runs = [
        (run.run_id, run.source, named(run.origin), state)
        for state, found in (("imported", report.imported), ("duplicate", report.known))
        for run in found
    ]
    skipped = [(without_surrogates(name) or "a file without a name", reason) for name, reason in refused]
    skipped += [(named(item.path), item.reason) for item in report.skipped]
    return Outcome(
        pd.DataFrame(runs, columns=["run", "made by", "from", "state"]),
        pd.DataFrame(skipped, columns=["file", "reason"]),
    )


# --- the dialog -----------------------------------------------------------------------------------


@st.dialog("Import runs", width="large")
def dialog(history: History) -> None:
    """Files, and what became of them."""
    st.caption(
        "Runs of this project and of llm-perf-opt, profiles of Nsight Systems, Nsight Compute and "
        "torch.profiler, analytic sweeps: their files, or a folder as a zip archive. Runs already imported "
        "are skipped."
    )
    uploads = st.file_uploader(
        "Zip archives and files", accept_multiple_files=True,
        key=f"runs upload {st.session_state.get(_ROUND, 0)}",
    )  # fmt: skip
    if st.button("Import", type="primary", disabled=not uploads, key="runs import", icon=":material/upload:"):
        try:
            with st.spinner(f"Importing {plural(len(uploads), 'file')}", show_time=True):
                st.session_state[_REPORT] = take_uploads(history, uploads)
            history.refresh()
        except DsocrError as error:
            show_error(error)
        else:
            # A fresh uploader from the next click on: the same files are not offered again.
            st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1
    outcome: Outcome | None = st.session_state.get(_REPORT)
    if outcome is None:
        return
    runs, here = plural(len(outcome.of("imported")), "run"), plural(len(outcome.of("duplicate")), "duplicate")
    st.markdown(f"**{runs} imported, {here}, {plural(len(outcome.skipped), 'file')} skipped**")
    if found := list(dict.fromkeys(outcome.runs["run"])):
        if st.button("Show them", key="runs show imported", on_click=_show, args=(found,)):
            st.rerun()
        table.draw(outcome.runs, most=8)
    if len(outcome.skipped):
        st.markdown("**Left out, and why**")
        table.draw(outcome.skipped, most=8)


def _show(run_ids: list[str]) -> None:
    """A callback: the imported runs are chosen in the list, and the dialog closes."""
    st.session_state.pop(_REPORT, None)
    STATE.clear(*NARROWING)
    put("runs", run_ids)
