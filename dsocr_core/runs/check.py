"""Every file of a history held against its checksum: what `history check` says."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.storage.held import Leftover
from dsocr_core.runs.store import History


@dataclass(frozen=True)
class Damage:
    """A file of an entry that is not what was written."""

    entry: str
    """`runs/<id>` or `annotations/<name>`."""
    reason: str
    """The file and the cause."""
    open: bool
    """True where the entry's runs are read all the same: only a picture or the like is damaged."""


@dataclass
class CheckReport:
    """Findings of a check."""

    entries: int = 0
    files: int = 0
    """Files that are what their checksums say."""
    damaged: list[Damage] = field(default_factory=list)
    other_versions: dict[str, str] = field(default_factory=dict)
    """Runs that another version of the program recorded: not read, and no damage."""
    leftovers: list[Leftover] = field(default_factory=list)
    """Directories of writers that did not finish."""

    @property
    def runs(self) -> list[str]:
        """List what `History.trash` takes of what cannot be read."""
        names = [damage.entry for damage in self.damaged if not damage.open]
        return [name.removeprefix("runs/") for name in names if not name.startswith("annotations/")]


def check(history: History) -> CheckReport:
    """Read every file of a history; what lies damaged in the trash is not named. Raises StorageError."""
    history.refresh()
    report = CheckReport(leftovers=history.storage.leftovers())
    for key, reason in sorted(history.problems.items()):
        if (run_id := key.removeprefix("runs/")) in history.of_other_versions:
            report.other_versions[run_id] = reason
            continue
        report.damaged.append(Damage(key, reason, open=False))
    for run_id in history.run_ids():
        report.entries += 1
        try:
            names = history.listed_files(run_id)
        except DsocrError as error:
            report.damaged.append(Damage(f"runs/{run_id}", str(error), open=True))
            continue
        for name in names:
            try:
                history.verify_file(run_id, name)
                report.files += 1
            except DsocrError as error:
                report.damaged.append(Damage(f"runs/{run_id}", str(error), open=True))
    return report
