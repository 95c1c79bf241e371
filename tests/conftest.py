"""What every test needs: polite threads, and no writes outside the test's own folders."""

import gc
import os
import tempfile

from dsocr_core.threads import wait_politely

wait_politely()
# transformers copies remote code into a cache of the user's; tests bring their own.
os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp(prefix="dsocr-test-modules-")
os.environ["HF_HUB_OFFLINE"] = "1"
# So does the mirror of a remote history: what an earlier run of the tests left there would be believed.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="dsocr-test-cache-")

import torch  # noqa: E402 - after its threads were told how to wait

if not torch.cuda.is_available():
    # Triton reads it when a kernel is defined, which happens with the first import of one.
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_finish() -> None:
    """What was imported by now stays: no collection of garbage has to walk through it again.

    Streamlit collects after each run of a page, and Python by itself; half a million objects of libraries took
    up to 0.3 s each time.
    """
    gc.collect()
    gc.freeze()
