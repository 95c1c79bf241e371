"""The Review page in a browser: ten pages by keyboard alone, link, report, two reviewers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from dsocr_core.runs.history import History
from tests.support.browser_driver import Server, Viewer, chosen, serve
from tests.support.paths import APPS
from tests.support.planted import plant
from tests.support.review_sides import both, changed, markup, write

pytestmark = pytest.mark.browser
PAGES, PLANTED = 60, 10
SCRIPT = (
    "</div></pre><script>document.title='owned'</script><img src=x onerror=alert(1)> [l](javascript:alert(2))"
)
HOSTILE = "a-page-of-a-stranger"
NEWS_MS = 25_000
"""Five times what a machine with nothing else to do takes."""


@pytest.fixture(scope="module")
def review_server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("review")
    image = folder / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    with History(folder / "history") as history:
        plant(history, PAGES, PLANTED)
        hostile = both(markup(changed(1, text=SCRIPT, label="<b>bold</b>")), image=image)
        write(history, HOSTILE, {f"{SCRIPT[12:40]}.png": hostile})
    with serve(APPS / "page_app.py", folder / "log", "review", str(folder / "history")) as server:
        yield server


def settled(page: Page) -> Viewer:
    viewer = Viewer(page)
    page.locator(".viewer[data-image]").wait_for()
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    return viewer


def opened(page: Page, number: int = 0) -> Viewer:
    """Open a page of the grid."""
    page.locator(".gallery button").nth(number).click()
    viewer = settled(page)
    page.locator(".st-key-review-reviewer input").wait_for()
    return viewer


def test_ten_pages_by_keyboard_alone_then_link_and_report(
    review_server: Server, open_page, tmp_path: Path
) -> None:
    page = open_page(review_server.url)
    opened(page)
    keyboard, said = page.keyboard, page.locator(".dsocr-review")
    field = page.locator(".st-key-review-reviewer input")
    keyboard.press("w")  # without a name: the verdict waits for it
    keyboard.type("Ann Reviewer")  # at once: no letter is taken for another verdict
    keyboard.press("Enter")
    keyboard.press("w")  # that the server has not taken the name yet does not ask for it once more
    keyboard.press("d")  # nor is a key after it typed into the field
    page.wait_for_function("document.cookie.includes('Ann%20Reviewer')")
    said.filter(has_text="you: wrong").wait_for()
    expect(field).to_have_value("Ann Reviewer")
    words = {"s": "same", "a": "acceptable", "w": "wrong", "u": "unsure"}
    given: dict[str, str] = {}
    for number in range(10):
        key, name = "sawu"[number % 4], chosen(page)
        keyboard.press(key)
        said.filter(has_text=f"you: {words[key]}").wait_for()
        given[name] = words[key]
        if number == 2:
            keyboard.press("m")
            keyboard.type("the box is a line too low")
            keyboard.press("Enter")
            said.filter(has_text="the box is a line too low").wait_for()
        if number < 9:
            keyboard.press("j")
            page.locator(f'.viewer:not([data-image^="{name}:"])').wait_for()
            settled(page)
    assert len(given) == 10
    settled(page)
    keyboard.press("b")  # the tenth page may differ in its order alone, which is no box
    page.locator('.viewer:not([data-selected=""])').wait_for()
    page.wait_for_url(lambda url: "box=" in url)
    keyboard.press("2")
    last = chosen(page)
    page.wait_for_url(lambda url: "mode=2-up" in url and "box=" in url)
    settled(page)

    page.reload()
    settled(page).wait(mode="2-up")
    assert chosen(page) == last
    expect(field).to_have_value("Ann Reviewer")

    fresh = open_page(page.url, 1680, 1050, "dark", alone=True)  # another browser: no cookie
    settled(fresh).wait(mode="2-up")
    assert chosen(fresh) == last and fresh.locator(".st-key-review-reviewer input").input_value() == ""
    fresh.locator(".dsocr-review", has_text=f"Ann Reviewer: {given[last]}").wait_for()
    fresh.get_by_role("button", name="All pages").click()
    fresh.get_by_text("10 of 60 reviewed").wait_for()
    for name, word in given.items():
        fresh.locator(f'.gallery button[data-key="{name}"] .verdict.{word}').wait_for()
    fresh.get_by_role("button", name="Report", exact=True).click()
    with fresh.expect_download() as download:
        fresh.get_by_role("button", name="Report as HTML").click()
    report = tmp_path / "report.html"
    download.value.save_as(report)
    text = report.read_text("utf-8")
    assert "<script" not in text and "Ann Reviewer" in text and "the box is a line too low" in text


def test_two_reviewers_who_disagree_see_each_other_within_seconds(review_server: Server, open_page) -> None:
    pages = [open_page(f"{review_server.url}/?review={HOSTILE}", alone=True) for _ in range(2)]
    for page, name, key in zip(pages, ("Bea", "Cem"), "sw", strict=True):
        opened(page)
        page.keyboard.press(key)
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        page.locator(".dsocr-review", has_text="you: ").wait_for()
    pages[0].locator(".dsocr-review", has_text="Cem: wrong").wait_for(timeout=NEWS_MS)  # without a click
    expect(pages[0].locator(".dsocr-review", has_text="disagreement")).to_have_count(1)
    pages[0].get_by_role("button", name="All pages").click()
    pages[0].get_by_text("disagreement 1").click()
    expect(pages[0].locator(".gallery button")).to_have_count(1)


def test_a_script_is_text_on_the_page_and_in_the_report(
    review_server: Server, open_page, foreign: list[str], tmp_path: Path
) -> None:
    page = open_page(f"{review_server.url}/?review={HOSTILE}")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    viewer = opened(page)
    viewer.root.locator(".text", has_text="document.title='owned'").first.wait_for()
    page.get_by_role("button", name="All pages").click()
    page.get_by_role("button", name="Report", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Report as HTML").click()
    download.value.save_as(tmp_path / "report.html")
    assert page.title() == "made-up runs"  # the title the app gave it, not the one a stranger wrote
    assert page.locator("img[src=x]").count() == 0
    page.goto((tmp_path / "report.html").as_uri())
    assert "document.title='owned'" in page.inner_text("body") and page.title() != "owned"
    assert page.locator("script, img[src=x], a[href^='javascript']").count() == 0
    assert dialogs == []
    foreign[:] = [url for url in foreign if not url.startswith("file:")]
