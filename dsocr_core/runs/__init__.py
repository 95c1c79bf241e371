"""The history: every run kept as an immutable directory, read by DuckDB."""
