"""What every test needs: polite threads, and no writes outside the test's own folders."""

import os
import tempfile

from dsocr_core.threads import wait_politely

wait_politely()
# transformers copies remote code into a cache of the user's; tests bring their own.
os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp(prefix="dsocr-test-modules-")
os.environ["HF_HUB_OFFLINE"] = "1"
