"""Where the tests find the project, its data and the published facts that lie beside it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
MINI = DATA / "mini"
SAMPLES = DATA / "samples"
PUBLISHED = ROOT / "tests" / "published"
"""Facts of the published code: grids, hashes, numbers; docs of each in its test."""
SHARED = ROOT.parent / "shared"
"""Facts of the published code and prior runs. A test that needs them skips where they are absent."""
APPS = ROOT / "tests" / "support" / "apps"
"""Pages of the app on made-up data, for the browser tests."""
