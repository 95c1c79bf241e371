"""`serve`: our engines behind OpenAI's chat completions."""

from __future__ import annotations

import logging

from rich.console import Console

from dsocr_core.base.console import OK
from dsocr_core.cli.options import AnyNumber
from dsocr_core.cli.run import of_this_machine
from dsocr_core.settings import Settings, SettingsError


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: AnyNumber = 8000,
    model_name: str = "",
    allowed_host: tuple[str, ...] = (),
    slots: int = 64,
    console: Console,
) -> int:
    """Serve an engine of ours as OpenAI's chat completions. To test client code against, and the backend
    `endpoint`: the eager engine gives the published code's tokens bit for bit.

    Args:
        host: address to listen at; another than 127.0.0.1 lets everybody in who reaches it
        port: port to listen at; 0 is any that is free
        model_name: what clients call the model (default: the checkpoint's folder)
        allowed_host: name by which clients ask for it, besides those of this machine; may be repeated
        slots: pages that the fast engine reads together
    """
    settings = of_this_machine(settings).for_comparison()
    if port >= 65536:
        raise SettingsError(f"--port is {port}: give 0 to 65535")
    if host not in ("127.0.0.1", "localhost"):
        logging.getLogger(__name__).warning(
            "%s: whoever reaches this address can use the engine; there is no login", host
        )
    # Torch comes with it: only once the command line is known to be good.
    from dsocr_core.serve.server import Place
    from dsocr_core.serve.server import serve as listen

    def ready(address: str) -> None:
        console.print(f"{settings.engine} at {address}", markup=False, highlight=False)

    place = Place(host, port, allowed_host)
    listen(settings, place, model_name, slots, ready)
    return OK
