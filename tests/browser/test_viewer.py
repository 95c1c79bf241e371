"""The viewer in a real browser, on made-up backends that differ."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.support.browser_driver import ROOT, Server, Viewer, inked

pytestmark = pytest.mark.browser


BURST = """keys => {
    const how = {bubbles: true, composed: true};
    for (const key of keys) document.body.dispatchEvent(new KeyboardEvent('keydown', {key, ...how}));
}"""


@pytest.fixture(scope="module")
def tab(context: BrowserContext) -> Iterator[Page]:
    """One tab for tests that need only a page come to anew: opening one takes longer than most of them."""
    page = context.new_page()
    yield page
    page.close()


@pytest.fixture
def viewer(fabricated_server: Server, tab: Page) -> Viewer:
    tab.mouse.move(0, 0)
    tab.goto(f"{fabricated_server.url}/?page=letter_tall")
    return Viewer(tab).wait(image="letter_tall:700x1600", a="9", b="9")


LATE = """async source => {
    const script = `function show({ data }) { return data; }\\n${source}`;
    const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    const call = (since, shown) => module.default({ data: { since, shown }, parentElement: document.body });
    return [call(2, "chosen"), call(1, "just left") ?? null, call(3, "next")];
}"""


def test_calls_that_come_in_reverse_leave_the_newest_page_in_sight(tab: Page) -> None:
    """Chromium answers in any order what waits for a module that it loads: the boxes of a page just left came
    after those of the page chosen, and stood under its verdict."""
    source = (ROOT / "pages" / "widgets" / "components" / "calls.js").read_text("utf-8")
    assert tab.evaluate(LATE, source) == ["chosen", None, "next"]


def test_boxes_texts_and_the_table_are_linked_and_hostile_text_is_text(viewer: Viewer) -> None:
    assert viewer.drawn("a") > 2000
    viewer.click("a", 2)
    viewer.wait(selected="2")
    row = viewer.root.locator(".row.selected")
    expect(row).to_contain_text("relabelled")
    assert "<script>" in "".join(row.locator('[data-side="b"] .letter').all_inner_texts())
    assert viewer.page.locator("body[data-owned]").count() == 0
    inked(row.locator(".crop"))  # the block as the page has it, beside both readings
    viewer.page.wait_for_url("**box=3*")
    viewer.root.locator('.row[data-box="5"]').click()
    viewer.wait(selected="5")
    viewer.page.keyboard.press("Escape")
    viewer.wait(selected="")
    viewer.page.wait_for_url(lambda url: "box=" not in url)
    at = viewer.locate("a", 0)
    viewer.page.mouse.move(at["x"], at["y"])
    expect(viewer.root.locator(".tooltip")).to_contain_text("IoU 1.000")


def test_modes_and_what_is_shown(viewer: Viewer) -> None:
    for key, mode in (("2", "2-up"), ("1", "texts"), ("2", "2-up")):
        viewer.page.keyboard.press(key)
        viewer.wait(mode=mode)
        viewer.page.wait_for_url(lambda url, mode=mode: (f"mode={mode}" in url) == (mode != "texts"))
        assert viewer.drawn("a") > 500
    viewer.page.reload()
    viewer.wait(mode="2-up", image="letter_tall:700x1600")
    viewer.root.locator(".menu summary").click()
    for hidden, left in (("matched", {"a": "3", "b": "3"}), ("only A", {"a": "2", "b": "3"})):
        viewer.root.locator(".menu label", has_text=hidden).first.locator("input").uncheck()
        viewer.wait(**left)


def test_zoom_and_pan_are_shared_and_survive_selection_modes_and_reruns(viewer: Viewer) -> None:
    viewer.page.keyboard.press("2")
    viewer.wait(mode="2-up")
    before = viewer.locate("a", 5)
    viewer.zoom("a", 5)
    start = viewer.locate("a", 5)
    assert start == pytest.approx(before, abs=1)  # at the pointer
    viewer.page.mouse.move(start["x"], start["y"])
    viewer.page.mouse.down()
    viewer.page.mouse.move(start["x"] + 60, start["y"] + 40, steps=4)
    viewer.page.mouse.up()
    end = viewer.locate("a", 5)
    assert (end["x"] - start["x"], end["y"] - start["y"]) == pytest.approx((60, 40), abs=2)
    assert viewer.state()["selected"] == ""  # a drag is no click
    scale = float(viewer.state()["scale"])
    left, right = (stage.bounding_box() for stage in viewer.root.locator(".stage").all())
    a, b = viewer.locate("a", 0), viewer.locate("b", 0)
    assert b["x"] - a["x"] == pytest.approx(right["x"] - left["x"], abs=1)
    assert b["y"] == a["y"]
    viewer.click("a", 1)
    viewer.page.wait_for_url("**box=2*")  # Python has answered
    assert float(viewer.state()["scale"]) == scale
    viewer.show("invoice").show("letter_tall")
    assert float(viewer.state()["scale"]) == scale


def test_back_undoes_one_thing_and_turned_pages_are_in_the_history(viewer: Viewer) -> None:
    viewer.page.keyboard.press("d")
    viewer.wait(selected="1")
    viewer.page.wait_for_url(lambda url: "box=2" in url)
    viewer.page.keyboard.press("j")
    viewer.page.wait_for_url(lambda url: "page=many" in url)
    viewer.page.get_by_role("tab", name="Details").click()
    viewer.page.wait_for_url(lambda url: "tab=Details" in url)
    viewer.page.go_back()
    viewer.page.wait_for_url(lambda url: "page=many" in url and "tab=" not in url)
    expect(viewer.page.get_by_role("tab", name="Differences")).to_have_attribute("aria-selected", "true")
    viewer.page.go_back()
    viewer.page.locator('.viewer[data-image^="letter_tall:"][data-selected="1"]').wait_for()
    viewer.page.go_back()
    viewer.wait(selected="", image="letter_tall:700x1600")
    viewer.page.go_forward()
    viewer.wait(selected="1", image="letter_tall:700x1600")


def test_keys_fire_unless_one_is_typing(viewer: Viewer) -> None:
    viewer.page.keyboard.press("?")
    viewer.root.locator(".keys").wait_for()
    viewer.page.keyboard.press("Escape")
    viewer.root.locator(".keys").wait_for(state="hidden")
    viewer.page.get_by_text("Settings", exact=True).click()
    field = viewer.page.get_by_role("textbox", name="Max new tokens")
    field.click()
    viewer.page.keyboard.type("34dj?")
    assert viewer.state()["mode"] == "texts"
    assert viewer.state()["image"].startswith("letter_tall:")
    assert viewer.root.locator(".keys").is_hidden()


def test_a_picture_that_the_server_did_not_have_is_asked_for_again(
    fabricated_server: Server, open_page
) -> None:
    page = open_page("about:blank", alone=True)
    asked: set[str] = set()

    def answer(route: Route) -> None:
        if route.request.url in asked:
            return route.continue_()
        asked.add(route.request.url)
        return route.fulfill(status=404)

    page.route("**/media/*.jpg", answer)
    page.goto(f"{fabricated_server.url}/?page=letter_tall")
    images = Viewer(page).wait(image="letter_tall:700x1600").root.locator(".pane img")
    for image in images.element_handles():
        page.wait_for_function("image => image.naturalWidth > 0", arg=image)
    assert asked


def test_full_size_shows_the_selected_box(viewer: Viewer) -> None:
    viewer.page.locator("body").press("b")
    viewer.page.locator('.viewer:not([data-selected=""])').wait_for()
    first = int(viewer.state()["selected"])
    viewer.root.locator('[data-act="actual"]').click()
    viewer.wait(scale="1.0000")
    stage, at = viewer.root.locator('.pane[data-side="a"] .stage').bounding_box(), viewer.locate("a", first)
    assert stage is not None
    assert stage["y"] <= at["y"] <= stage["y"] + stage["height"]
    assert stage["x"] <= at["x"] <= stage["x"] + stage["width"]


def test_every_turn_of_a_burst_of_keys_counts_and_one_without_a_viewer_waits(
    fabricated_server: Server, open_page
) -> None:
    page = open_page(f"{fabricated_server.url}/?page=letter_tall", alone=True)  # its clock is its own
    Viewer(page).wait(image="letter_tall:700x1600", a="9", b="9")
    names = ["invoice", "letter_tall", "many", "receipt_small", "slide_wide"]
    page.evaluate(BURST, ["j", "j", "j"])
    page.locator(f'.viewer[data-image^="{names[4]}:"]').wait_for()
    page.evaluate(BURST, ["k", "b", "k", "k", "k", "k"])  # no further than the first
    page.locator(f'.viewer[data-image^="{names[0]}:"]').wait_for()
    page.clock.set_fixed_time(datetime.now())  # a key waits for two seconds, which a busy server may take
    page.get_by_text("File", exact=True).click()
    expect(page.locator(".viewer")).to_have_count(0)
    page.evaluate(BURST, ["j"])
    page.get_by_text("Sample", exact=True).click()
    page.locator(f'.viewer[data-image^="{names[1]}:"]').wait_for()
