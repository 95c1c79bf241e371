"""A newcomer's five minutes on the runs that come with the project, with the pictures of README."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.support.browser_driver import ROOT, RUN_MS, Server, Viewer, marked, rested, run_button, serve_app

pytestmark = pytest.mark.browser
CLOSING = (42, 1032, 465, 1070)
"""The line "We close at 21:30." on the page that opens."""
SAMPLES = ("05-square-card", "06-small-ticket", "11-alpha-label")
"""Pages with few tokens, that end by themselves."""
SIGN, ROOM = range(387, 392), range(378, 401)
"""Columns of its colon's ink, and of all that lies between its neighbours' ink, counted in the picture."""
RED, BLUE = (192, 54, 44), (28, 127, 184)


@pytest.fixture
def server(tmp_path: Path, browser: Browser) -> Iterator[Server]:
    """An app that nobody has used: what other tests record would be reviewed in place of the examples."""
    with serve_app(tmp_path) as server:
        yield server


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_compare_and_review_have_no_serious_violation(
    server: Server, open_page, accessible, screenshots: Path, scheme: str
) -> None:
    page = rested(open_page(server.url, 1440, 900, scheme))
    page.locator(".texts .row.selected").wait_for()
    accessible(page)
    go(page, "Review")
    page.locator(".gallery img").first.wait_for()
    accessible(page)
    page.locator(".gallery button").first.click()
    Viewer(page).root.locator(".panes").wait_for()
    page.screenshot(path=screenshots / f"first-review-1440-{scheme}.png")
    accessible(page)


def test_by_keyboard_alone(server: Server, open_page) -> None:
    """From a sample through the viewer to a run on Runs, out of its table, and to a pair of Timing."""
    page = rested(open_page(server.url))
    keys = page.keyboard
    focused = "() => document.activeElement.shadowRoot?.activeElement ?? document.activeElement"

    def tab_to(selector: str, most: int = 40) -> None:
        for _ in range(most):
            keys.press("Tab")
            if page.evaluate(f"selector => ({focused})().matches(selector)", selector):
                return
        raise AssertionError(f"Tab never leads to {selector}")

    tab_to('[data-testid="stSidebarNavLink"]')
    assert page.evaluate(f"getComputedStyle(({focused})()).outlineStyle") == "solid"
    tab_to(".st-key-sample input")
    keys.type("02-inv")
    keys.press("Enter")
    Viewer(page).root.and_(page.locator('[data-image^="02-invoice:"]')).wait_for()
    tab_to('[data-testid="stBaseButton-primary"]')
    tab_to(".viewer")
    keys.press("b")
    Viewer(page).wait(selected="0")
    keys.press("B")
    Viewer(page).wait(selected="4")
    expect(page.locator(".viewer .said")).to_contain_text("02-invoice.png: identical. Both read the same.")
    go(page, "Runs")
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    tab_to('[data-testid="stDataFrame"] canvas')
    keys.press("ArrowDown")
    inside = f"() => Boolean(({focused})().closest('[data-testid=stDataFrame]'))"
    for _ in range(14):  # two tables and their tools, not their thousand cells
        keys.press("Tab")
    assert not page.evaluate(inside)
    go(page, "Timing")
    page.get_by_text("2 to look at.").wait_for()
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    tab_to('[data-testid="stDataFrame"] canvas')
    keys.press("ArrowDown")
    keys.press("Shift+Space")
    page.get_by_text("Inconclusive, one run a side").wait_for()


def go(page: Page, name: str) -> Page:
    page.get_by_test_id("stSidebarNavLink").filter(has_text=name).click()
    page.locator(".dsocr-heading h1", has_text=name).wait_for()
    expect(page).to_have_title(f"{name} · DeepSeek-OCR dashboard")
    return rested(page)


def side(page: Page, name: str) -> None:
    """Press the button that opens or closes the sidebar, where it lies over the page."""
    assert page.viewport_size is not None
    if page.viewport_size["width"] < 768:
        page.get_by_test_id(name).click()


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(1440, 900, "light"), (1024, 768, "dark"), (390, 844, "light")]
)
def test_five_minutes(
    server: Server, open_page, screenshots: Path, width: int, height: int, scheme: str, tmp_path: Path
) -> None:
    # What differs is seen without a click: the letter is marked, and named.
    page = rested(open_page(server.url, width, height, scheme))
    page.locator(".dsocr-word", has_text="DIFFERS").wait_for()
    page.locator(".dsocr-answer", has_text="The page says 21:30: B is right.").wait_for()
    viewer = Viewer(page)
    assert viewer.root.locator(".row.selected .letter").all_inner_texts() == ["-", ":"]
    viewer.root.locator(".panes").scroll_into_view_if_needed()
    pixel = 1 / float(viewer.state()["scale"])  # of the screen, in those of the page
    mark = marked(viewer, "a", CLOSING, RED)
    assert mark.start <= SIGN.start + pixel and SIGN.stop <= mark.stop + 2 + pixel
    assert len(mark) <= len(ROOM) + 2 * pixel
    with pytest.raises(AssertionError, match="no mark"):  # nor does the box's name lie on its words
        marked(viewer, "a", CLOSING, BLUE)
    if width > 768:
        button = run_button(page).bounding_box()
        assert button is not None and button["y"] + button["height"] <= height
    page.screenshot(path=screenshots / f"first-compare-{width}-{scheme}.png")

    # A document of three pages is read, and walked through with its verdicts.
    side(page, "stExpandSidebarButton")
    page.get_by_text("File", exact=True).click()
    pages = [Image.open(ROOT / "data" / "samples" / f"{name}.png").convert("RGB") for name in SAMPLES]
    pages[0].save(tmp_path / "paper.pdf", save_all=True, append_images=pages[1:], resolution=150, quality=100)
    page.locator('input[type="file"]').set_input_files(tmp_path / "paper.pdf")
    page.get_by_placeholder("Pages: all 3, or e.g. 1-3,7").wait_for()
    side(page, "stSidebarCollapseButton")
    for number in (1, 2, 3):
        page.locator(f'.viewer[data-image^="paper.pdf#{number}:"]').wait_for()
        if number < 3:
            page.locator("body").press("j")
    page.get_by_role("button", name="Run all 3 pages").click()
    page.get_by_role("button", name="Cancel").wait_for()

    # Its run opens on Review, and is signed off; the verdict waits for the name.
    page.locator(".dsocr-heading h1", has_text="Review").wait_for(timeout=RUN_MS)
    page.locator('.gallery button[data-key$="#1"]').click()
    page.locator('.viewer[data-image*="#1:"]').wait_for()
    page.keyboard.press("s")
    field = page.locator(".st-key-review-reviewer input")
    expect(field).to_be_focused()
    field.fill("Ann Newcomer")
    field.press("Enter")
    verdict = page.locator(".dsocr-review", has_text="you: same")
    verdict.wait_for()
    page.keyboard.press("b")
    viewer.wait(selected="0")
    page.wait_for_url("**box=*")
    first = page.url
    for number in (2, 3):
        page.locator("body").press("j")
        page.locator(f'.viewer[data-image*="#{number}:"]').wait_for()
        expect(verdict).to_have_count(0)
        page.keyboard.press("s")
        verdict.wait_for()

    # A report leaves, and a colleague opens the link.
    page.get_by_role("button", name="All pages").click()
    page.get_by_role("button", name="Report", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Report as HTML").click()
    assert waiting.value.path().read_text().count("Ann Newcomer: same") == 3
    colleague = open_page(first, width, height, scheme, alone=True)
    colleague.locator('.viewer[data-image*="#1:"][data-selected="0"]').wait_for()
    colleague.locator(".dsocr-review", has_text="Ann Newcomer: same").wait_for()
