"""Options with which a kernel is launched."""

from dsocr_core.kernels.launch import EARLY, LATE, Launch


def test_dependent_and_early_launches_set_their_options() -> None:
    assert Launch(8).options() == {"PDL": 0, "num_warps": 4}
    assert Launch(8, dependent=True).options() == {"PDL": LATE, "num_warps": 4, "launch_pdl": True}
    assert Launch(8, dependent=True, early=True).options()["PDL"] == EARLY
