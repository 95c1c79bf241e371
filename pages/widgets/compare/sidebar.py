"""The sidebar of Compare: which page, how to read it, which sides."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from analytic_model.on_cpu import with_cpu_preset
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.reading.records import SIDES, OcrRequest, Side
from dsocr_core.settings import Settings, SettingsError
from pages.widgets.compare import address, backends, trust
from pages.widgets.compare.address import ATTENTION, DTYPES, PARAMETERS, STATE, bound, put, value
from pages.widgets.shared import resources, sources
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.sources import PageList, PageSource

PROMPT_NAMES = {
    "markdown": "Markdown with boxes",
    "free_ocr": "Free OCR",
    "figure": "Parse the figure",
    "locate": "Locate a text",
}
_OPENED = "compare opened"


@dataclass(frozen=True)
class Choice:
    """Choices of the sidebar. Without a `page` nothing is read, and an error says why unless none is chosen.

    `refusal` says why nothing is read under these settings, where that is so.
    """

    settings: Settings
    sides: tuple[Side, ...]
    """Sides that a run reads."""
    pages: PageList
    page: PageSource | None
    problem: str = ""
    refusal: str = ""

    @property
    def request(self) -> OcrRequest:
        assert self.page is not None
        return _request(self.settings, self.page)

    @property
    def position(self) -> int:
        return self.pages.position(self.page.key) if self.page else 0


def draw(running: bool) -> tuple[Choice, bool]:
    """Draw the sidebar. Returns the choice and whether its button was pressed."""
    problem, pages, page = "", PageList(), None
    try:
        with sources.own_names():
            pages = _source()
            page = _opened(pages)
    except DsocrError as error:
        problem = str(error)
    place = st.container()
    run = st.container(key="run box", gap="small")
    with st.expander("Settings"):
        settings, refusal = _settings()
    chosen = settings or Settings()
    try:
        if page is not None:
            _request(chosen, page)
    except DsocrError as error:  # pages that are not read together so
        problem, page = str(error), None
    if problem:
        with place:
            show_error(problem)
    with run:
        sides = _sides(chosen)
        word = "both" if len(sides) != 1 else sides[0].upper()
        ready = page is not None and bool(sides) and settings is not None and not running
        pressed = st.button(
            f"Run {word}", type="primary", width="stretch", disabled=not ready, key="run",
            help=None if sides else "Choose at least one side.",
        )  # fmt: skip
    if chosen.is_embedded:
        st.caption(
            "The embedded checkpoint is small and misreads some words. For the published one see "
            "*Checkpoint directory* in the settings."
        )
    return Choice(chosen, sides, pages, page, problem, refusal), pressed and ready


def _request(settings: Settings, page: PageSource) -> OcrRequest:
    """Raises DsocrError for pages of one prompt that the model does not read so."""
    return settings.request(page.path, page.name, page.more)


# --- page -----------------------------------------------------------------------------------------


def _source() -> PageList:
    kind = st.segmented_control(
        "Page", PARAMETERS["source"].choices, required=True, width="stretch", label_visibility="collapsed",
        **bound("source"),
    )  # fmt: skip
    if kind == "File":
        return _file()
    pages = _from("samples", sources.samples())
    if pages.keys:
        STATE.settle("page", pages.keys)
        st.session_state["sample"] = pages.keys[pages.position(value("page"))]
        st.selectbox(
            "Sample", pages.keys, key="sample", label_visibility="collapsed",
            on_change=lambda: address.show_page(st.session_state["sample"]),
        )  # fmt: skip
    return pages


def _from(source: str, pages: PageList) -> PageList:
    """The pages of a source, from the beginning where another was open: it may have a page of that name."""
    before = st.session_state.get(_OPENED)
    st.session_state[_OPENED] = source
    if before not in (None, source):
        put("box", "")
        put("pages", "")
        if value("page") not in pages.keys:
            put("page", "")
    return pages


def _opened(pages: PageList) -> PageSource | None:
    """The page shown, which can be opened; None when there is none. Raises DsocrError."""
    if not pages.keys:
        return None
    STATE.settle("page", pages.keys)
    page = pages.take(pages.position(value("page")))
    with sources.own_names(page.path, page.name):
        resources.page_picture(page.path, resources.usable_settings().max_pixels)
    return page


def _file() -> PageList:
    """A file by upload or by its path; an upload is opened by the path where it is stored, as a link does."""
    sent = st.file_uploader(
        "Image or PDF", type=sources.UPLOAD_TYPES, key="upload", label_visibility="collapsed"
    )
    if sent is not None and sent.file_id != st.session_state.get("upload taken"):
        st.session_state["upload taken"] = sent.file_id
        put("path", "")
        put("path", str(sources.store_upload(sent.name, sent.getvalue())))
    text = st.text_input(
        "Path", placeholder="or a path: page.png, paper.pdf, a folder", label_visibility="collapsed",
        **bound("path"),
    ).strip()  # fmt: skip
    if not text:
        roots = ", ".join(f"`{root}`" for root in resources.allowed_roots())
        st.caption(f"Files stay on the server that runs this app. Paths may lie under {roots}.")
        return PageList()
    pages = _from(text, sources.typed_pages(text, resources.allowed_roots()))
    count, first = len(pages.keys), partial(address.show_page, "")
    if count < 2:
        return pages
    numbers = st.text_input(
        "Pages", placeholder=f"Pages: all {count:,}, or e.g. 1-3,7", label_visibility="collapsed",
        on_change=first, **bound("pages"),
    ).strip()  # fmt: skip
    pages = pages.only(numbers) if numbers else pages
    several = False
    with suppress(DsocrError):  # said where the settings are drawn
        checkpoint = st.session_state.get("checkpoint", resources.usable_settings().checkpoint)
        several = replace(resources.usable_settings(), checkpoint=checkpoint).family.decoding.images > 1
    if several and st.toggle(
        "All pages in one prompt", on_change=first, **bound("together"),
        help="One reading of the whole document; the viewer's pager goes through its pages.",
    ):  # fmt: skip
        return pages.together()
    return pages


# --- settings -------------------------------------------------------------------------------------


def _settings() -> tuple[Settings | None, str]:
    """The settings as chosen; None, with the reason, when they do not hold."""
    try:
        resources.base_settings()
    except DsocrError as error:
        show_error(error)
    base = resources.usable_settings()
    spot = st.container(gap="small")
    dtype = st.selectbox("dtype", DTYPES, help="auto: bfloat16 on a GPU, float32 on a CPU.", **bound("dtype"))
    dtype_b = st.selectbox(
        "dtype of B", PARAMETERS["dtype_b"].choices, format_func=lambda name: name or "same as A",
        help="Choose another to see how the text changes.", **bound("dtype_b"),
    )  # fmt: skip
    attention = st.selectbox(
        "Attention (our engine)", ATTENTION, **bound("attention"),
        help="The vendor's code has eager and flash_attention_2 only; it runs eager beside sdpa.",
    )  # fmt: skip
    tokens = st.text_input(
        "Max new tokens", value=str(base.infer.max_new_tokens), key="tokens", persist_state="session",
        help="A positive integer, or inf: until the end token or the context limit.",
    ).strip()  # fmt: skip
    checkpoint = st.text_input(
        "Checkpoint directory", value=base.checkpoint, key="checkpoint", persist_state="session",
        help="Of the published format (6.7 GB, 10 GB of GPU memory): `hf download deepseek-ai/DeepSeek-OCR "
        "--local-dir checkpoints/DeepSeek-OCR`. A folder outside the project has to be allowed at the start: "
        "`DSOCR_ROOTS=/models streamlit run app.py`. Or random:PATH/config.json.",
    ).strip()  # fmt: skip
    trusted = trust.draw(checkpoint, Settings(checkpoint=checkpoint).is_embedded)
    with spot:
        try:
            base = backends.with_dtype_of_b(_backends(base), dtype_b)
        except DsocrError as error:
            show_error(error)
        try:
            preset = _preset(replace(base, checkpoint=checkpoint))
        except DsocrError as error:  # a model that has no row
            return None, str(error)
        prompt = _prompt()
    if not prompt:
        return None, "type what to locate under Settings"
    try:
        if checkpoint != base.checkpoint:
            sources.typed_path(checkpoint.removeprefix("random:"), resources.allowed_roots())
        limit = int(tokens) if tokens.isdecimal() else tokens
        return replace(
            base, checkpoint=checkpoint, preset=preset, prompt=prompt, attention=attention, dtype=dtype,
            infer=replace(base.infer, max_new_tokens=limit),
            vendor=replace(
                base.vendor, trust_remote_code=[*base.vendor.trust_remote_code, *trusted]
            ),
        ), ""  # fmt: skip
    except (SettingsError, DsocrError) as error:
        return None, str(error)


def use_usual_checkpoint() -> None:
    """A callback: the way out of a checkpoint that cannot be read."""
    st.session_state["checkpoint"] = resources.base_settings().checkpoint


def _backends(settings: Settings) -> Settings:
    """The choice of A and B, where the settings file names some; the settings with it. Raises DsocrError."""
    found = backends.names()
    if not found:
        return settings
    return backends.with_sides(settings, *(
        column.selectbox(side.upper(), found, **bound(side))
        for side, column in zip(SIDES, st.columns(2), strict=True)
    ))  # fmt: skip


def _preset(settings: Settings) -> str:
    together = value("together") and settings.family.decoding.images > 1
    presets = {
        name: f"{name}, {f'{each.base_size} px + tiles' if each.crop_mode else f'{each.image_size} px'}"
        for name, each in settings.family.presets.items() if not (together and each.crop_mode)
    }  # fmt: skip
    here, why = with_cpu_preset(settings)
    if value("preset") not in presets:  # not chosen yet, or of another model's checkpoint
        usual = here.preset_name, settings.family.preset, *presets
        STATE.choose("preset", next(name for name in usual if name in presets))
    chosen: str = st.selectbox("Preset", list(presets), format_func=presets.__getitem__, **bound("preset"))
    if why and chosen == here.preset_name:
        st.caption(plain(f"{why[0].upper()}{why[1:].partition('; ')[0]}."))
    return chosen


def _prompt() -> str:
    name: str = st.selectbox(
        "Prompt", list(PROMPT_NAMES), format_func=PROMPT_NAMES.__getitem__, **bound("prompt")
    )
    if name != "locate":
        return name
    wanted = st.text_input("Text to locate", key="locate", persist_state="session", max_chars=400).strip()
    if not wanted:
        st.caption("Type what to locate; then run.")
        return ""
    # The text must not bring tokens of its own.
    return PROMPTS["locate"].replace("TEXT", wanted.replace("<", " ").replace(">", " "))


def _sides(settings: Settings) -> tuple[Side, ...]:
    """Ask which sides to run, each by the backend that reads it."""
    chosen = st.segmented_control(
        "Run", SIDES, selection_mode="multi", default=list(SIDES), key="sides",
        format_func=lambda side: f"{side.upper()}: {settings.backend(side)}",
        persist_state="session", width="stretch", label_visibility="collapsed",
    )  # fmt: skip
    return tuple(side for side in SIDES if side in chosen)
