"""`command:TEMPLATE`: any program that reads an image and leaves files, run once a page without a shell."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from dsocr_core.backends.backend import Backend, PageRead
from dsocr_core.backends.folder import text_result
from dsocr_core.base.child import Child
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import name_text, visible
from dsocr_core.base.specs import BackendSpec
from dsocr_core.reading.records import CancelToken, OcrRequest, OcrResult
from dsocr_core.runs.texts import read_folder
from dsocr_core.settings import Settings

OUTPUT_BYTES, OUTPUT_FILES = 256 * 1024 * 1024, 10_000
"""Limits of what a program may write for a page."""
_PLACES = re.compile(r"\{(image|out)\}")
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|PRIVATE|_PASS$|^PASS$|_PWD$|_PAT$|DSN",
    re.I,
)
_SECRET_VALUE = re.compile(r"://[^/\s]*:[^/\s]*@")


class CommandBackend(Backend):
    """A program that is started once a page. Thread-safe: several pages are several processes."""

    def __init__(self, spec: BackendSpec, settings: Settings) -> None:
        """Raises DsocrError for a template that cannot be split or lacks {image} or {out}."""
        super().__init__(spec, settings)
        self.concurrency = spec.concurrency
        self._words = template_words(spec.target)
        self._program = visible(Path(self._words[0]).name)

    def check(self, together: bool = False) -> None:
        super().check(together)
        if shutil.which(self._words[0]) is None:
            named = visible(self._words[0])[:80]
            raise DsocrError(f"command: there is no program '{named}'; check the path")

    def read_page(self, page: PageRead) -> OcrResult:
        """Run the program on a page and read what it left. Raises DsocrError, Cancelled."""
        request, size = page.request, page.size(self.settings.max_pixels)
        program = f"{request.name}: {self._program}"
        with Temporary("command") as directory:
            out = Path(directory) / "out"
            out.mkdir()
            self._run(request, program, out, page.cancel)
            try:
                left = read_folder(out)
                found = left.predictions[0]
                if len(left.predictions) > 1:
                    found = left.text_of(name_text(request.image.name))
            except DsocrError as error:
                reason = str(error).replace(name_text(out), "its folder")
                raise DsocrError(f"{program} left no text to take ({reason})") from error
        page.say(found.text)
        source = {"command": self.spec.target, "file": name_text(found.file.name)}
        return text_result(self.name, request, size, found, source)

    def _run(self, request: OcrRequest, program: str, out: Path, cancel: CancelToken | None) -> None:
        """Run the program to its end. None of its processes is left then. Raises DsocrError, Cancelled."""
        places = {"image": str(request.image.resolve()), "out": str(out)}
        words = [_PLACES.sub(lambda found: places[found[1]], word) for word in self._words]
        try:
            child = Child(words, environment_without_secrets(os.environ, self.settings))
        except (OSError, ValueError) as error:
            cause = getattr(error, "strerror", None) or error
            raise DsocrError(f"{program} cannot be run ({cause})") from error
        seconds, began = self.spec.timeout_s, monotonic()

        def check() -> None:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            if (why := _too_much(out)) is not None:
                raise DsocrError(f"{program} was stopped: it left {why}")
            if monotonic() > began + seconds and child.alive:
                words = f"after {seconds:g} s; give timeout_s a larger number"
                raise DsocrError(f"{program} was stopped {words}")

        with contextlib.closing(child):
            while not child.wait(0.05):
                check()
            check()
        if child.returncode:
            said = child.last_line(300) or "it said nothing"
            raise DsocrError(f"{program} {child.how_it_ended()}: {said}")


def template_words(template: str) -> list[str]:
    """A template's words, split as a shell does and before anything is put in. Raises DsocrError."""
    named, form = f"command: '{visible(template)[:80]}'", "my-ocr --image {image} --out {out}"
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise DsocrError(f"{named} cannot be split ({error}); close the quote") from error
    for place in ("{image}", "{out}"):
        if not any(place in word for word in words[1:]):
            raise DsocrError(f"{named} has no {place}; give it like: {form}")
    return words


def environment_without_secrets(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Copy the environment without variables whose name or value looks like a secret or holds a key."""
    given = [settings.a, settings.b, *settings.backends.values()]
    keys = {each.get("key_variable") for each in given if isinstance(each, Mapping)}
    return {
        name: value
        for name, value in environment.items()
        if name not in keys and not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    }


def _too_much(out: Path) -> str | None:
    """Say which limit a program's output exceeds; None where it exceeds none. Links are not followed."""
    size = 0
    for count, each in enumerate(out.rglob("*"), start=1):
        with contextlib.suppress(OSError):
            size += each.lstat().st_size
        if count > OUTPUT_FILES:
            return f"more than {OUTPUT_FILES:,} files"
        if size > OUTPUT_BYTES:
            return f"more than {OUTPUT_BYTES:,} bytes"
    return None
