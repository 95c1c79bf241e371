"""Which code a checkpoint directory brings, and whether it may run: pinned to the directory and its content.

A directory is allowed by name; what it held then is stored by hash, and a change asks again. The worker
imports copies of exactly these files. Standard library only: the worker's interpreter has little else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr_core.outside.untrusted import Missing, Refused, parse_json, read_bytes
from dsocr_core.outside.visible import name_text
from dsocr_core.vendor.errors import RemoteCodeNotAllowed

CODE_BYTES = 8 * 2**20
CONFIG_BYTES = 16 * 2**20
MOST_FILES = 200
DIGEST_CHARACTERS = 16
_MOST_LISTED = 6

_CONFIGS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
"""Where transformers looks for `auto_map`."""
_REFERENCE = re.compile(r"([A-Za-z_]\w*)\.[A-Za-z_]\w*", re.ASCII)
_ALLOWED = re.compile(rf"(.+)@([0-9a-f]{{{DIGEST_CHARACTERS}}})", re.DOTALL)


@dataclass(frozen=True)
class RemoteCode:
    """The Python files of a checkpoint directory, each with its SHA-256."""

    directory: Path
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """One short hash for all of them."""
        text = json.dumps(sorted(self.files.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def permission(self) -> str:
        """What allows exactly this code: `DIRECTORY@DIGEST`."""
        return f"{self.directory}@{self.digest}"


def remote_code(directory: Path) -> RemoteCode:
    """What would be imported from the directory. Raises RemoteCodeNotAllowed for what leads out of it."""
    directory = directory.resolve()
    files: dict[str, str] = {}
    for file in sorted(directory.glob("*.py")):
        if len(files) == MOST_FILES:
            raise RemoteCodeNotAllowed(
                f"{directory}: more than {MOST_FILES} Python files; that is no checkpoint"
            )
        files[file.name] = hashlib.sha256(_read(file, directory, CODE_BYTES)).hexdigest()
    _check_references(directory, files)
    return RemoteCode(directory, files)


def _read(file: Path, directory: Path, limit: int) -> bytes:
    """A regular file within the directory. Raises RemoteCodeNotAllowed."""
    name = name_text(file.name)
    try:
        inside = file.resolve().is_relative_to(directory)
    except (OSError, RuntimeError) as error:  # links in a circle
        raise RemoteCodeNotAllowed(f"{directory}: {name}: cannot be read; its code is not run") from error
    if not inside:
        raise RemoteCodeNotAllowed(
            f"{directory}: {name} is a link out of the directory; copy the checkpoint with its files"
        )
    try:
        return read_bytes(file, limit, follow_links=True)
    except Missing:
        raise
    except Refused as error:
        if str(error) == "empty":
            return b""
        raise RemoteCodeNotAllowed(f"{directory}: {name}: {error}; its code is not run") from error


def _check_references(directory: Path, files: Iterable[str]) -> None:
    """Every `auto_map` names classes of these files, none of another repository or directory."""
    for name in _CONFIGS:
        try:
            config = parse_json(_read(directory / name, directory, CONFIG_BYTES), any_number=True)
        except Missing:
            continue
        except Refused as error:
            raise RemoteCodeNotAllowed(f"{directory}: {name}: {error}; its code is not run") from error
        for reference in _references(config):
            match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
            if match is None:
                raise RemoteCodeNotAllowed(
                    f"{directory}: {name}: auto_map names '{name_text(str(reference))[:100]}', which is not "
                    "a class of the directory's own files; its code is not run"
                )


def _references(config: Any) -> Iterator[Any]:
    """The values of every `auto_map` and `custom_pipelines`, however deep they lie."""
    if isinstance(config, dict):
        for key, value in config.items():
            if key == "auto_map":
                entries = value.values() if isinstance(value, dict) else [value]
                for entry in entries:
                    yield from (
                        one for one in (entry if isinstance(entry, list) else [entry]) if one is not None
                    )
            elif key == "custom_pipelines":
                yield "custom_pipelines"
            else:
                yield from _references(value)
    elif isinstance(config, list):
        for value in config:
            yield from _references(value)


# --- permission ---------------------------------------------------------------------------------


def require_allowed(checkpoint: Path, allowed: Iterable[str | Path], record: Path | None) -> RemoteCode:
    """The directory's code, which one of `allowed` (`DIRECTORY` or `DIRECTORY@DIGEST`) allows.

    The hashes of what is allowed are stored in the file `record`; a directory alone allows its code as it was
    then, and its digest allows a changed one. Raises RemoteCodeNotAllowed, which says how to go on.
    """
    code = remote_code(checkpoint)
    names, digests = _permissions(allowed, code.directory)
    again = f"--vendor.trust_remote_code+={code.permission}"
    if not names and code.digest not in digests:
        changed = "has changed since it was allowed" if digests else "has not been allowed to run"
        raise RemoteCodeNotAllowed(
            f"{code.directory}: its own code {changed} ({_listed(code.files)}); read it, then give {again} "
            "or confirm the switch in the app"
        )
    known = _recorded(record)
    before = known.get(str(code.directory))
    if code.digest not in digests and before is not None and before != code.files:
        differing = sorted({name for name, _ in set(before.items()) ^ set(code.files.items())})
        now = _listed({name: code.files.get(name, "gone") for name in differing})
        raise RemoteCodeNotAllowed(
            f"{code.directory}: its own code has changed since it was allowed ({now}); "
            f"read it, then give {again}"
        )
    if record is not None and before != code.files:
        _write(record, known | {str(code.directory): code.files})
    return code


def _permissions(allowed: Iterable[str | Path], directory: Path) -> tuple[bool, set[str]]:
    """Whether the directory is allowed by name alone, and the digests with which it is."""
    by_name, digests = False, set()
    for entry in map(str, allowed):
        if Path(entry).resolve() == directory:
            by_name = True
        elif (match := _ALLOWED.fullmatch(entry)) and Path(match[1]).resolve() == directory:
            digests.add(match[2])
    return by_name, digests


def _listed(files: dict[str, str]) -> str:
    shown = [f"{name_text(name)} {digest[:8]}" for name, digest in files.items()]
    return (
        ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "") or "no Python files"
    )


def _recorded(record: Path | None) -> dict[str, dict[str, str]]:
    if record is None:
        return {}
    try:
        found = parse_json(read_bytes(record, CONFIG_BYTES))
    except Missing:
        return {}
    except Refused as error:
        raise RemoteCodeNotAllowed(
            f"{record}: {error}; delete it to be asked again for every directory"
        ) from error
    return {directory: files for directory, files in found.items() if isinstance(files, dict)}


def _write(record: Path, known: dict[str, dict[str, str]]) -> None:
    partial = record.with_name(f"{record.name}.{os.getpid()}.part")
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(known, indent=1), encoding="utf-8")
        partial.replace(record)
    except OSError as error:
        raise RemoteCodeNotAllowed(
            f"{record}: what was allowed cannot be stored ({error.strerror})"
        ) from error


# --- in the worker ------------------------------------------------------------------------------


def copy_for_import(checkpoint: Path, files: dict[str, str], target: Path) -> None:
    """A directory with copies of exactly these files and of the configs, and links to all else.

    What is imported is then what was hashed, whatever happens to the directory meanwhile. Raises
    RemoteCodeNotAllowed.
    """
    target.mkdir()
    for entry in checkpoint.iterdir():
        if entry.name in _CONFIGS:
            (target / entry.name).write_bytes(_read(entry, checkpoint.resolve(), CONFIG_BYTES))
        elif entry.name in files:
            content = _read(entry, checkpoint.resolve(), CODE_BYTES)
            if hashlib.sha256(content).hexdigest() != files[entry.name]:
                raise RemoteCodeNotAllowed(
                    f"{checkpoint}: {name_text(entry.name)} has changed while it was loaded"
                )
            (target / entry.name).write_bytes(content)
        elif entry.suffix != ".py" and entry.is_file():
            (target / entry.name).symlink_to(entry.absolute())
    _check_references(target.resolve(), files)
