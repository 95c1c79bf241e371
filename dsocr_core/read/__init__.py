"""Reading pages: one page through its backends, many pages into a run directory."""
