"""Place of a history, and files by name in a directory or at a URL."""
