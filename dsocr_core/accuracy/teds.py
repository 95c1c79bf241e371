"""TEDS: how like two tables are, by the edit distance of their HTML as trees (arXiv 1911.10683).

1 less the least cost of turning one tree into the other, per node of the larger one. A node costs 1 to
insert, to delete, or to rename to another tag or span; a cell's content costs its edit distance, 0..1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dsocr_core.accuracy.distances import distance
from dsocr_core.base.errors import DsocrError

MOST_NODES = 4000
"""Nodes of a table; the time grows with their square at best."""
_MOST_PAIRS = 2_000_000
"""Nodes of one table times nodes of the other: two minutes or so."""


class TooLarge(DsocrError):
    """Two tables that are not compared."""


@dataclass
class _Node:
    tag: str
    span: tuple[int, int] | None = None
    """(columns, rows) of a cell."""
    content: list[str] = field(default_factory=list)
    """Characters and tags of a cell."""
    children: list[_Node] = field(default_factory=list)


def teds(true: str, written: str, structure_only: bool = False) -> float:
    """The similarity of two tables in the benchmark's normal form, 0..1 (it may be below 0, as published).

    0 where either is empty or no table, or has a span that is no number. Raises TooLarge.
    """
    if not true or not written:
        return 0.0
    try:
        (tree, nodes), (other, others) = _tree(true, structure_only), _tree(written, structure_only)
    except (ValueError, RecursionError):
        return 0.0
    most = max(nodes, others)
    if most > MOST_NODES or nodes * others > _MOST_PAIRS:
        raise TooLarge(f"tables of {nodes:,} and {others:,} nodes are too large to be compared")
    if not most:
        return 0.0
    from apted import APTED

    try:
        cost = APTED(other, tree, _costs()).compute_edit_distance()
    except RecursionError:
        return 0.0
    return 1.0 - float(cost) / most


def _costs() -> Any:
    from apted import Config

    class Costs(Config):  # type: ignore[misc]
        """Cost of a rename; insertions and deletions cost 1."""

        def rename(self, node1: _Node, node2: _Node) -> float:
            if node1.tag != node2.tag or node1.span != node2.span:
                return 1.0
            return distance(node1.content, node2.content) if node1.tag == "td" else 0.0

        def children(self, node: _Node) -> list[_Node]:
            return node.children

    return Costs()


def _tree(markup: str, structure_only: bool) -> tuple[_Node, int]:
    """The first table of a document, and its number of elements below it. Raises ValueError without one."""
    from lxml import etree, html

    parser = html.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    try:
        document = html.document_fromstring(markup.encode("utf-8"), parser=parser)
    except etree.LxmlError as error:
        raise ValueError("no HTML") from error
    tables = document.xpath("body/table")
    if not tables:
        raise ValueError("no table")
    return _node(tables[0], structure_only), len(tables[0].xpath(".//*"))


def _node(element: Any, structure_only: bool) -> _Node:
    if element.tag != "td":
        return _Node(str(element.tag), children=[_node(child, structure_only) for child in element])
    span = int(element.get("colspan", "1")), int(element.get("rowspan", "1"))
    return _Node("td", span, [] if structure_only else _content(element)[1:-1])


def _content(element: Any) -> list[str]:
    """An element's characters, with its own tags and those inside it."""
    tokens = [f"<{element.tag}>", *(element.text or "")]
    for child in element:
        tokens += _content(child)
    tokens.append(f"</{element.tag}>")
    if element.tag != "td":
        tokens += element.tail or ""
    return tokens
