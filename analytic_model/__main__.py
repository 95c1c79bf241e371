"""The word that this front door is closed: the commands are `dsocr flops NAME`."""

import sys

if __name__ == "__main__":
    sys.exit("error: python -m analytic_model is now `dsocr flops` (report, sweep, require, verify)")
