"""Output of the three scripts of the vendor's vLLM folder, and of `infer()`, by their documented rules.

- `run_dpsk_ocr_image.py`, one page into one folder: `result_ori.mmd` as written, `result.mmd` without markup,
  `result_with_boxes.jpg`, `images/N.jpg`. The page's name is not there.
- `run_dpsk_ocr_pdf.py`, one PDF: `NAME_det.mmd` as written without end tokens, `NAME.mmd` without markup,
  `NAME_layouts.pdf`, `images/J_N.jpg`. A line `<--- Page Split --->` ends each page. With `SKIP_REPEAT`, its
  default, a page without an end token is in none of them, and J counts on without it: texts, layouts and
  pictures agree with each other and not with the numbers of the PDF's pages.
- `run_dpsk_ocr_eval_batch.py`, a folder of images: `NAME_det.md` as written and `NAME.md`. It replaces `.jpg`
  and nothing else, so of `NAME.png` only a text file called `NAME.png` is left, without markup; and it puts
  no slash after the folder's name, so that the files of `out` lie beside it as `outNAME.md`.
"""

from __future__ import annotations

import re

PAGE_END = "\n\n<--- Page Split --->\n"
"""Line that the PDF script writes after each page."""
RAW, CLEAN, WITH_BOXES = "result_ori.mmd", "result.mmd", "result_with_boxes.jpg"
RAW_SUFFIX, PDF_RAW, PDF_CLEAN, LAYOUTS = "_det", "_det.mmd", ".mmd", "_layouts.pdf"

IMAGE_WRITER = "run_dpsk_ocr_image.py"
PDF_WRITER = "run_dpsk_ocr_pdf.py"
EVAL_WRITER = "run_dpsk_ocr_eval_batch.py"


def pages_of(text: str) -> list[str]:
    """The pages of a PDF's text, in order; what follows the last mark is a page only if it has words."""
    pages = text.split(PAGE_END)
    return pages if pages[-1].strip() else pages[:-1]


_BEFORE = re.compile(r"^BASE: .*\n(?:(?:NO )?PATCHES.*\n)?(?:=+\n)?", re.MULTILINE)
_AFTER = re.compile(r"\n?^=+(?: ?save results:=+| ?\n(?:image size|image): )", re.MULTILINE)


def without_print(text: str) -> str:
    """The text of a page from what `infer()` printed: without shapes before it and counts after it."""
    shapes = list(_BEFORE.finditer(text))
    text = text[shapes[-1].end() :] if shapes else text
    after = _AFTER.search(text)
    return text[: after.start()].rstrip("\n") if after else text
