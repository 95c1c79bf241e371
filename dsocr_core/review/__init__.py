"""The parity review: two sides of recorded runs, page by page, worst first. No model, no GPU, no torch."""
