"""Remote code of a checkpoint directory, and the permission to run it, bound to directory and content.

A directory is allowed by name. Its Python and JSON files are stored by hash, and a change must be allowed
again. The worker imports copies of exactly these files. Standard library only, for the worker's interpreter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, Missing, parse_json, parse_value, read_bytes
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.base.sanitise import name_text
from dsocr_core.reading.writing import write_whole
from dsocr_core.vendor.errors import RemoteCodeNotAllowed

FILE_BYTES = 64 * 2**20
RECORD_BYTES = 16 * 2**20
MOST_FILES = 200
DIGEST_CHARACTERS = 16

_HASHED = (".py", ".json")
_WORDS_ONLY = ("tokenizer.json", "vocab.json", "added_tokens.json")
"""Keys with texts of tokens, below which no class can be named."""
_OTHER_CONFIGS = ("configuration_files", "custom_pipelines", "_attn_implementation_internal")
"""Keys that make transformers read another config or code."""
_REFERENCE = re.compile(r"([A-Za-z_]\w*)\.[A-Za-z_]\w*", re.ASCII)
_ALLOWED = re.compile(rf"(.+)@([0-9a-f]{{{DIGEST_CHARACTERS}}})", re.DOTALL)


@dataclass(frozen=True)
class RemoteCode:
    """The Python and JSON files of a checkpoint directory, each with its SHA-256."""

    directory: Path
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """One short hash of all files."""
        text = json.dumps(sorted(self.files.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def permission(self) -> str:
        """Permission for exactly this code: `DIRECTORY@DIGEST`."""
        return f"{self.directory}@{self.digest}"


def remote_code(directory: Path) -> RemoteCode:
    """Hash the files that would be imported or read. Raises RemoteCodeNotAllowed for other places."""
    directory = directory.resolve()
    found = sorted(entry for entry in directory.glob("*") if entry.suffix.lower() in _HASHED)
    if len(found) > MOST_FILES:
        raise RemoteCodeNotAllowed(f"{directory}: more than {MOST_FILES} code files; that is no checkpoint")
    files: dict[str, str] = {}
    for file in found:
        content = _read(file, directory)
        _check_names(directory, file.name, content)
        files[file.name] = hashlib.sha256(content).hexdigest()
    return RemoteCode(directory, files)


def _read(file: Path, directory: Path) -> bytes:
    """Read a regular file of the directory. Raises RemoteCodeNotAllowed for links out of it."""
    where = f"{directory}: {name_text(file.name)}"
    # A Hugging Face cache has NAME/snapshots/REVISION/config.json -> ../../blobs/HASH.
    blobs = directory.parent.parent / "blobs" if directory.parent.name == "snapshots" else directory
    own = (directory, blobs, EMBEDDED_CHECKPOINT)  # the embedded checkpoint's links are trusted
    try:
        place = file.resolve()
        if not any(place.is_relative_to(folder) for folder in own):
            raise RemoteCodeNotAllowed(
                f"{where} is a link out of the directory; copy the checkpoint with its files"
            )
        return read_bytes(file, FILE_BYTES, follow_links=True)
    except (InvalidFile, OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        if str(error) == "empty":
            return b""
        cause = error if isinstance(error, InvalidFile) else "cannot be read"
        raise RemoteCodeNotAllowed(f"{where}: {cause}; its code is not run") from error


def _check_names(directory: Path, name: str, content: bytes) -> None:
    """Raise RemoteCodeNotAllowed for a JSON file that names code or a config elsewhere."""
    name = name.lower()  # as a disk without cases has it
    if name == "adapter_config.json":
        words = f"{name} names another checkpoint; merge the adapter, or move the file away"
        raise RemoteCodeNotAllowed(f"{directory}: {words}")
    if not name.endswith(".json") or name in _WORDS_ONLY or name.endswith(".index.json"):
        return
    where, end = f"{directory}: {name_text(name)}", "its code is not run"
    try:
        config = parse_value(content, any_number=True)
    except InvalidFile as error:
        raise RemoteCodeNotAllowed(f"{where}: {error}; {end}") from error
    for key, reference in _references(config):
        if key != "auto_map":
            raise RemoteCodeNotAllowed(f"{where}: {key} names another file to load; {end}")
        if not (isinstance(reference, str) and _REFERENCE.fullmatch(reference)):
            words = f"auto_map names '{name_text(str(reference))[:100]}', which is not a class of the"
            raise RemoteCodeNotAllowed(f"{where}: {words} directory's own files; {end}")


def _references(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield all that `auto_map` and `_OTHER_CONFIGS` name, at any depth."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if key == "auto_map":
            for entry in value.values() if isinstance(value, dict) else [value]:
                classes = entry if isinstance(entry, list) else [entry]
                yield from ((key, one) for one in classes if one is not None)
        elif key in _OTHER_CONFIGS:
            yield key, value
        else:
            yield from _references(value)
    for value in config if isinstance(config, list) else ():
        yield from _references(value)


# --- permission ---------------------------------------------------------------------------------


def require_allowed(checkpoint: Path, allowed: Iterable[str | Path], record: Path | None) -> RemoteCode:
    """Code of the directory, if one of `allowed` (`DIRECTORY` or `DIRECTORY@DIGEST`) allows it.

    Hashes of allowed code are stored in the file `record`. A directory alone allows its code as it was then;
    its digest allows changed code. Raises RemoteCodeNotAllowed, which tells what to do.
    """
    code = remote_code(checkpoint)
    by_name, digests = _permissions(allowed, code.directory)
    known = _recorded(record)
    before = known.get(str(code.directory))
    changed = by_name and before is not None and before != code.files
    if code.digest not in digests and (changed or not by_name):
        problem = "has changed since it was allowed" if by_name or digests else "has not been allowed to run"
        files = code.files
        if changed:
            differing = set((before or {}).items()) ^ set(files.items())
            files = {name: files.get(name, "gone") for name, _ in differing}
        raise RemoteCodeNotAllowed(
            f"{code.directory}: its own code {problem} ({_listed(files)}); read it, then give "
            f"--vendor.trust-remote-code+={code.permission} or confirm the switch in the app"
        )
    if record is not None and before != code.files:
        now = known | {str(code.directory): code.files}
        try:
            write_whole(record, json.dumps(now, indent=1).encode())
        except OSError as error:
            words = f"what was allowed cannot be stored ({error.strerror})"
            raise RemoteCodeNotAllowed(f"{record}: {words}") from error
    return code


def _permissions(allowed: Iterable[str | Path], directory: Path) -> tuple[bool, set[str]]:
    """Whether the directory is allowed by name alone, and the digests with which it is allowed."""
    by_name, digests = False, set()
    for entry in map(str, allowed):
        if Path(entry).resolve() == directory:
            by_name = True
        elif (match := _ALLOWED.fullmatch(entry)) and Path(match[1]).resolve() == directory:
            digests.add(match[2])
    return by_name, digests


def _listed(files: dict[str, str]) -> str:
    ordered = sorted(files.items(), key=lambda item: (not item[0].endswith(".py"), item[0]))
    shown = [f"{name_text(name)} {digest[:8]}" for name, digest in ordered]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "") or "no files"


def _recorded(record: Path | None) -> dict[str, dict[str, str]]:
    try:
        found = {} if record is None else parse_json(read_bytes(record, RECORD_BYTES))
    except Missing:
        return {}
    except InvalidFile as error:
        words = "delete it to be asked again for every directory"
        raise RemoteCodeNotAllowed(f"{record}: {error}; {words}") from error
    return {directory: files for directory, files in found.items() if isinstance(files, dict)}


# --- in the worker ------------------------------------------------------------------------------


def copy_for_import(checkpoint: Path, files: dict[str, str], target: Path) -> None:
    """Make a directory with copies of exactly these files, and links to all files but Python and JSON.

    So the imported files are the hashed ones, even if the directory changes meanwhile. Raises
    RemoteCodeNotAllowed.
    """
    target.mkdir()
    for entry in checkpoint.iterdir():
        if entry.name in files:
            content = _read(entry, checkpoint.resolve())
            if hashlib.sha256(content).hexdigest() != files[entry.name]:
                words = f"{name_text(entry.name)} has changed while it was loaded"
                raise RemoteCodeNotAllowed(f"{checkpoint}: {words}")
            (target / entry.name).write_bytes(content)
        elif entry.suffix.lower() not in _HASHED and entry.is_file():
            (target / entry.name).symlink_to(entry.absolute())


def check_modules(modules: Iterable[ModuleType], files: dict[str, str]) -> None:
    """Raise RemoteCodeNotAllowed unless the imported modules are copies of these files."""
    for module in modules:
        file = Path(module.__file__ or "")
        content = file.read_bytes() if file.is_file() else b""
        if content and files.get(file.name) != hashlib.sha256(content).hexdigest():
            words = f"was imported from elsewhere, not from the directory: {file}"
            raise RemoteCodeNotAllowed(f"{name_text(module.__name__)} {words}")
