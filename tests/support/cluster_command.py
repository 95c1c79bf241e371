"""`dsocr` with the stand-in reader: the command line of a run over a cluster, as a process of its own."""

import sys

from dsocr_core.cli import over_cluster
from dsocr_core.cli.main import main

if __name__ == "__main__":
    over_cluster.READER_MODULE = "tests.support.stand_in_reader"
    sys.exit(main())
