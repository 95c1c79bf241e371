"""One spelling for texts that say the same: without markup, width of characters, and blanks.

Markup is HTML, Markdown or LaTeX. Regular expressions here take linear time: texts are a model's.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable

from dsocr_core.reading.formulas import LOWERED, printed

_INLINE = "a abbr b big cite code em font i ins kbd label mark q samp small span strong tt u var"
_WITHIN_LINES = frozenset(_INLINE.split())
_BLOCK = """
    address article aside blockquote body br caption center col colgroup dd div dl dt figcaption figure footer
    form h1 h2 h3 h4 h5 h6 head header hr html img input li main math nav ol option p pre section select sub
    sup table tbody td tfoot th thead title tr ul
"""
_STRUCK_TAG = re.compile(r"</?(?:s|del|strike)(?:\s[^<>]*)?>|(?<!~)~~(?!~)", re.IGNORECASE)
_COMMENT = re.compile(r"<!--[^<>]*-->")
_TAG = re.compile(
    rf"<(/?)({'|'.join((*_INLINE.split(), *_BLOCK.split()))})(?:\s+[a-zA-Z:][^<>]*|\s*/?)(?:>|$)",
    re.IGNORECASE,
)
_START = re.compile(r"\bstart\s*=\s*[\"']?(\d{1,4})")
_RAISED = re.compile(r"<(sup|sub)\s*>([^<>]{1,40})</\1\s*>", re.IGNORECASE)
_ORDINAL = re.compile(r"(?<=\d)\^\{?(?:\\text)?\{?(st|nd|rd|th|er|re|ème)\b\}?\}?")
_LINK = re.compile(r"(?<!!)\[([^\[\]\n]*)\]\((?:https?:|mailto:|www\.|[#/.])[^()\s]*\)")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_NOTE = re.compile(r"\[\^(\w{1,9})\]")

_UNSEEN = re.compile("[\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe0f\ufeff\ue000-\ue003]")
_SUPERSCRIPT = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207f]+")
_SUBSCRIPT = re.compile("[\u2080-\u208e]+")
_SQUARED = re.compile("[\u33a0\u33a1\u33a2\u33a3\u33a4\u33a5\u33a6]")
_FRACTION = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e])")
_LOOKALIKE = str.maketrans(
    dict.fromkeys("‐‑−–‒—―﹣－", "-")
    | dict.fromkeys("’‘‛ʼ‚‹›′", "'")
    | dict.fromkeys("“”„‟«»「」", '"')
    | dict.fromkeys("⋅∙", "·")
    | {"∣": "|", "∶": ":", "∗": "*", "∼": "~", "∥": "‖", "⟶": "→", "∆": "Δ"}
    | {"⁄": "/", "✓": "☑", "✔": "☑", "✅": "☑", "✘": "✗", "❌": "✗", "☒": "☑", "□": "☐", "″": "''", "º": "°"}
)

FORMULA, FORMULA_END = "\ue000", "\ue001"
"""Characters around a formula in a text of `marked`."""
STRUCK, NESTED = "~~", "↳"
"""Stand before and after what is struck out, and before an item of a list within a list."""
_STAR = "\ue003"
"""Stands for the sign * of a formula: no emphasis."""
_DISPLAY = r"(?:equation|align|gather|multline|eqnarray|displaymath|math)\*?\}"
_UP_TO_DELIMITER = rf"[^\\]*+(?:\\(?!(?:begin|end)\{{{_DISPLAY})[^()\[\]][^\\]*+)*+"
_UP_TO_BRACKET = r"[^\\]*+(?:\\[^()\[\]][^\\]*+)*+"
_MATH = re.compile(
    rf"\\\(({_UP_TO_BRACKET})\\\)|\\\[({_UP_TO_BRACKET})\\\]|\$\$([^$]*)\$\$"
    rf"|\\begin\{{{_DISPLAY}({_UP_TO_DELIMITER})\\end\{{{_DISPLAY}"
    r"|(?<![\w$\\])\$(?=\S)(?P<dollars>[^$\n]++(?:\n[^$\n]++)?)(?<=\S)\$(?![\d$])"
    r"|(?<![\w$\\])\$[ \t](?=[^\d\s])(?P<apart>[^$\n]++(?:\n[^$\n]++)?)(?<=[ \t])\$(?![\w$])"
)
_FORMULA = re.compile(r"[\\^_={]")
_NO_FORMULA = re.compile(r"[\d\s.,%°'+±~<>≤≥$€£-]*")
"""Numbers that happen to stand in a formula."""
_WORD = re.compile(r"[^\W\d_]{2}")
_LEFT_OPEN = re.compile(r"\\[()\[\]]|\$\$")
_SPACED_DIGITS = re.compile(r"(?<=[\d.,])(?:[ \t]|\\[,;:! ])+(?=[\d.,])")
_SCRIPT = re.compile(r"(?<=\w)(?:\$|\\\()([_^])(?:(\w)|\{([^{}$]{1,20})\})(?:\$|\\\))")
_LETTER_WITH_INDEX = re.compile(r"(?<!\w)([^\W\d_])\\?_(\w)(?!\w)")
_TIMES = re.compile(r"(?<=\d) ?[xX] ?(?=\d)")
_SEPARATOR = re.compile(r"\{([.,:])\}")

_BULLET = re.compile(r"[ \t]*(?:[-*+•‣◦▪■●○·>]|#{1,6})[ \t]+")
_RULE = re.compile(r"(?m)^[ \t]*(?:[-*_=][ \t]*){3,}$|^[ \t]*(?:```|~~~)\w*[ \t]*$")
_LEADER = re.compile(r"([._])(?: ?\1){2,}")
"""Dots or a line: what leads to the number of a page, or is to be filled in: as long as there is room."""
_WIDE = re.compile(r"(?<=\S)[ \t]{2,}")
_LONG_DASH = re.compile(r"(?<=\w)-{2,3}(?=\w)|(?<=\s)-{2,3}(?=\s)")
_SECONDS = re.compile(r"(?<=\d)('\d\d?(?:[.,]\d{1,3})?)\"")
_SIGNED = re.compile(r"\s*[-+][ \t]+[^\w\s]?\s?\d[\d.,' ]*\s?\S{0,4}\s*")
_LIST_NUMBER = re.compile(
    r"(?m)^([ \t]*)\(?(?:(\d{1,3})[.)](?=[ \t]\S|[^\W\d_])|([a-zA-Z]|[ivxlc]{2,6}|[IVXLC]{2,6})[.)](?=[ \t]))"
)
_BOX_MARK = re.compile(r"\[([ xX])\](?=\s)")
_ROUND_MARK = re.compile(r"(?<!\w)\(([ xX])\)(?=\s)")
"""A box to tick, where one of a text is empty; else (x) numbers a list."""
_HYPHEN = re.compile(
    r"-(?<=[^\W\d_]-)[ \t]*(?:\n[ \t]*|[ \t])(?!(?:and|or|to|und|oder|bis|et|ou|y|o|e|en)\b)"
    r"(?=[^\W\d_A-ZÀ-Þ])"
)
"""A word's end on the next line. The sign comes first: it is found faster than what stands before it."""
_BOLD = re.compile(r"(?<![\w*])(\*\*|__)(?=\S)([^*_\n]{1,400})(?<=\S)\1")
_EMPHASIS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|[`]+")

GROUPS = re.compile(r"\d(?<![\d.,]\d)\d{0,2}(?:[ ']\d{3})+(?![\d])")
_LONG = re.compile(r"(?<![\d.,])(?:[+0]\d\d+(?:(?: | ?[/-] ?)\d+)+|\+?\d+(?: \d+)+)")
_YEARS = re.compile(r"(?:(?:19|20)\d\d ?)+")


def tidy(text: str) -> str:
    """A text without the spelling of its markup: tags, entities, emphasis, bullets, LaTeX."""
    return marked(text).replace(FORMULA, "").replace(FORMULA_END, "")


def marked(text: str) -> str:
    """A tidy text with marks around its formulas."""
    text = _RAISED.sub(lambda mark: f"{'^' if mark[1].lower() == 'sup' else '_'}{{{mark[2]}}}", text)
    text = _where("<~", _STRUCK_TAG, f" {STRUCK} ", _COMMENT.sub(" ", _AUTOLINK.sub(r"\1", text)))
    text = html.unescape(_TAG.sub(_Tags(), text))
    text = _where("^", _ORDINAL, r"\1", _NOTE.sub(r"^{\1}", _where(("](",), _LINK, r"\1", text)))
    text = _where(("  ", "\t"), _WIDE, " ", _same_characters(text))
    text = _where('"', _SECONDS, r"\1''", _where("^_", _SCRIPT, r"\1{\2\3}", text))
    text = _TIMES.sub("×", _where("_", _LETTER_WITH_INDEX, r"\1_{\2}", text))
    text = _without_bullets(_RULE.sub("", _with_formulas(text)))
    text = _where(("--",), _LONG_DASH, "-", _LEADER.sub(r"\1\1\1", text))
    marks = (_BOX_MARK, _ROUND_MARK) if "( )" in text else (_BOX_MARK,)
    for mark in marks:
        text = mark.sub(lambda found: "☐" if found[1] == " " else "☑", text)
    text = _LIST_NUMBER.sub(_of_list_number, text)
    text = _HYPHEN.sub("", text)
    text = _where("*_`", _EMPHASIS, "", _where("*_", _BOLD, r"\2", text)).strip()
    return text.replace(LOWERED, "_").replace(_STAR, "*")


def _where(signs: Iterable[str], pattern: re.Pattern[str], by: str, text: str) -> str:
    """Replace, where one of the signs is there that every match has: a page of prose has none of most."""
    return pattern.sub(by, text) if any(sign in text for sign in signs) else text


def joined(text: str) -> str:
    """A tidy text without blanks, but for those that hold two numbers apart."""
    text = " ".join(text.replace(FORMULA, "").replace(FORMULA_END, "").split())
    text = _LONG.sub(_one_number, GROUPS.sub(lambda found: found[0].replace(" ", ""), text))
    return re.sub(r" (?!(?<=\d )\d)", "", text)


def _one_number(found: re.Match[str]) -> str:
    """A telephone or account number without its blanks; other numbers beside each other as they are."""
    groups, digits = found[0].split(), sum(map(str.isdigit, found[0]))
    several = len(groups) > 2 or groups[0][0] in "+0"
    return "".join(groups) if digits > 6 and several and not _YEARS.fullmatch(found[0]) else found[0]


class _Tags:
    """Blanks, line breaks and list numbers for tags, in their order."""

    def __init__(self) -> None:
        self._next: list[int | None] = []
        """Number of the next item of each open list; None in one without numbers."""

    def __call__(self, tag: re.Match[str]) -> str:
        name = tag[2].lower()
        if name in _WITHIN_LINES:
            return ""
        if name in ("ol", "ul"):
            if not tag[1]:
                start = _START.search(tag[0])
                self._next.append((int(start[1]) if start else 1) if name == "ol" else None)
            elif self._next:
                self._next.pop()
        elif name == "li" and not tag[1]:
            number = self._next[-1] if self._next else None
            indent = "\n" + "  " * min(len(self._next) - 1, 9)
            if number is None:
                return f"{indent}- "
            self._next[-1] = number + 1
            return f"{indent}{number}. "
        return " \n"


def _without_bullets(text: str) -> str:
    """Lines without bullets and headings, those of a list within a list marked.

    Before a number on a line with no list around it - is a sign.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    radio = "○" in text and "●" in text  # chosen or not
    bullets = [None if radio and line.lstrip()[0] in "○●" else _BULLET.match(line) for line in lines]
    bullets = [None, *bullets, None]
    indents = [_indent(bullet) for bullet in bullets]
    if lines and indents[1] is not None:  # blanks before a text are cut off
        indents[1] = min((indent for indent in indents[2:] if indent is not None), default=0)
    outer: list[int] = []
    for i, line in enumerate(lines):
        bullet = bullets[i + 1]
        if bullet and not (
            _SIGNED.fullmatch(line[:40]) and len(line) < 40 and bullets[i] is bullets[i + 2] is None
        ):
            indent, line = indents[i + 1], line[bullet.end() :]
            bare = line.rstrip(" \t").rstrip("#")  # a heading may be closed: ## Scope ##
            lines[i] = bare if "#" in bullet[0] and bare.endswith(" ") else line
            if indent is not None:
                while outer and indent < outer[-1] + 2:
                    outer.pop()
                lines[i] = f"{NESTED} " * min(len(outer), 9) + lines[i]
                outer.append(indent)
            elif "#" in bullet[0]:
                outer.clear()
    return "\n".join(lines)


def _indent(bullet: re.Match[str] | None) -> int | None:
    """Columns before the bullet of a list; None for a heading, a quotation and no bullet."""
    if not bullet or bullet[0].strip()[0] in "#>":
        return None
    before = bullet[0].expandtabs(4)
    return len(before) - len(before.lstrip())


def _of_list_number(found: re.Match[str]) -> str:
    number = found[2] or found[3]
    number = number.upper() if len(number) > 1 else number
    return f"{found[1]}{number}. "


def _same_characters(text: str) -> str:
    """Characters that differ in width, composition or code alone made one; raised ones as markup."""
    if text.isascii():
        return text
    text = _UNSEEN.sub("", text.translate(_LOOKALIKE))
    text = _SQUARED.sub(lambda found: re.sub(r"(\d)$", r"^\1", unicodedata.normalize("NFKC", found[0])), text)
    text = _SUPERSCRIPT.sub(lambda found: f"^{{{unicodedata.normalize('NFKC', found[0])}}}", text)
    text = _SUBSCRIPT.sub(lambda found: f"_{{{unicodedata.normalize('NFKC', found[0])}}}", text)
    text = _FRACTION.sub(lambda found: f"{found[1]} {unicodedata.normalize('NFKC', found[2])}", text)
    return unicodedata.normalize("NFKC", text).translate(_LOOKALIKE)


def _with_formulas(text: str) -> str:
    """LaTeX by what it prints, formulas between marks."""
    if "$" not in text and "\\" not in text:
        return printed(text)
    parts, at = [], 0
    for found in _MATH.finditer(text):
        content = next(group for group in found.groups() if group is not None)
        amounts = found["apart"] is not None or (found["dollars"] is not None and _WORD.search(content))
        if amounts and not _FORMULA.search(content):
            continue  # two amounts in dollars with words between
        content = _SPACED_DIGITS.sub("", _SEPARATOR.sub(r"\1", content)).replace("~", " ")
        content = " ".join(printed(content, math=True).split())  # + at a line's start is no bullet
        content = content.replace("′", "'").replace("*", _STAR).replace("_", LOWERED)
        marks = ("", "") if _NO_FORMULA.fullmatch(content) else (FORMULA, FORMULA_END)
        parts += [printed(_LEFT_OPEN.sub(" ", text[at : found.start()])), f" {marks[0]}{content}{marks[1]} "]
        at = found.end()
    return "".join((*parts, printed(_LEFT_OPEN.sub(" ", text[at:]))))
