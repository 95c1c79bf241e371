"""Every file of a history held against its checksum: what `history check` says."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.checksums import read_checksums, verify
from dsocr_core.runs.history import History
from dsocr_core.runs.storage import Leftover


@dataclass(frozen=True)
class Damage:
    """A file of an entry, `runs/<id>` or `annotations/<name>`, that is not what was written, and why."""

    entry: str
    reason: str
    open: bool = True
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
        return [name.removeprefix("runs/") for name in names if name.startswith("runs/")]


def check(history: History) -> CheckReport:
    """Read every file of a history; what lies damaged in the trash is not named. Raises StorageError."""
    history.refresh()
    report = CheckReport(leftovers=history.storage.leftovers(), other_versions=history.of_other_versions)
    for entry, reason in sorted(history.problems.items()):
        if entry.removeprefix("runs/") not in report.other_versions:
            report.damaged.append(Damage(entry, reason, open=False))
    for run_id in history.run_ids():
        report.entries += 1
        checksums: dict[str, str] = {}
        try:
            directory = history.directory(run_id)
            checksums = read_checksums(directory) or {}
        except DsocrError as error:
            report.damaged.append(Damage(f"runs/{run_id}", str(error)))
        for name in sorted(checksums):
            try:
                verify(directory, checksums, [name])
                report.files += 1
            except DsocrError as error:
                report.damaged.append(Damage(f"runs/{run_id}", str(error)))
    return report
