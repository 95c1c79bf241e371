"""Cost of a page, by arithmetic alone: FLOPs, bytes and time bounds of every stage, from shapes."""
