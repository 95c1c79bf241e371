"""A page run without a browser, by its link."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from streamlit.testing.v1 import AppTest

from dsocr_core.base.paths import PROJECT_ROOT


def opened(page: str, /, **address: str | list[str]) -> AppTest:
    """The page of that name after its first run, with what its address says."""
    test = AppTest.from_file(str(PROJECT_ROOT / "pages" / f"{page}.py"), default_timeout=120)
    for name, value in address.items():
        test.query_params[name] = value
    return checked(test.run())


def checked(test: AppTest) -> AppTest:
    assert not test.exception, test.exception
    return test


def address_of(test: AppTest) -> dict[str, list[str]]:
    """What the address says."""
    found = {name: test.query_params[name] for name in test.query_params}
    return {name: [value] if isinstance(value, str) else list(value) for name, value in found.items()}


def words(test: AppTest) -> str:
    """All running text, without the backslashes that keep Markdown from reading it."""
    found = [element.value for kind in ("markdown", "caption", "error") for element in test.get(kind)]
    html = [unescape(re.sub(r"<[^>]+>", " ", body)) for body in bodies(test)]
    return re.sub(r"\\(.)", r"\1", "\n".join([*found, *html]))


def bodies(test: AppTest) -> list[str]:
    """The HTML that the page shows, its style sheet left out."""
    return [element.proto.body for element in test.get("html") if "<style" not in element.proto.body]


def errors(test: AppTest) -> list[str]:
    """Without the backslashes that keep Markdown from reading them."""
    return [re.sub(r"\\(.)", r"\1", error.value) for error in test.error]


def strips(test: AppTest) -> list[str]:
    """The answers' text, and that of other strips, without tags."""
    found = (body for body in bodies(test) if "dsocr-answer" in body or "dsocr-strip'" in body)
    return [unescape(re.sub(r"<[^>]+>", " ", body)) for body in found]


def figures(test: AppTest) -> list[dict[str, Any]]:
    """What Plotly is to draw."""
    return [json.loads(element.proto.spec) for element in test.get("plotly_chart")]


def mounted(test: AppTest, name: str) -> dict[str, Any]:
    """What the first of our own components of that name shows."""
    found = [item for item in test.get("bidi_component") if item.proto.component_name == f"dsocr_{name}"]
    data: dict[str, Any] = json.loads(found[0].proto.json or found[0].proto.mixed.json)["shown"]
    return data
