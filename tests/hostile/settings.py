"""Settings files with wrong types, huge numbers, deep nesting, anchors and tags."""

from __future__ import annotations

import contextlib
import functools
import io
from pathlib import Path
from random import Random

from jsonargparse import ArgumentParser

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.yaml_bounds import UNREADABLE, check_file
from dsocr_core.settings import Settings
from tests.hostile.damage import damaged

_VALUES = (
    "1", "-1", "0", "nan", ".inf", "-.inf", "1e400", "9" * 5000, "true", "null", "~", "[]", "{}",
    "[1, 2]", "{a: b}",
    "tiny", "'x'", "../x", "/dev/zero", "s3://bucket", "random:", '"\\0"',
    "!!python/object/apply:os.system [id]",
    "&a [*a]", "*missing",
    "{a: &a [x, x], b: [*a, *a]}", "{a: 1, a: 2}", "1" + ":1" * 400, "!!float '.nan'",
    '!!float ""', "!!bool x", "!!int ''", "!!timestamp z",
    "0x10", "1_000", "2026-01-02", "é", "[" * 100, "inf", "eager", "<image>",
)  # fmt: skip
_NAMES = (
    "checkpoint", "preset", "prompt", "infer.max_new_tokens", "infer.no_repeat_ngram_size",
    "engine", "attention",
    "dtype", "device", "rotary", "max_megapixels", "pdf_dpi", "vendor.timeout_s", "vendor.trust_remote_code",
    "history", "tolerance.character_error_rate", "clean_pages", "nothing", "__class__", "infer",
)  # fmt: skip


def attempt(random: Random, folder: Path) -> str | None:
    """One file or list of options, parsed. Raises DsocrError when it is refused."""
    chosen = random.choices(_NAMES, k=random.randint(1, 3))
    if random.random() < 0.5:
        arguments = [f"--{name}={random.choice(_VALUES)}" for name in chosen]
    else:
        text = "\n".join(f"{name}: {random.choice(_VALUES)}" for name in chosen).encode()
        path = folder / "settings.yaml"
        path.write_bytes(damaged(random, text) if random.random() < 0.3 else text)
        check_file(path)  # as the command line does
        arguments = ["--config", str(path)]
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            parsed = _parser().parse_args(arguments)
    # As the command line does; SettingsError is none.
    except UNREADABLE as error:
        raise DsocrError(one_line(error)) from error
    except SystemExit:
        last = said.getvalue().strip()
        raise DsocrError("refused by the parser" if "Traceback" not in last else last) from None
    settings = Settings(**{name: parsed[name] for name in Settings.__dataclass_fields__})
    if not settings.max_megapixels > 0 or not 30 <= settings.pdf_dpi <= 600 or not settings.max_pixels > 0:
        return f"taken: {settings}"[:300]
    return None


@functools.cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(Settings, None)
    return parser
