"""Where a history lies: a local directory or an object store."""
