"""Sums of what drafts gave."""

from __future__ import annotations

from dsocr_core.engine.drafts.given import Given


def test_sums_over_pages_are_what_their_environments_say() -> None:
    given = Given()
    given.add({"draft_passes": "10", "draft_drafted": "40", "draft_accepted": "30", "draft_won": "2.0"})
    given.add({"draft": "text-layer"})  # no draft of this page
    given.add({"draft_passes": "none", "draft_drafted": "1", "draft_accepted": "1"})  # of an imported run
    given.add({"draft_passes": "-1", "draft_drafted": "1", "draft_accepted": "1"})
    assert given.document() == {
        "passes": 10, "drafted": 40, "accepted": 30, "tokens_a_pass": 4.0, "acceptance": 0.75,
    }  # fmt: skip
    assert given.words == "drafts: 4.00 tokens a pass, 75% of the drafted tokens accepted"
    assert Given().document() is None and Given().words == ""
