"""The caller's end of the worker: a child process whose lines are messages."""

from __future__ import annotations

import os
from pathlib import Path

from dsocr_core.base.child import Child, module_environment
from dsocr_core.base.paths import Temporary
from dsocr_core.vendor.protocol import FILES, Message, decode, encode


class WorkerProcess(Child):
    """A worker, which ends with its caller's pipe. Raises OSError when the interpreter cannot be run."""

    def __init__(self, interpreter: str) -> None:
        self._directory = Temporary("vendor")
        self.files = Path(self._directory.name) / FILES
        """Directory for the vendor's files of a page; removed with the worker."""
        command = [interpreter, "-m", "dsocr_core.vendor.worker", self._directory.name]
        super().__init__(command, _environment(Path(self._directory.name)), talks=True)

    def tell(self, message: Message) -> None:
        """Raises ChildGone."""
        self.send(encode(message))

    def hear(self, timeout_s: float) -> Message | None:
        """The next message, None when none came in time. Raises ChildGone or ProtocolError."""
        line = self.receive(timeout_s)
        return None if line is None else decode(line)

    def close(self) -> None:
        super().close()
        self._directory.cleanup()


def _environment(directory: Path) -> dict[str, str]:
    return {
        # Threads that spin while they wait make a page 10 to 30 times slower beside another busy process.
        "OMP_WAIT_POLICY": "PASSIVE",
        "MKL_DYNAMIC": "FALSE",
        **module_environment(os.environ),
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        # Where transformers copies the checkpoint's code.
        "HF_MODULES_CACHE": str(directory / "modules"),
        # A config may name code in somebody's repository: only the allowed directory's code runs.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
