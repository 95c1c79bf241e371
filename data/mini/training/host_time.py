"""Time of the host while the device works."""

import time


class HostTime:
    """Seconds that this process spent in a part of its loop; what it queues on the device takes longer."""

    def __init__(self) -> None:
        self.seconds = self.began = 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self.began

    def take(self) -> float:
        """Take what came together since the last time."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds
