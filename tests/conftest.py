"""What every test needs: polite threads, and no writes outside the test's own folders."""

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
