"""The sidebar of Compare: which page, how to read it, which sides."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from analytic_model.on_cpu import of_cpu
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.reading.records import SIDES, OcrRequest, Side
from dsocr_core.settings import Settings, SettingsError
from pages.widgets.compare import address, backends, trust
from pages.widgets.compare.address import ATTENTION, DTYPES, PARAMETERS, STATE, bound, put, value
from pages.widgets.shared import resources, sources
from pages.widgets.shared.labels import side_letter
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
    """Choices of the sidebar. `page` is None when there is nothing to read yet; `problem` says why.

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
    def request(self) -> OcrRequest | None:
        return None if self.page is None else _request(self.settings, self.page)

    @property
    def position(self) -> int:
        return self.pages.position(self.page.key) if self.page else 0


def draw(running: bool) -> tuple[Choice, bool]:
    """Draw the sidebar. Returns the choice and whether its button was pressed."""
    problem, pages, page = "", PageList(), None
    try:
        pages = _source()
        page = _opened(pages)
    except DsocrError as error:
        problem = str(error)
        show_error(problem)
    run = st.container(key="run box", gap="small")
    with st.expander("Settings"):
        settings, refusal = _settings()
        _published_checkpoint()
    chosen = settings or Settings()
    try:
        if page is not None:
            _request(chosen, page)
    except DsocrError as error:  # pages that are not read together so
        problem, page = str(error), None
        show_error(problem)
    with run:
        sides = _sides(chosen)
        word = "both" if len(sides) != 1 else side_letter(sides[0])
        ready = page is not None and bool(sides) and settings is not None and not running
        pressed = st.button(
            f"Run {word}", type="primary", width="stretch", disabled=not ready, key="run",
            help=None if sides else "Choose at least one side.",
        )  # fmt: skip
    if chosen.is_embedded:
        st.caption(
            "The embedded checkpoint is small and misreads some words. See Settings for the published one."
        )
    return Choice(chosen, sides, pages, page, problem, refusal), pressed and ready


def _request(settings: Settings, page: PageSource) -> OcrRequest:
    """Raises DsocrError for pages of one prompt that the model does not read so."""
    return settings.request(page.path, page.name, page.more)


# --- page -----------------------------------------------------------------------------------------


def _source() -> PageList:
    kind = st.segmented_control(
        "Page", PARAMETERS["source"].choices, required=True, **bound("source"), width="stretch",
        label_visibility="collapsed",
    )  # fmt: skip
    if kind == "File":
        return _file()
    pages = _from("samples", sources.samples())
    if pages.keys and value("page") in ("", *pages.keys):
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
    try:
        limit = resources.base_settings().max_pixels
    except DsocrError:  # said where the settings are
        limit = Settings().max_pixels
    with sources.named(page.path, page.name if sources.is_stored(page.path) else str(page.path)):
        resources.page_picture(page.path, limit)
    return page


def _file() -> PageList:
    """A file by upload or by its path; an upload is opened by the path where it is stored, as a link does."""
    sent = st.file_uploader(
        "Image or PDF", type=sources.UPLOAD_TYPES, key="upload", label_visibility="collapsed"
    )
    upload = None if sent is None else sent.file_id
    if sent is not None and upload != st.session_state.get("upload taken"):
        st.session_state["upload taken"] = upload
        put("path", "")
        put("path", str(sources.store_upload(sent.name, sent.getvalue())))
    text = st.text_input(
        "Path", **bound("path"), placeholder="or a path: page.png, paper.pdf, a folder",
        label_visibility="collapsed",
    ).strip()  # fmt: skip
    if not text:
        roots = ", ".join(f"`{root}`" for root in resources.allowed_roots())
        st.caption(f"Files stay on the server that runs this app. Paths may lie under {roots}.")
        return PageList()
    pages = _from(text, sources.typed_pages(text, resources.allowed_roots()))
    return _choose_pages(replace(pages, name=text))


def _choose_pages(pages: PageList) -> PageList:
    """The chosen ones of many pages; the viewer's pager goes through them. Raises DsocrError."""
    count, first = len(pages.keys), partial(address.show_page, "")
    if count < 2:
        return pages
    numbers = st.text_input(
        "Pages", **bound("pages"), placeholder=f"Pages: all {count:,}, or e.g. 1-3,7",
        label_visibility="collapsed", on_change=first,
    ).strip()  # fmt: skip
    pages = pages.only(numbers) if numbers else pages
    if not _reads_several():
        return pages
    together = st.toggle(
        "All pages in one prompt", **bound("together"), on_change=first,
        help="One reading of the whole document; the viewer's pager goes through its pages.",
    )  # fmt: skip
    return pages.together() if together else pages


def _reads_several() -> bool:
    """Tell whether the chosen checkpoint's model takes several pages in a prompt."""
    with suppress(DsocrError):
        base = resources.base_settings()
        checkpoint = st.session_state.get("checkpoint", base.checkpoint)
        return replace(base, checkpoint=checkpoint).family.decoding.images > 1
    return False


# --- settings -------------------------------------------------------------------------------------


def _settings() -> tuple[Settings | None, str]:
    """The settings as chosen; None, with the reason, when they do not hold."""
    try:
        base = resources.base_settings()
    except DsocrError as error:
        show_error(error)
        base = Settings()
    spot = st.container(gap="small")
    dtype = st.selectbox("dtype", DTYPES, **bound("dtype"), help="auto: bfloat16 on a GPU, float32 on a CPU.")
    dtype_b = st.selectbox(
        "dtype of B", PARAMETERS["dtype_b"].choices, **bound("dtype_b"),
        format_func=lambda name: name or "same as A", help="Choose another to see how the text changes.",
    )  # fmt: skip
    attention = st.selectbox(
        "Attention (our engine)", ATTENTION, **bound("attention"),
        help="The vendor's code has eager and flash_attention_2 only; it runs eager beside sdpa.",
    )  # fmt: skip
    if note := replace(base, attention=attention).attention_note:
        st.caption(plain(f"{note[0].upper()}{note[1:]}."))
    tokens = st.text_input(
        "Max new tokens", value=str(base.infer.max_new_tokens), key="tokens", persist_state="session",
        help="A positive integer, or inf: until the end token or the context limit.",
    ).strip()  # fmt: skip
    checkpoint = st.text_input(
        "Checkpoint directory", value=base.checkpoint, key="checkpoint", persist_state="session",
        help="A directory of the published format, or random:PATH/config.json.",
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
        _check_checkpoint(checkpoint, base)
        limit = int(tokens) if tokens.isdecimal() else tokens
        infer = replace(base.infer, max_new_tokens=limit)
        vendor = replace(base.vendor, trust_remote_code=[*base.vendor.trust_remote_code, *trusted])
        return replace(
            base, checkpoint=checkpoint, preset=preset, prompt=prompt, infer=infer, attention=attention,
            dtype=dtype, vendor=vendor,
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
    chosen = [
        column.selectbox(side_letter(side), found, **bound(side))
        for side, column in zip(SIDES, st.columns(2), strict=True)
    ]
    return backends.with_sides(settings, *chosen)


def _preset(settings: Settings) -> str:
    together = value("together") and settings.family.decoding.images > 1
    presets = {
        name: each for name, each in settings.family.presets.items() if not (together and each.crop_mode)
    }

    def words(name: str) -> str:
        preset = presets[name]
        size = f"{preset.base_size} px + tiles" if preset.crop_mode else f"{preset.image_size} px"
        return f"{name}, {size}"

    here, why = of_cpu(settings)
    if value("preset") not in presets:  # not chosen yet, or of another model's checkpoint
        usual = here.preset_name, settings.family.preset, *presets
        STATE.choose("preset", next(name for name in usual if name in presets))
    chosen = st.selectbox("Preset", list(presets), format_func=words, **bound("preset"))
    if why and chosen == here.preset_name:
        st.caption(plain(f"{why[0].upper()}{why[1:].partition('; ')[0]}."))
    return chosen


def _prompt() -> str:
    name = st.selectbox("Prompt", list(PROMPT_NAMES), format_func=PROMPT_NAMES.__getitem__, **bound("prompt"))
    if name != "locate":
        return name
    wanted = st.text_input("Text to locate", key="locate", persist_state="session", max_chars=400).strip()
    if not wanted:
        st.caption("Type what to locate; then run.")
        return ""
    # The text must not bring tokens of its own.
    return PROMPTS["locate"].replace("TEXT", wanted.replace("<", " ").replace(">", " "))


def _check_checkpoint(checkpoint: str, base: Settings) -> None:
    """A checkpoint lies under the allowed roots, or is the one that the settings file names."""
    path = checkpoint.removeprefix("random:")
    if checkpoint != base.checkpoint:
        sources.typed_path(path, resources.allowed_roots())


def _sides(settings: Settings) -> tuple[Side, ...]:
    """Ask which sides to run, each by the backend that reads it."""
    chosen = st.segmented_control(
        "Run", SIDES, selection_mode="multi", default=list(SIDES), key="sides",
        format_func=lambda side: f"{side_letter(side)}: {settings.backend(side)}",
        persist_state="session", width="stretch", label_visibility="collapsed",
    )  # fmt: skip
    return tuple(side for side in SIDES if side in chosen)


def _published_checkpoint() -> None:
    with st.popover("Use the published checkpoint", width="stretch", type="tertiary"):
        st.markdown(
            "1. Get a machine with 10 GB of free GPU memory and `pip install -r requirements-gpu.txt`.\n"
            "2. Download the published weights (6.7 GB):"
        )
        st.code("hf download deepseek-ai/DeepSeek-OCR --local-dir checkpoints/DeepSeek-OCR", language="bash")
        st.markdown(
            "3. Give that folder as *Checkpoint directory*. "
            "For a folder outside the project, start the app with it allowed:"
        )
        st.code("DSOCR_ROOTS=/models streamlit run app.py", language="bash")
