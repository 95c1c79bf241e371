"""Place of a history: a local directory or an object store."""
