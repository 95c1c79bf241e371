"""Takes from a Python on Linux what Windows does not have, at its start with this folder in PYTHONPATH."""

import os
import sys

for module in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[module] = None  # type: ignore[assignment]
for name in ("fork", "getuid", "geteuid", "killpg", "setsid", "getpgid", "sched_getaffinity"):
    delattr(os, name)
