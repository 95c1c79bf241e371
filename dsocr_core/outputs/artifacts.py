"""A run directory: `viz/<md5 of the image's path>/` a page and one `predictions.jsonl`.

The layout is the one of llm-perf-opt. The first backend lies at the top, the vendor's under `vendor/`, any
other's under `backends/NAME/`; all share `clean/`, the pages without boxes. A page's folder appears
when it is whole, then its line; text of the model never becomes a path. A page that could not be read has
its error in both. What `history import` needs beside that: each page's whole `result.json`, and
`records/<id>.json`, which says with what the lines of that `run` were made.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.models.family import inside_prefill
from dsocr_core.outputs import line_drawing
from dsocr_core.outputs.clean import FOLDER as CLEAN
from dsocr_core.outputs.clean import CleanPage
from dsocr_core.outputs.postprocess import clean_text, crops, result_mmd
from dsocr_core.outputs.render import draw_boxes
from dsocr_core.outputs.result_store import file_of
from dsocr_core.outputs.writing import append_line, drop_half_line, parsed, replace_lines, write_whole
from dsocr_core.outside.visible import encodable, name_text
from dsocr_core.records import VENDOR, BackendName, OcrResult, to_jsonable
from dsocr_core.stages import Stage

RESULT_IMAGE, RESULT_MMD, LINE_DRAWING, INFO, RESULT, PREDICTIONS = (
    "result_with_boxes.jpg",
    "result.mmd",
    "geo.jpg",
    "info.json",
    "result.json",
    "predictions.jsonl",
)
RECORDS = "records"


class ArtifactError(DsocrError):
    """Results could not be written; names the path and the cause."""


BACKENDS = "backends"
"""Where the files of a backend lie that is neither the first nor the vendor."""


def backend_folder(backend: BackendName, first: BackendName | None = None) -> str:
    """Where a backend's files lie in a run's directory: the vendor's and the first one's as ever."""
    if backend == VENDOR:
        return VENDOR
    at_top = backend == first or (first is None and backend in ("eager", "fast"))
    return "" if at_top else f"{BACKENDS}/{backend}"


def page_key(image: Path) -> str:
    """Name of a page's folder: MD5 of the resolved image path as UTF-8."""
    return folder_key(str(image.resolve()))


def folder_key(path: str) -> str:
    """`page_key` of a path as it was recorded, here or on another machine."""
    return hashlib.md5(os.fsencode(path), usedforsecurity=False).hexdigest()


class RunDirectory:
    """Collects the pages of one run. Made on the first page; each page is written at once."""

    def __init__(
        self,
        directory: Path,
        record: Mapping[str, Any] | None = None,
        first: BackendName | None = None,
    ) -> None:
        """`record` is what there is to say of the run as JSON-ready values, its `id` among them; `first` is
        the backend whose files lie at the top."""
        self.directory, self._first = directory, first
        self._record = dict(record or {})
        self._recorded = not self._record

    def add(
        self, result: OcrResult, page: Image.Image, key: str | None = None, clean: CleanPage | None = None
    ) -> Path:
        """Write one result on its RGB page; returns the page's folder. Raises ArtifactError.

        `key` is what `done` finds the page by: a name for everything that decides its result.
        """
        file = file_of(result.request)
        prediction = (
            _prediction(result)
            | {
                "bytes": file and file.bytes,
                "sha256": file and file.sha256,
            }
            | ({"key": key} if key else {})
        )
        return self._add(
            result.backend,
            result.request.image,
            prediction,
            lambda folder: write_page(result, page, folder, {RESULT: _beside_the_line(result)}, keep=True),
            clean,
        )

    def add_failure(self, backend: BackendName, source: str, image: Path | None, error: str) -> Path:
        """Write why a backend could not read a page. Raises ArtifactError."""
        path = image or Path(source)
        about = {"source": source, "backend": backend, "error": error}
        prediction = {"image": name_text(path.resolve()), **about}
        info = {"source_image": name_text(path.resolve()), **about}
        return self._add(backend, path, prediction, lambda folder: _write_failure(info, folder))

    def done(self, backends: Iterable[BackendName]) -> set[tuple[str, str, str]]:
        """(backend, source, key) of every page that was read. Raises ArtifactError."""
        found: set[tuple[str, str, str]] = set()
        for backend in backends:
            file = self._root(backend) / PREDICTIONS
            try:
                with file.open("rb") as lines:
                    for line in lines:
                        data = parsed(line)
                        if "key" in data and "error" not in data:
                            found.add((backend, str(data.get("source")), str(data["key"])))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ArtifactError(f"{file}: cannot be read ({error.strerror})") from error
        return found

    def repair(self, backends: Iterable[BackendName]) -> None:
        """Remove what a writer that was killed left half written. Raises ArtifactError."""
        for root in map(self._root, backends):
            try:
                folders = (root, root / "viz", root / CLEAN, root / RECORDS)
                for leftover in [path for folder in folders for path in folder.glob(".part-*")]:
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
                drop_half_line(root / PREDICTIONS)
                self._settle(root)
            except OSError as error:
                raise ArtifactError(f"{root}: cannot be repaired ({error.strerror})") from error

    def _settle(self, root: Path) -> None:
        """Of a page that was being replaced have the folder that its line is about. Raises OSError."""
        replaced = list((root / "viz").glob(f"{_EARLIER}*"))
        if not replaced:
            return
        line_of: dict[Any, dict[str, Any]] = {}
        if (root / PREDICTIONS).exists():
            with (root / PREDICTIONS).open("rb") as lines:
                line_of = {line.get("image"): line for line in map(parsed, lines)}
        for earlier in replaced:
            folder = earlier.with_name(earlier.name.removeprefix(_EARLIER))
            if _says(folder, line_of):
                shutil.rmtree(earlier)
            else:
                _put_back(folder)

    def note(self, text: str) -> None:
        """Put a note on the run's record once it has a page. Raises ArtifactError."""
        if not self._record or not self._recorded:
            return
        self._record["notes"] = text
        try:
            self._write_record()
        except OSError as error:
            raise ArtifactError(
                f"{self.directory / RECORDS}: cannot be written ({error.strerror})"
            ) from error

    def _write_record(self) -> None:
        """Raises OSError."""
        file = self.directory / RECORDS / f"{self._record['id']}.json"
        write_whole(file, _json_bytes(self._record, indent=1) + b"\n")
        self._recorded = True

    def _root(self, backend: BackendName) -> Path:
        return self.directory / backend_folder(backend, self._first)

    def _add(
        self,
        backend: BackendName,
        image: Path,
        prediction: dict[str, Any],
        write: Callable[[Path], None],
        clean: CleanPage | None = None,
    ) -> Path:
        root = self._root(backend)
        folder = root / "viz" / page_key(image)
        prediction = prediction | ({"run": self._record["id"]} if self._record else {})
        new_picture = False
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            again = folder.exists()
            if not self._recorded:
                self._write_record()
            new_picture = clean is not None and clean.write(self.directory)
            write(folder)
            line = _json_bytes(prediction) + b"\n"
            try:
                if again:
                    replace_lines(root / PREDICTIONS, prediction["image"], line)
                else:
                    append_line(root / PREDICTIONS, line)
            except OSError:
                _put_back(folder)
                raise
            shutil.rmtree(_earlier(folder), ignore_errors=True)
        except OSError as error:
            if clean is not None and new_picture:
                with suppress(OSError):
                    (self.directory / clean.path).unlink()
            cause = error.strerror or " ".join(str(error).split())
            raise ArtifactError(
                f"{folder}: results could not be written ({cause}); make room or give another directory"
            ) from error
        return folder


def write_page(
    result: OcrResult,
    page: Image.Image,
    folder: Path,
    more: Mapping[str, Any] | None = None,
    keep: bool = False,
) -> None:
    """Write a page's files into `folder`, which appears whole or not at all. Raises OSError.

    `more` are JSON documents by name that lie beside them. With `keep` a folder that is replaced stays under
    another name until the caller deletes it.
    """
    with _appearing(folder, keep) as temporary:
        draw_boxes(page, result.boxes).save(temporary / RESULT_IMAGE, quality=92)
        markdown = result_mmd(result.text_raw, result.blocks)
        (temporary / RESULT_MMD).write_bytes(markdown.encode(errors="replace"))
        if line_drawing.MARK in markdown:
            # Mere mention of the word is no drawing, and what the published code fails at.
            with suppress(line_drawing.NotADrawing):
                line_drawing.draw(line_drawing.parse_drawing(markdown)).save(temporary / LINE_DRAWING)
        (temporary / "images").mkdir()
        for number, area in crops(result.blocks, *page.size).items():
            page.crop(area).save(temporary / "images" / f"{number}.jpg", quality=95)
        (temporary / INFO).write_bytes(_json_bytes(_info(result), indent=1) + b"\n")
        for name, document in (more or {}).items():
            (temporary / name).write_bytes(_json_bytes(document) + b"\n")


def _write_failure(info: dict[str, Any], folder: Path) -> None:
    with _appearing(folder, keep=True) as temporary:
        (temporary / INFO).write_bytes(_json_bytes(info, indent=1) + b"\n")


@contextmanager
def _appearing(folder: Path, keep: bool) -> Iterator[Path]:
    """A folder to write into, which replaces `folder` when the block ends well."""
    temporary = folder.with_name(f".part-{secrets.token_hex(8)}")
    temporary.mkdir()
    try:
        yield temporary
        if folder.exists():
            # An earlier run of the same page into the same directory: it can come back.
            shutil.rmtree(_earlier(folder), ignore_errors=True)
            folder.rename(_earlier(folder))
        temporary.replace(folder)
        if not keep:
            shutil.rmtree(_earlier(folder), ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if not folder.exists():
            _put_back(folder)
        raise


_EARLIER = ".replaced-"


def _earlier(folder: Path) -> Path:
    """Where the folder of a page is that is being replaced."""
    return folder.with_name(f"{_EARLIER}{folder.name}")


def _put_back(folder: Path) -> None:
    """Have the page's earlier folder again, or none."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        _earlier(folder).rename(folder)


def _says(folder: Path, line_of: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether a page's folder says what its line of predictions does."""
    try:
        info = parsed((folder / INFO).read_bytes())
    except OSError:
        return False
    line = line_of.get(info.get("source_image"), {})
    if "error" in info or "error" in line:
        return info.get("error") == line.get("error")
    timings = info.get("timings_ms") or {}
    return info.get("text_raw") == line.get("text_raw") and timings.get("decode") == line.get("decode_ms")


def _info(result: OcrResult) -> dict[str, Any]:
    return {
        "source_image": name_text(result.request.image.resolve()),
        "result_image": RESULT_IMAGE,
        "result_mmd": RESULT_MMD,
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "timings_ms": {timing.stage.value: timing.milliseconds for timing in result.timings},
        "boxes": [
            {
                "x": box.x1,
                "y": box.y1,
                "w": box.x2 - box.x1,
                "h": box.y2 - box.y1,
                "text": box.text,
                "label": box.label,
            }
            for box in result.boxes
        ],
    }


def _beside_the_line(result: OcrResult) -> dict[str, Any]:
    """The whole result but for its text, which its line has, unless UTF-8 cannot hold it."""
    data: dict[str, Any] = to_jsonable(result)
    if encodable(result.text_raw) == result.text_raw:
        data["text_raw"] = None
    return data


def _prediction(result: OcrResult) -> dict[str, Any]:
    measured = [ms for stage in inside_prefill() if (ms := result.milliseconds(stage)) is not None]
    return {
        "image": name_text(result.request.image.resolve()),
        "source": result.request.name,
        "backend": result.backend,
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "prefill_ms": result.milliseconds(Stage.PREFILL),
        "decode_ms": result.milliseconds(Stage.DECODE),
        "vision_ms": sum(measured) if measured else None,
        "tokens": result.new_tokens,
        "finish_reason": result.finish_reason,
        "preset": result.request.preset,
        "prompt": result.request.prompt,
        "environment": result.environment,
    }


def _json_bytes(data: Any, indent: int | None = None) -> bytes:
    """UTF-8 JSON; half surrogates, which a worker's message may hold, become question marks."""
    return json.dumps(data, ensure_ascii=False, indent=indent).encode(errors="replace")
