"""OmniDocBench's ground truth: one JSON document, read within bounds; pages with what the rules look at."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes

FILE_LIMIT = 512 * 1024 * 1024
PAGE_LIMIT, BLOCK_LIMIT, TEXT_LIMIT = 20_000, 2000, 200_000
"""Pages of a file, blocks of a page, characters of a block."""

SCORED = ("text_block", "title", "code_txt", "code_txt_caption", "reference")
IGNORED = (
    "equation_caption", "figure_caption", "figure_footnote", "table_caption", "table_footnote",
    "code_algorithm", "code_algorithm_caption", "header", "footer", "page_footnote", "page_number",
)  # fmt: skip
"""Texts that may be written or not: what is like one of them is taken out before the rest is matched."""
FORMULA, TABLE = "equation_isolated", "table"
_MIXED = (
    *SCORED, "equation_caption", "figure_caption", "figure_footnote", "table_caption", "table_footnote",
    "code_algorithm", "code_algorithm_caption", "header", "footer", "page_footnote", "page_number", FORMULA,
)  # fmt: skip
"""In the order in which blocks without a reading order are taken."""

RELEASES = {981: "1.0", 1355: "1.5", 1651: "1.6"}
"""Releases of the benchmark by their number of pages."""


class TruthError(DsocrError):
    """A file of ground truth that cannot be taken; names it and the cause."""


@dataclass(frozen=True)
class TrueBlock:
    """A block of the true answer: its text, LaTeX or HTML. `order` None: it has no place in the order."""

    category: str
    content: str
    order: float | None
    latex: str | None = None
    """LaTeX of a table; None where the file has no such field."""


@dataclass(frozen=True)
class TruePage:
    """A page of the true answer: what is matched as text, and its tables, both in reading order."""

    image: str
    """The image's file name."""
    blocks: tuple[TrueBlock, ...]
    tables: tuple[TrueBlock, ...]


@dataclass(frozen=True)
class GroundTruth:
    """A file of true answers, and which release of the benchmark its number of pages says it is."""

    pages: tuple[TruePage, ...]

    @property
    def release(self) -> str:
        """In words, for every report: a part of a release must not pass for the whole."""
        known = RELEASES.get(len(self.pages))
        if known:
            rules = "; measured by the rules of 1.5: 1.6 matches otherwise" if known == "1.6" else ""
            return f"OmniDocBench {known}, {len(self.pages):,} pages{rules}"
        return (
            f"{len(self.pages):,} pages: no whole release (1.0 has 981 pages, 1.5 has 1,355, 1.6 has 1,651)"
        )


def read_ground_truth(file: Path) -> GroundTruth:
    """The true answers in a file as OmniDocBench.json. Raises TruthError."""
    try:
        content = read_bytes(file, FILE_LIMIT, follow_links=True)
        # The document is a list; what reads strangers' JSON takes objects.
        data = parse_json(b'{"pages":' + content + b"}", any_number=True)["pages"]
        if not isinstance(data, list) or not data:
            raise Refused("not a list of pages as OmniDocBench.json is")
        if len(data) > PAGE_LIMIT:
            raise Refused(f"{len(data):,} pages; at most {PAGE_LIMIT:,} are read")
        pages = tuple(_page(page, number) for number, page in enumerate(data, 1))
        names = [page.image for page in pages]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Refused(f"the image {json.dumps(twice)[:80]} is there twice")
    except Refused as error:
        raise TruthError(f"{file}: {error}; give OmniDocBench.json or a part of its pages") from error
    return GroundTruth(pages)


def _page(data: Any, number: int) -> TruePage:
    try:
        image = PureWindowsPath(PurePosixPath(str(data["page_info"]["image_path"])).name).name
        blocks = list(data["layout_dets"])
        relations = list((data.get("extra") or {}).get("relation") or ())
        if len(blocks) > BLOCK_LIMIT or len(relations) > BLOCK_LIMIT:
            raise Refused(f"page {number}: more than {BLOCK_LIMIT:,} blocks")
        if not image:
            raise Refused(f"page {number}: image_path names no file")
        by_category = _by_category(blocks, relations)
        mixed = [block for name in _MIXED for block in by_category.get(name, ())]
        tables = by_category.get(TABLE, [])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(
            f"page {number}: not as OmniDocBench writes it ({type(error).__name__}: {str(error)[:60]})"
        ) from error
    return TruePage(image, tuple(sorted(mixed, key=_rank)), tuple(sorted(tables, key=_rank)))


def _rank(block: TrueBlock) -> float:
    return block.order or 0


def _by_category(
    blocks: list[Mapping[str, Any]], relations: list[Mapping[str, Any]]
) -> dict[str, list[TrueBlock]]:
    """Blocks by category; those that a relation says are one, cut by the layout, are joined at the end."""
    chains: list[list[Any]] = []
    for relation in relations:
        if relation["relation_type"] != "truncated":
            continue
        pair = [relation["source_anno_id"], relation["target_anno_id"]]
        joined = [chain for chain in chains if pair[0] in chain or pair[1] in chain]
        for chain in joined:  # a block in the middle of three is there twice then, and so is its text
            chain += pair
        if not joined:
            chains.append(pair)
    cut = {member for chain in chains for member in chain}
    found: dict[str, list[TrueBlock]] = {}
    by_id = {}
    for data in blocks:
        block = _block(data)
        if data.get("anno_id") in cut:
            by_id[data["anno_id"]] = block
        else:
            found.setdefault(block.category, []).append(block)
    for chain in chains:
        parts = sorted((by_id[member] for member in chain if member in by_id), key=_rank)
        if parts:
            text = "".join(part.content for part in parts)[:TEXT_LIMIT]
            found.setdefault(parts[0].category, []).append(TrueBlock(parts[0].category, text, parts[0].order))
    return found


def _block(data: Mapping[str, Any]) -> TrueBlock:
    category = str(data["category_type"])
    key = {FORMULA: "latex", TABLE: "html"}.get(category, "text")
    order = data.get("order")
    number = None if order is None else float(order)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"an order is {number}")
    latex = str(data["latex"] or "")[:TEXT_LIMIT] if category == TABLE and "latex" in data else None
    return TrueBlock(category, str(data.get(key) or "")[:TEXT_LIMIT], number, latex)
