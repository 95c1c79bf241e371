"""The fast engine: eight decoded tokens a graph, the sequence's state on the device.

`packed` names the weights, `step` launches the kernels of one token, `cuda_graph` captures steps,
`decode` replays them group after group. Needs triton, which torch's CUDA builds bring.
"""

from importlib.util import find_spec

from dsocr_core.base.errors import DsocrError


class FastEngineUnavailableError(DsocrError):
    """This machine cannot run the fast engine; says what is missing."""


def require_fast_engine(device: str) -> None:
    """Raise FastEngineUnavailableError, which says what is missing, unless kernels can run on `device`.

    To be called before anything else of this package is imported.
    """
    if find_spec("triton") is None:
        raise FastEngineUnavailableError(
            "engine 'fast' needs triton, which comes with torch's CUDA build: "
            "install that, or use --engine eager"
        )
    if not device.startswith("cuda"):
        raise FastEngineUnavailableError(
            f"engine 'fast' runs on a CUDA device, not on {device}: use --engine eager"
        )
