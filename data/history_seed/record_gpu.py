"""Records on a GPU machine what `recordings` names, each at its commit, for `make` to take into the history.

`python -m data.history_seed.record_gpu --config CONFIG --checkpoint DIR [NAME...]`, in a clone and on a
machine that does nothing else; the profiles need Nsight Compute (`... --config CONFIG ncu-fast ncu-eager`
are both engines' kernels). CONFIG is the published `config.json`; DIR a checkpoint directory of the
published format with its own code, which runs. Then `make seed-history`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from data.history_seed import recorder
from data.history_seed.make import GPU_RECORDINGS
from data.history_seed.recordings import (
    CHECKPOINT,
    CONFIG,
    PROFILES,
    RECORDINGS,
    ProfileRecording,
    Recording,
)
from dsocr_core.measure.ncu_command import command, shown
from dsocr_core.settings import PROJECT_ROOT, Settings

RECORDER = Path(__file__).with_name("recorder.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record; 1 when a command failed, whose recording is left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of recordings.py (default: all of them)")
    parser.add_argument("--config", type=Path, required=True, help="the published config.json")
    parser.add_argument("--checkpoint", type=Path, help="a checkpoint of the published format; its code runs")
    parser.add_argument(
        "--to", type=Path, default=GPU_RECORDINGS, help="where (default: data/history_seed/gpu)"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {recording.name for recording in (*RECORDINGS, *PROFILES)}:
        parser.error(f"no recording is named {', '.join(sorted(unknown))}")
    failed = []
    for recording in RECORDINGS:
        if options.names and recording.name not in options.names:
            continue
        with checkout(recording, options.config.resolve(), options.checkpoint) as (tree, commit):
            code = record(recording, tree, commit, options.to.resolve())
        print(f"{recording.name}: {'recorded' if code in (0, 1) else f'failed with {code}'}", flush=True)
        failed += [recording.name] if code not in (0, 1) else []
    for profile in PROFILES:
        if options.names and profile.name not in options.names:
            continue
        here = Recording(profile.name, "HEAD", "", profile.note)
        with checkout(here, options.config.resolve(), None) as (tree, commit):
            code = record_profile(profile, tree, commit, options.to.resolve())
        print(f"{profile.name}: {f'failed with {code}' if code else 'recorded'}", flush=True)
        failed += [profile.name] if code else []
    return int(bool(failed))


def record_profile(recording: ProfileRecording, tree: Path, commit: str, to: Path) -> int:
    """Run Nsight Compute in a checkout; its exit code. The number of launches is its only bound.

    ncu writes its table when the program has ended or ncu is told to end: one that is killed leaves nothing.
    """
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    table = tree / f"{recording.name}.csv"
    words = command(recording.profile, Settings(checkpoint=f"random:{CONFIG}", preset="gundam"), table)
    code = subprocess.run(words, cwd=tree, check=False).returncode
    if code or not table.is_file():
        return code or 1
    machine = recorder.machine() | {"gpu": recorder.gpu_name()}
    about = {
        "format": recorder.FORMAT, "command": shown(words, table), "commit": commit, "created": created,
        "versions": recorder.versions(), "machine": machine,
    }  # fmt: skip
    to.mkdir(parents=True, exist_ok=True)
    (to / f"{recording.name}.csv.gz").write_bytes(gzip.compress(table.read_bytes(), mtime=0))
    (to / f"{recording.name}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return 0


def record(recording: Recording, tree: Path, commit: str, to: Path) -> int:
    """Run the recorder in a checkout; the command's exit code: of a comparison 1 says that pages differ."""
    out = to / f"{recording.name}.json.gz"
    code = subprocess.run(
        [sys.executable, str(RECORDER), str(out), commit, *shlex.split(recording.arguments)], cwd=tree
    ).returncode
    if code not in (0, 1):
        out.unlink(missing_ok=True)
    return code


@contextmanager
def checkout(recording: Recording, config: Path, checkpoint: Path | None) -> Iterator[tuple[Path, str]]:
    """The commit's files in a temporary worktree, the published ones beside them; the commit's full name."""
    with tempfile.TemporaryDirectory(prefix="dsocr-recorded-") as folder:
        tree = Path(folder) / "tree"
        _git(PROJECT_ROOT, "worktree", "add", "--detach", str(tree), recording.commit)
        try:
            if recording.code_from is not None:
                _git(tree, "checkout", recording.code_from, "--", ":(glob)data/mini/*.py")
            (tree / CONFIG).parent.mkdir(exist_ok=True)
            shutil.copy(config, tree / CONFIG)
            if checkpoint is not None:
                (tree / CHECKPOINT).symlink_to(checkpoint.resolve(), target_is_directory=True)
            yield tree, _git(tree, "rev-parse", "HEAD")
        finally:
            _git(PROJECT_ROOT, "worktree", "remove", "--force", str(tree))


def _git(directory: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
