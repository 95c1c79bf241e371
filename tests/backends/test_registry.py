"""Backends opened by their specification, and read through the protocol."""

from pathlib import Path
from typing import Any

from dsocr_core.settings import Settings
from tests.support.sessions import StandIn, session_of


def test_each_side_reads_with_its_own_request_and_is_cached_under_its_engines_name(tmp_path: Path) -> None:
    (page := tmp_path / "page.png").write_bytes(b"pixels")
    own = {"spec": "eager", "name": "mine", "preset": "base", "infer.max_new_tokens": 5}
    session = session_of(Settings(device="cpu", b=own), tmp_path / "results", StandIn())
    backend: Any = session.side("b")
    backend._engine = StandIn()
    request = session.settings.request(page)
    comparison = session.compare(request)
    assert comparison.a is not None and comparison.b is not None and comparison.errors == {}
    assert (comparison.a.backend, comparison.b.backend) == ("eager", "mine")
    assert (comparison.a.request.preset, comparison.b.request.preset) == ("small", "base")
    assert comparison.b.request.max_new_tokens == 5
    assert session.cache_key("a", request) != session.cache_key("b", request)
    again = session.recorded(request)
    assert again is not None and again.b is not None and again.b.backend == "mine"
    found = backend.results.find(comparison.b.request, ("a",))
    assert found is not None and found.a is not None and found.a.backend == "eager"
