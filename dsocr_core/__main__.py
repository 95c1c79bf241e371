"""`dsocr` and `python -m dsocr_core`: the command line, which lives in `cli/`."""

import gc
import sys

from dsocr_core.base.system import require_posix


def main() -> int:
    """Run one command. Returns the exit code."""
    require_posix()
    gc.set_threshold(100_000)  # imports of torch spend a fifth of their time in collections otherwise
    try:
        from dsocr_core.cli.main import main as command_line

        return command_line()
    except KeyboardInterrupt:  # during that import
        print("error: cancelled", file=sys.stderr if "--json" in sys.argv else sys.stdout)
        return 1
    finally:
        if "_duckdb" not in sys.modules:  # DuckDB lists on stderr what is left of it then
            gc.freeze()  # the end of the process searches nothing: with torch it took up to 3 s


if __name__ == "__main__":
    sys.exit(main())
