"""`python -m dsocr_core`: the command line, which lives in `cli/`."""

import sys

from dsocr_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
