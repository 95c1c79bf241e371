"""Cost of a page by arithmetic alone: FLOPs, bytes and time bounds of every stage, from shapes."""

from pathlib import Path

PUBLISHED = Path(__file__).with_name("published.json")
"""config.json with the sizes of the published checkpoint."""
