"""One piece of work on a device at a time, in order, and it says whose turn it is."""

import threading

import pytest
import torch

from dsocr_core.base.errors import Cancelled
from dsocr_core.engine.device import DeviceLock, device_lock

LONG_S = 60


def test_a_second_worker_waits_and_hears_who_holds_the_device() -> None:
    lock, waiting, done, order = DeviceLock(), threading.Event(), threading.Event(), []

    def second() -> None:
        def on_wait(holder: str) -> None:
            order.append(f"waits for {holder}")
            waiting.set()

        with lock.hold("second", on_wait=on_wait):
            order.append("second runs")
        done.set()

    with lock.hold("first"):
        threading.Thread(target=second, daemon=True).start()
        assert waiting.wait(LONG_S)
        order.append("first ends")
    assert done.wait(LONG_S)
    assert order == ["waits for first", "first ends", "second runs"]


def test_a_waiter_can_be_cancelled_and_leaves_the_queue() -> None:
    lock, cancel = DeviceLock(), threading.Event()
    with lock.hold("first"):
        cancel.set()
        with pytest.raises(Cancelled), lock.hold("second", cancel):
            pytest.fail("the device was held twice")
    with pytest.raises(RuntimeError), lock.hold("third"):
        raise RuntimeError
    with lock.hold("fourth", on_wait=lambda holder: pytest.fail(f"{holder} still holds the device")):
        pass
    assert device_lock(torch.device("cuda")) is device_lock(torch.device("cuda:0"))
    assert device_lock(torch.device("cpu")) is not device_lock(torch.device("cuda:0"))
