"""A stranger's text stays text: in every view, wherever it may stand, no tag or link of it comes alive.

A stranger's address is refused in words, and a history that cannot be opened is one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from PIL import Image
from streamlit.testing.v1 import AppTest

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from dsocr_core.settings import Settings
from pages.widgets.compare import address as compare
from pages.widgets.flops import address as flops
from pages.widgets.review import address as review
from pages.widgets.runs import address as runs
from pages.widgets.shared import resources, sources
from pages.widgets.shared.messages import plain
from pages.widgets.shared.runner import Runner
from pages.widgets.timing import address as timing
from tests.support import listed_runs, timed_history
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.opened_page import address_of, opened, words
from tests.support.review_sides import both, changed, markup, write

SCRIPT = "</div></span><script>document.title='owned'</script><img src=x onerror=alert(1)> [l](javascript:x)"
NAME = f"{SCRIPT[12:40]}.png"
OURS = "b blockquote br div em h1 i kbd li p pre small span strong style sub sup ul"
"""What the pages' own HTML is made of."""
LIVE = re.compile(r"(?<!\\)<(img|script|iframe|svg|a)\b|(?<!\\)\]\((?!#)", re.IGNORECASE)
"""What Markdown or Plotly would bring to life, if nothing kept it."""
PLACES: list[tuple[str, dict[str, Any]]] = [
    ("timing", {}),
    ("timing", {"gpu": "'; DROP TABLE runs; --"}),
    ("timing", {"a": "hostile", "b": "run-05"}),
    ("timing", {"view": "Kernels", "run": "nsight"}),
    ("timing", {"view": "Kernels", "run": SCRIPT}),
    *(("runs", {"runs": [listed_runs.STRANGE], "tab": tab})
      for tab in ("Settings", "Tags and notes", "Reproduce")),
    ("runs", {"runs": [listed_runs.STRANGE, listed_runs.EAGER]}),
    *(("review", {"review": "of-a-stranger", "page": NAME, "tab": tab})
      for tab in ("Differences", "Cause", "Details")),
    ("review", {"review": "of-a-stranger"}),
    ("review", {"review": SCRIPT}),
    *(("compare", {"page": "letter_tall", "tab": tab})
      for tab in ("Differences", "Cause", "Details")),
    ("flops", {"run": SCRIPT}),
]  # fmt: skip

ADDRESSES = {
    module.__name__.split(".")[-2]: module.PARAMETERS for module in (compare, review, timing, runs, flops)
}


def tags(html: str) -> set[str]:
    """The tags of a piece of HTML, and attributes that run something."""
    found = re.findall(r"<\s*([a-z0-9]+)([^>]*)", html, re.IGNORECASE)
    attributes = [name for _, rest in found for name in re.findall(r"\b(on\w+)\s*=", rest)]
    return {tag.lower() for tag, _ in found} | {*attributes}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[History, Path]]:
    """A history in which strangers have written everything that they can."""
    folder = tmp_path_factory.mktemp("hostile")
    timed_history.make(folder / "history")
    image = folder / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    with listed_runs.make(folder / "history") as history:
        # The text rule takes tags out and then reads references: this one is a tag after it.
        sides = both(markup(changed(1, text=f"&lt;img&gt; {SCRIPT}", label="<b>bold</b>")), image=image)
        failed = {**sides, "eager": f"not read: {SCRIPT}"}
        write(history, "of-a-stranger", {NAME: sides, "failed.png": failed})
        yield history, folder


@pytest.fixture(scope="module")
def world(places: tuple[History, Path]) -> Iterator[Path]:
    history, folder = places
    samples = folder / "samples"
    pipeline = FabricatedPipeline(make_samples(samples), differ=lambda name: name.startswith("letter"))
    pipeline.record(Settings(preset="small").request(samples / "letter_tall.png", "letter_tall.png"))
    runner = Runner(lambda settings: pipeline)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "history", lambda: history)
        patch.setattr(resources, "runner", lambda: runner)
        patch.setattr(sources, "SAMPLES", samples)
        yield folder
    resources.prefetcher().submit(lambda: None).result()
    st.cache_resource.clear()


def texts(test: AppTest) -> Iterator[str]:
    """All that is read as Markdown, labels too."""
    for kind in ("markdown", "caption", "error", "warning", "info", "success"):
        yield from (element.value for element in test.get(kind))
    for kind in ("expander", "button", "selectbox", "multiselect", "toggle", "checkbox", "metric"):
        yield from (str(element.label) for element in test.get(kind))


@pytest.mark.parametrize(("page", "address"), PLACES, ids=lambda value: re.sub(r"\W+", " ", str(value))[:48])
def test_a_strangers_text_is_text(page: str, address: dict[str, Any], world: Path) -> None:
    test = opened(page, **address)
    assert page != "compare" or not test.error
    for element in test.get("html"):
        found = tags(element.proto.body)
        assert found <= {*OURS.split()}, f"{found} in {element.proto.body[:300]}"
    for text in texts(test):
        assert not LIVE.search(text), text[:300]
    for element in test.get("plotly_chart"):
        spec = json.loads(element.proto.spec)
        assert not re.search(r"<(img|script|a|b onmouseover)\b", json.dumps(spec))


@pytest.mark.parametrize("page", ADDRESSES)
def test_what_is_foreign_in_an_address_is_said_and_can_be_left(page: str, world: Path) -> None:
    of_choice = {name for name, of in ADDRESSES[page].items() if of.linked and of.choices}
    test = opened(page, no="<b>", **dict.fromkeys(of_choice, "<b>"))
    said = words(test)
    assert all(len(re.findall(rf"\b{name} <b>", said)) == 1 for name in of_choice)
    assert not LIVE.search(test.error[0].value)
    assert "<b>" not in str(address_of(test))


@pytest.mark.parametrize("page", ["review", "timing", "runs", "flops"])
def test_a_history_that_cannot_be_opened_is_one_line(
    page: str, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> History:
        raise DsocrError("*s3*://nowhere: not there")

    monkeypatch.setattr(resources, "history", fail)
    (error,) = opened(page).error
    assert "not there" in error.value


def test_an_address_in_a_message_is_no_link_to_the_browser() -> None:
    for text in ("see https://evil.example", "www.evil.example", "mail a.b+c@evil.example"):
        shown = re.sub(r"\\(.)", r"\1", plain(text))
        assert shown.replace("\N{WORD JOINER}", "") == text and not re.search(r"https?://|www\.|\w@", shown)
