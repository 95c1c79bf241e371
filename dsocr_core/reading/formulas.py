"""Printed form of LaTeX, as one line of characters: fractions, roots, letters' signs, matrices.

One pass over the text, so linear in its length. Text that is no LaTeX stays as it is.
"""

from __future__ import annotations

import re
import unicodedata

_DEEPEST = 40
"""Groups within groups; what lies deeper is read as if it had no braces."""
_IN_PROSE = re.compile(r"[\\{}]|[\^_](?=[{\\])")
_IN_MATH = re.compile(r"[\\{}^_'&]")
_NAME = re.compile(r"([a-zA-Z]+)\*?")
_SIGNED_DIGITS = re.compile(r"\s*([-+]?\d+)")
_BLANKS = re.compile(r"\s*")
_OPTION = re.compile(r"\s*\[([^\[\]{}]{0,20})\]")
_LAST_ROW = re.compile(r"\s*(?:\\hline\s*)*\\end\b")
_ROW_GAP = re.compile(r"\[-?[\d.]+\s*(?:pt|em|ex|mm|cm)\]")
_SIMPLE = re.compile(r"[-+]?(?:\d[\d.,]*|\w)|[*+-]")
"""A script that needs no brackets."""
_INDEX = re.compile(r"\d+|\w")
"""A lowered script that is written as if it were not: H2O."""
_ATOM = re.compile(r"[\d.,]+|\w|√?\d+")
_GROUP_OF_GROUP = re.compile(r"\s*(\{[^{}]{0,40}\{[^{}]{0,40}\}\s*\})")
_FONT_WORD = re.compile(r"\s*\\(?:text|math)[a-z]*\s*\{\s*\w+\s*\}\s*")
LOWERED = "\ue002"
"""Stands for the sign _ before what is lowered: no emphasis."""
_PUNCTUATION = "!\"#$%&'*+,-./:;<=>?@^_`{|}~"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(text: str) -> dict[str, str]:
    """Commands and the character before them, a line each, as plain text would have it."""
    lines = (line.split() for line in text.strip().splitlines())
    return {name: unicodedata.normalize("NFKC", sign) for sign, *names in lines for name in names}


_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lamda mu nu xi omicron pi rho sigma tau "
    "upsilon phi chi psi omega"
)
_SIGNS = {
    f"{form}{name if case == 'SMALL' else name.title()}": unicodedata.lookup(f"GREEK {case} LETTER {name}")
    for name in _GREEK.split()
    for case in ("SMALL", "CAPITAL")
    for form in ("", "var")
} | _table("""
    λ lambda
    Λ Lambda
    ± pm
    ∓ mp
    × times
    · cdot centerdot
    ÷ div
    ≤ le leq leqslant
    ≥ ge geq geqslant
    < lt
    > gt
    ≪ ll
    ≫ gg
    ≈ approx
    ~ sim thicksim
    ≃ simeq
    ≅ cong
    ≡ equiv
    ∝ propto
    ≠ ne neq
    ∞ infty
    → to rightarrow longrightarrow
    ← gets leftarrow longleftarrow
    ↔ leftrightarrow
    ⇒ Rightarrow Longrightarrow implies
    ⇐ Leftarrow
    ⇔ Leftrightarrow Longleftrightarrow iff
    ↦ mapsto
    ↑ uparrow
    ↓ downarrow
    ⇌ rightleftharpoons
    ∈ in
    ∉ notin
    ∋ ni owns
    ⊂ subset
    ⊆ subseteq
    ⊃ supset
    ⊇ supseteq
    ∪ cup
    ∩ cap
    ⋃ bigcup
    ⋂ bigcap
    ∅ emptyset varnothing
    ∀ forall
    ∃ exists
    ∄ nexists
    ¬ neg lnot
    ∧ land wedge
    ∨ lor vee
    ⊕ oplus
    ⊗ otimes
    ∂ partial
    ∇ nabla
    ∑ sum
    ∏ prod
    ∫ int
    ∬ iint
    ∭ iiint
    ∮ oint
    ⊥ perp bot
    ‖ parallel Vert lVert rVert
    | mid vert lvert rvert
    ⟨ langle
    ⟩ rangle
    { lbrace
    } rbrace
    [ lbrack
    ] rbrack
    ⌊ lfloor
    ⌋ rfloor
    ⌈ lceil
    ⌉ rceil
    … ldots dots cdots dotsc dotsb
    ⋮ vdots
    ⋱ ddots
    * ast
    ⋆ star
    • bullet
    ° degree
    ' prime
    ℓ ell
    ℏ hbar
    ∠ angle
    △ triangle
    ☐ square Box
    ☑ checkmark
    ∴ therefore
    ∵ because
    † dagger
    ‡ ddagger
    § S
    ¶ P
    © copyright
    £ pounds
    € euro
    : colon
    / slash
    % percent
""")
_FUNCTIONS = _names("""
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim limsup liminf max min sup
    inf det dim arg gcd deg ker hom Pr mod Re Im
""")
_ABOVE = dict.fromkeys(("hat", "widehat"), "\u0302") | dict.fromkeys(("bar", "overline"), "\u0304") | {
    "vec": "\u20d7", "overrightarrow": "\u20d7", "tilde": "\u0303", "widetilde": "\u0303", "dot": "\u0307",
    "ddot": "\u0308", "check": "\u030c", "breve": "\u0306", "acute": "\u0301", "grave": "\u0300",
    "mathring": "\u030a",
}  # fmt: skip
_FRACTIONS = frozenset(("frac", "dfrac", "tfrac", "cfrac"))
_BLANK = frozenset(("quad", "qquad", "thinspace", "enspace", "space", "hfill", "newline", "par", "hline"))
_UNSEEN = _names("""
    left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm middle displaystyle
    textstyle scriptstyle limits nolimits nonumber notag centering noindent rm bf it sf tt cal
""")
_FONTS = _names("""
    operatorname emph mbox hbox bm boldsymbol pmb boxed fbox underline underbrace overbrace ensuremath section
    subsection subsubsection paragraph title caption url ce num unit si SI qty
""")
_DROPPED = frozenset(("label", "hspace", "vspace", "phantom", "vphantom", "hphantom", "color", "cline"))
_BRACKETS = {
    "matrix": ("", ""), "smallmatrix": ("", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]"),
    "Bmatrix": ("{", "}"), "vmatrix": ("|", "|"), "Vmatrix": ("‖", "‖"), "cases": ("{", ""),
    "array": ("", ""), "tabular": ("", ""),
}  # fmt: skip


def printed(text: str, math: bool = False) -> str:
    """Give what a text with LaTeX prints; `math` where all of it is a formula."""
    return _Reader(text, math).run()


class _Reader:
    def __init__(self, text: str, math: bool) -> None:
        self.text, self.math, self.at = text, math, 0
        self.closings: list[str | None] = []
        """Closings of the open environments; None for one without columns."""

    @property
    def in_columns(self) -> bool:
        return bool(self.closings) and self.closings[-1] is not None

    def run(self, depth: int = 0) -> str:
        """Print up to the brace that closes the group, or to the end."""
        out: list[str] = []
        while found := (_IN_MATH if self.math or self.in_columns else _IN_PROSE).search(self.text, self.at):
            if found.start() > self.at:
                out.append(self.text[self.at : found.start()])
            self.at = found.start()
            if found[0] == "}" and depth:
                return "".join(out)
            self.at += 1
            if piece := self._piece(found[0], out, depth):
                out.append(piece)
        out.append(self.text[self.at :])
        self.at = len(self.text)
        return "".join(out)

    def _piece(self, sign: str, out: list[str], depth: int) -> str:
        if sign == "\\":
            return self._command(out, depth)
        if sign in "^_'":
            return self._scripts(sign, out[-1] if out else "", depth)
        if sign == "{":
            if depth >= _DEEPEST:
                return "" if self.math else "{"
            content, closed = self._group(depth)
            return content if self.math else f"{{{content}{'}' if closed else ''}"
        if sign == "&":
            return "," if self.in_columns else ""
        return "" if self.math else sign

    def _group(self, depth: int) -> tuple[str, bool]:
        content = self.run(depth + 1)
        closed = self.text.startswith("}", self.at)
        self.at += closed
        return content, closed

    def _argument(self, depth: int) -> str:
        """Argument of a command: a group, a command, a character."""
        self._skip(_BLANKS)
        if depth >= _DEEPEST or self.at >= len(self.text):
            return ""
        sign = self.text[self.at]
        if sign == "}":
            return ""
        self.at += 1
        if sign == "{":
            return self._group(depth)[0].strip()
        return self._command([], depth + 1) if sign == "\\" else sign

    def _skip(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    # --- letters raised and lowered ---------------------------------------------------------------

    def _scripts(self, sign: str, before: str, depth: int) -> str:
        """Both scripts of a letter, in whatever order: the lowered one first."""
        scripts = {"^": "", "_": "", "'": ""}
        while True:
            scripts[sign] += "'" if sign == "'" else self._script(depth)
            following = _BLANKS.match(self.text, self.at)
            at = following.end() if following and self.math else self.at
            found = (_IN_MATH if self.math else _IN_PROSE).match(self.text, at)
            if not found or found[0] not in scripts:
                break
            sign, self.at = found[0], at + 1
        raised, lowered = scripts["^"].replace("'", ""), scripts["_"]
        text = "'" * (len(scripts["'"]) + scripts["^"].count("'"))
        if lowered:
            name = before[-8:].split()[-1:]
            index = before[-1:].isalpha() and _FUNCTIONS.isdisjoint(name) and _INDEX.fullmatch(lowered)
            text = f"{'' if index else LOWERED}{_bracketed(lowered)}{text}"
        if raised in ("°", "∘"):
            text += "°"
        elif raised:
            text += f"^{_bracketed(raised)}"
        apart = text[-1:].isdigit() and self.text[self.at : self.at + 1].isdigit()
        return f"{text} " if apart else text

    def _script(self, depth: int) -> str:
        digits = self._skip(_SIGNED_DIGITS) if self.math else None
        return digits[1] if digits else "".join(self._argument(depth).split())

    # --- commands -----------------------------------------------------------------------------------

    def _command(self, out: list[str], depth: int) -> str:
        found = self._skip(_NAME)
        if not found:
            sign = self.text[self.at : self.at + 1]
            self.at += 1
            return self._escaped(sign)
        name = found[1]
        if name == "circ":
            return "°" if out and out[-1].rstrip()[-1:].isdigit() else "∘"
        if name in _SIGNS:
            return _SIGNS[name]
        if name in _FUNCTIONS:
            return name
        if name == "bmod":
            return "mod"
        if name in _BLANK:
            return " "
        if name in _UNSEEN:
            if name in ("left", "right") and self.text.startswith(".", self.at):
                self.at += 1
            return ""
        if name in ("over", "choose") and depth < _DEEPEST:
            parts = "".join(out), self.run(depth + 1)
            out.clear()
            above, below = ("".join(part.split()) for part in parts)
            if name == "choose":
                return f"binom({above},{below})"
            return f" {_bracketed(above, _ATOM)}/{_bracketed(below, _ATOM)} "
        if name in ("begin", "end"):
            return self._environment(name, depth)
        return self._with_arguments(name, found[0], depth)

    def _escaped(self, sign: str) -> str:
        if sign == "\\":
            self._skip(_ROW_GAP)
            return "\n" if not self.in_columns else "" if _LAST_ROW.match(self.text, self.at) else ";"
        if sign == "|" and self.math:
            return "‖"
        if sign == "!" and self.math:
            return ""
        if sign in " \n" or (sign in ",;:" and (self.math or not sign.strip())):
            return " "
        return sign if sign and sign in _PUNCTUATION else "\\" + sign

    def _with_arguments(self, name: str, written: str, depth: int) -> str:
        if depth >= _DEEPEST:
            return ""
        if name in _FRACTIONS:
            above, below = self._part(depth), self._part(depth)
            return f" {above}/{below} "
        if name == "sqrt":
            option = self._skip(_OPTION)
            root = f"√[{option[1].strip()}]" if option else "√"
            return root + _bracketed(self._argument(depth), _ATOM)
        if name in _ABOVE:
            content = self._argument(depth)
            content = content if len(content) == 1 else f"({content})"
            return unicodedata.normalize("NFC", content + _ABOVE[name])
        if name in ("binom", "dbinom", "tbinom"):
            return f"binom({self._argument(depth)},{self._argument(depth)})"
        if name == "not":
            return unicodedata.normalize("NFC", self._argument(depth) + "\u0338")
        if name in ("underset", "overset", "stackrel"):
            script, base = self._argument(depth), self._argument(depth)
            return f"{base}{LOWERED if name == 'underset' else '^'}{_bracketed(script)}"
        if name == "tag":
            return f" ({self._argument(depth)}) "
        if name == "pmod":
            return f"(mod {self._argument(depth)})"
        if name == "item":
            return "\n- "
        if name in _DROPPED:
            self._argument(depth)
            return ""
        if name in ("textcolor", "colorbox"):
            self._argument(depth)
            return self._argument(depth)
        braced = self.text.startswith("{", self.at) or self.text.startswith(" {", self.at)
        if (name.startswith(("text", "math")) or name in _FONTS) and (braced or self.math):
            return self._font(depth) if braced else self._argument(depth)
        return "\\" + written

    def _font(self, depth: int) -> str:
        """The text of a font, with its blanks."""
        self.at = self.text.index("{", self.at) + 1
        return self._group(depth)[0]

    def _part(self, depth: int) -> str:
        """Above or below the line of a fraction: in brackets unless it is one thing."""
        one = _FONT_WORD.fullmatch(raw[1:-1]) if (raw := self._raw_group()) else None
        content = "".join(self._argument(depth).split(" "))
        return content if one else _bracketed(content, _ATOM)

    def _raw_group(self) -> str:
        found = _GROUP_OF_GROUP.match(self.text, self.at)
        return found[1] if found else ""

    def _environment(self, which: str, depth: int) -> str:
        name = self._argument(depth)
        base = name.rstrip("*")
        if which == "end":
            return (self.closings.pop() or "") if self.closings else ""
        columns = 2
        if base in ("array", "tabular"):
            self._skip(_OPTION)
            columns = sum(map(str.isalpha, self._argument(depth)))
        opening, closing = _BRACKETS.get(base, ("", ""))
        self.closings.append(closing if base in _BRACKETS and columns > 1 else None)
        return opening


def _bracketed(content: str, simple: re.Pattern[str] = _SIMPLE) -> str:
    return content if simple.fullmatch(content) else f"({content})"
