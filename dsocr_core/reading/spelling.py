"""One spelling for texts that say the same: without markup, width of characters, and blanks.

Markup is HTML, Markdown or LaTeX. Regular expressions here take linear time: texts are a model's.
"""

from __future__ import annotations

import html
import re
import unicodedata

_INLINE = "a abbr b big cite code del em font i ins kbd label mark q s samp small span strike strong tt u var"
_BLOCK = """
    address article aside blockquote body br caption center col colgroup dd div dl dt figcaption figure footer
    form h1 h2 h3 h4 h5 h6 head header hr html img input li main math nav ol option p pre section select sub
    sup table tbody td tfoot th thead title tr ul
"""
_COMMENT = re.compile(r"<!--[^<>]*-->")
_TAG = re.compile(
    rf"<(/?)({'|'.join((*_INLINE.split(), *_BLOCK.split()))})(?:\s+[a-zA-Z:][^<>]*|\s*/?)(?:>|$)",
    re.IGNORECASE,
)
_RAISED = re.compile(r"<(sup|sub)\s*>([^<>]{1,40})</\1\s*>", re.IGNORECASE)
_ORDINAL = re.compile(r"(?<=\d)\^\{?(?:\\text)?\{?(st|nd|rd|th|er|re|ème)\b\}?\}?")
_LINK = re.compile(r"(?<!!)\[([^\[\]\n]*)\]\((?:https?:|mailto:|www\.|[#/.])[^()\s]*\)")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_NOTE = re.compile(r"\[\^(\w{1,9})\]")

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_SUPERSCRIPT = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207f]+")
_SUBSCRIPT = re.compile("[\u2080-\u208e]+")
_SQUARED = re.compile("[\u33a0\u33a1\u33a2\u33a3\u33a4\u33a5\u33a6]")
_FRACTION = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e])")
_LOOKALIKE = str.maketrans(
    dict.fromkeys("‐‑−–‒—―﹣－", "-")
    | dict.fromkeys("’‘‛ʼ", "'")
    | dict.fromkeys("“”„‟", '"')
    | {"⁄": "/", "✓": "☑", "✔": "☑", "□": "☐"}
)

_UP_TO_DELIMITER = r"[^\\]*+(?:\\[^()\[\]][^\\]*+)*+"
_MATH = re.compile(
    rf"\\\(({_UP_TO_DELIMITER})\\\)|\\\[({_UP_TO_DELIMITER})\\\]|\$\$([^$]*)\$\$"
    r"|(?<![\w$\\])\$(?=\S)(?P<dollars>[^$\n]++)(?<=\S)\$(?![\d$])"
)
_FORMULA = re.compile(r"[\\^_={]")
_WORD = re.compile(r"[^\W\d_]{2}")
_LEFT_OPEN = re.compile(r"\\[()\[\]]|\$\$")
_FONT = re.compile(r"([a-zA-Z]?)\\(?:text[a-z]*|math[a-z]+|operatorname|emph)\s*\{([^{}]*)\}")
_SET = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![a-zA-Z])"
    r"|\\(?:begin|end)\{[^{}]*\}(?:\{[clr|]*\})?|\\\\"
)
_SPACE = re.compile(r"\\(?:[,;:! ]|q?quad\b)|(?<=[\w.)])~(?=[\w(])")
_SIGN_OF = {
    "pm": "±", "times": "×", "cdot": "·", "div": "÷", "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥",
    "geq": "≥", "geqslant": "≥", "lt": "<", "gt": ">", "approx": "≈", "sim": "~", "degree": "°", "neq": "≠",
    "ne": "≠", "infty": "∞", "to": "→", "rightarrow": "→", "sqrt": "√", "mu": "μ", "Omega": "Ω", "Delta": "Δ",
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ",
    "lambda": "λ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
    "chi": "χ", "psi": "ψ", "omega": "ω",
}  # fmt: skip
_SIGN = re.compile(rf"\\({'|'.join(sorted(_SIGN_OF, key=len, reverse=True))})(?![a-zA-Z])")
_DEGREE = re.compile(r"\^\s*(?:\{\s*)?\\circ(?:\s*\})?|\\circ\b")
_SPACED_DIGITS = re.compile(r"(?<=[\d.,])[ \t]+(?=[\d.,])")
_QUOTIENT = re.compile(r"(\d?)\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}(\d?)")
_SMALL_QUOTIENT = re.compile(r"(\d?)\\[dtc]?frac\s*(\d)\s*(\d)")
_LOWERED = re.compile(r"(?<=[^\W\d_])_\{(\w{1,20})\}(\d?)")
_SCRIPT = re.compile(r"(?<=\w)\$([_^])(?:(\w)|\{([^{}$]{1,20})\})\$")
_LETTER_WITH_INDEX = re.compile(r"(?<!\w)([^\W\d_])\\?_(\w)(?!\w)")
_TIMES = re.compile(r"(?<=\d) ?[xX] ?(?=\d)")
_LOWERED_ONE = re.compile(r"(?<=[^\W\d_])_(\w)")
_RAISED_GROUP = re.compile(r"([_^])\{([^{}]{1,40})\}(\d?)")
_ROOT = re.compile(r"√\s*\{([^{}]*)\}")
_SEPARATOR = re.compile(r"\{([.,:])\}")
_ESCAPE = re.compile(r"\\([%$&_#|*~`{}.+>-])")

_BULLET = re.compile(r"[ \t]*(?:[-*+•‣◦▪■●○·>]|#{1,6})[ \t]+")
_RULE = re.compile(r"(?m)^[ \t]*(?:[-*_=][ \t]*){3,}$|^[ \t]*```\w*[ \t]*$")
_SIGNED = re.compile(r"\s*[-+][ \t]+[^\w\s]?\s?\d[\d.,' ]*\s?\S{0,4}\s*")
_LIST_NUMBER = re.compile(r"(?m)^([ \t]*)\(?(\d{1,3}|[a-zA-Z]|[ivxlc]{2,6}|[IVXLC]{2,6})[.)](?=[ \t])")
_BOX_MARK = re.compile(r"\[([ xX])\](?=\s)")
_BOLD = re.compile(r"(?<![\w*])(\*\*|__)(?=\S)([^*_\n]{1,400})(?<=\S)\1")
_EMPHASIS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|[`]+")

GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:[ ']\d{3})+(?![\d])")
_LONG = re.compile(r"(?<![\d.,])(?:[+0]\d\d+(?:(?: | ?[/-] ?)\d+)+|\+?\d+(?: \d+)+)")
_YEARS = re.compile(r"(?:(?:19|20)\d\d ?)+")


def tidy(text: str) -> str:
    """A text without the spelling of its markup: tags, entities, emphasis, bullets, LaTeX."""
    text = _RAISED.sub(lambda mark: f"{'^' if mark[1].lower() == 'sup' else '_'}{{{mark[2]}}}", text)
    text = html.unescape(_TAG.sub(_of_tag, _COMMENT.sub(" ", _AUTOLINK.sub(r"\1", text))))
    text = _ORDINAL.sub(r"\1", _NOTE.sub(r"^{\1}", _LINK.sub(r"\1", text)))
    text = _SCRIPT.sub(r"\1{\2\3}", _same_characters(text))
    text = _TIMES.sub("×", _LETTER_WITH_INDEX.sub(r"\1_{\2}", text))
    text = _LEFT_OPEN.sub(" ", _MATH.sub(_of_math, text))
    text = _without_commands(text)
    text = _without_bullets(_RULE.sub("", text))
    text = _BOX_MARK.sub(lambda mark: "☐" if mark[1] == " " else "☑", text)
    text = _LIST_NUMBER.sub(_of_list_number, text)
    return _EMPHASIS.sub("", _BOLD.sub(r"\2", text)).strip()


def joined(text: str) -> str:
    """A tidy text without blanks, but for those that hold two numbers apart."""
    text = GROUPS.sub(lambda found: found[0].replace(" ", ""), " ".join(text.split()))
    text = _LONG.sub(_one_number, text)
    return re.sub(r"(?<!\d) | (?!\d)", "", text)


def _one_number(found: re.Match[str]) -> str:
    """A telephone or account number without its blanks; other numbers beside each other as they are."""
    groups, digits = found[0].split(), sum(map(str.isdigit, found[0]))
    several = len(groups) > 2 or groups[0][0] in "+0"
    return "".join(groups) if digits > 6 and several and not _YEARS.fullmatch(found[0]) else found[0]


def _of_tag(tag: re.Match[str]) -> str:
    return (
        ""
        if tag[2].lower() in _INLINE.split()
        else "\n- "
        if tag[2].lower() == "li" and not tag[1]
        else " \n"
    )


def _without_bullets(text: str) -> str:
    """Lines without bullets and headings. Before a number on a line with no list around it - is a sign."""
    lines = [line for line in text.split("\n") if line.strip()]
    bullets = [None, *map(_BULLET.match, lines), None]
    for i, line in enumerate(lines):
        bullet = bullets[i + 1]
        if bullet and not (
            _SIGNED.fullmatch(line[:40]) and len(line) < 40 and bullets[i] is bullets[i + 2] is None
        ):
            lines[i] = line[bullet.end() :]
    return "\n".join(lines)


def _of_list_number(found: re.Match[str]) -> str:
    number = found[2].upper() if len(found[2]) > 1 else found[2]
    return f"{found[1]}{number} "


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


def _of_font(found: re.Match[str]) -> str:
    return f"{found[1]} {found[2]}" if found[1] else found[2]  # the name of a command ends before it


def _of_math(found: re.Match[str]) -> str:
    content = next(group for group in found.groups() if group is not None)
    if found["dollars"] is not None and _WORD.search(content) and not _FORMULA.search(content):
        return found[0]  # two amounts in dollars with words between
    content = _SPACE.sub(" ", _SEPARATOR.sub(r"\1", _FONT.sub(_of_font, content)))
    content = _LOWERED_ONE.sub(r"_{\1}", _SPACED_DIGITS.sub("", content))
    return f" {_without_commands(content)} "


def _without_commands(text: str) -> str:
    """LaTeX by what it prints: signs, fractions, letters raised and lowered."""
    if "\\" in text:
        text = _SPACE.sub(" ", _DEGREE.sub("°", text))
        text = _SIGN.sub(lambda found: _SIGN_OF[found[1]], text)
        text = _SMALL_QUOTIENT.sub(r"\1 \2/\3 ", _QUOTIENT.sub(_of_quotient, text))
        text = _ROOT.sub(r"√\1", text)
        text = _ESCAPE.sub(r"\1", _SET.sub(" ", _FONT.sub(_of_font, text)))
    text = _LOWERED.sub(lambda found: found[1] + _apart(found[2]), text)
    return _RAISED_GROUP.sub(lambda found: found[1] + "".join(found[2].split()) + _apart(found[3]), text)


def _apart(digit: str) -> str:
    """Part what follows a raised number from its digits."""
    return f" {digit}" if digit else ""


def _of_quotient(found: re.Match[str]) -> str:
    above, below = (
        f"({part.strip()})" if re.search(r"[-+\s]", part.strip()) else part.strip()
        for part in found.group(2, 3)
    )
    return f"{found[1]} {above}/{below} {found[4]}"
