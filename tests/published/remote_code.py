"""The reference's remote code as plain modules, imported as one package from data/mini."""

import importlib
import importlib.util
import sys
from functools import lru_cache
from types import ModuleType

import numpy as np

from tests.support.seeded_weights import REMOTE_CODE

PACKAGE = "reference_remote_code"


def remote_module(name: str) -> ModuleType:
    """The module `data/mini/<name>.py`, with its relative imports working."""
    if PACKAGE not in sys.modules:
        package = ModuleType(PACKAGE)
        package.__path__ = [str(REMOTE_CODE)]
        sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.{name}")


@lru_cache(maxsize=16)
def published_page(width: int, height: int) -> np.ndarray:
    """The page of `preprocess.json` and `forward.json`: (height, width, 3) uint8."""
    y, x = np.ogrid[:height, :width]
    first = (x * 7 + y * 13 + (x * y) // 97).astype(np.uint8)  # modulo 256, as every sum below
    return np.stack([first + np.uint8(k * 29) for k in range(3)], axis=-1)
