"""`dsocr` and `python -m dsocr_core`: the command line, which lives in `cli/`."""

import sys

from dsocr_core.base.system import require_posix


def main() -> int:
    """Run one command. Returns the exit code."""
    require_posix()
    from dsocr_core.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
