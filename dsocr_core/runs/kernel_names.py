"""Kernels' names as profilers show them: compared without spelling, and short but distinct in lists."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

_CASTS = re.compile(r"\((?:bool|int|unsigned|long|char|short|[a-z_]+_t| )+\)")
_UNNAMED = re.compile(r"\(anonymous namespace\)::|(?<!\w)<unnamed>::|\bunnamed>::")
"""Unnamed namespaces, of which Nsight Compute prints some as `unnamed>::`."""
_SPELLING = re.compile(r"\b(?:const|void)\b|\w+>?::|[\s\[\]:]+")
_BRACKETS = re.compile(r"<[^<>()]*>|\([^()]*\)")
_AFTER = re.compile(r"(\s+(const|volatile|noexcept)|\s*&+|\s*\[[^\]]*\])+$")
_PART = re.compile(r"\d{1,4}")
_LONGEST = 4_000


def plain_name(name: str) -> str:
    """A kernel's name as Nsight Systems and Nsight Compute both spell it: no namespaces, casts, spaces."""
    return _SPELLING.sub("", _CASTS.sub("", _UNNAMED.sub("", name)))


def kernel_names(fulls: Sequence[str]) -> list[str]:
    """Base names; where different kernels share one, with its template, then its arguments, else whole."""
    parts = {full: _parts(full) for full in dict.fromkeys(fulls)}
    shown: dict[str, str] = {}
    for count in (1, 2, 3):
        names = {full: "".join(part[:count]) for full, part in parts.items() if full not in shown}
        kernels: dict[str, set[str]] = defaultdict(set)
        for full, name in names.items():
            kernels[name].add(plain_name(full))
        shown |= {full: name for full, name in names.items() if len(kernels[name]) == 1}
    return [shown.get(full, full) for full in fulls]


def _parts(full: str) -> tuple[str, ...]:
    """Base, template and arguments of a name."""
    name = _CASTS.sub("", _UNNAMED.sub("", full[:_LONGEST])).removeprefix("void ")
    if name.startswith("_Z"):
        return (_mangled(name),)
    outer, before = name, ""
    while outer != before:
        before, outer = outer, _BRACKETS.sub("", outer)
    base = _AFTER.sub("", outer).rpartition("::")[2].rpartition(" ")[2]
    found = re.search(rf"(?:^|[\s:]){re.escape(base)}(<.*>)?(\(.*)?$", name) if base else None
    return (base, found[1] or "", found[2] or "") if found else (base or full,)


def _mangled(name: str) -> str:
    """The last identifier of a name as compilers write it: `saxpy` of _Z5saxpyPf; else the name."""
    at, found = 3 if name.startswith("_ZN") else 2, name
    while match := _PART.match(name, at):
        at = match.end() + int(match[0])
        found = name[match.end() : at] or found
        if not name.startswith("_ZN"):
            break
    return found
