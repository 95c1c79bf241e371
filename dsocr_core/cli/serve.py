"""`serve`: our engines behind OpenAI's chat completions."""

from __future__ import annotations

import logging
from typing import Any

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.cli.options import add_settings, add_subcommand, require_positive, settings_of
from dsocr_core.console import OK
from dsocr_core.settings import SettingsError

_DESCRIPTION = (
    "Serve an engine of ours as OpenAI's chat completions. To test client code against, and the backend "
    "`endpoint`: the eager engine gives the published code's tokens bit for bit."
)


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "serve", _DESCRIPTION)
    host = "address to listen at; another than 127.0.0.1 lets everybody in who reaches it"
    parser.add_argument("--host", type=str, default="127.0.0.1", help=host)
    parser.add_argument("--port", type=int, default=8000, help="port to listen at; 0 is any that is free")
    name = "what clients call the model (default: the checkpoint's folder)"
    parser.add_argument("--model-name", type=str, default="", help=name)
    hosts = "name by which clients ask for it, besides those of this machine; may be repeated"
    parser.add_argument("--allowed-host", type=str, action="append", default=[], help=hosts)
    slots = "pages that the fast engine reads together"
    parser.add_argument("--slots", type=int, default=64, help=slots)
    add_settings(parser)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    settings = settings_of(chosen).for_comparison()
    require_positive(chosen, "slots")
    if not 0 <= chosen.port < 65536:
        raise SettingsError(f"port is {chosen.port}: give 0 to 65535")
    if chosen.host not in ("127.0.0.1", "localhost"):
        logging.getLogger(__name__).warning(
            "%s: whoever reaches this address can use the engine; there is no login", chosen.host
        )
    # Torch comes with it: only once the command line is known to be good.
    from dsocr_core.serve.server import Place, serve

    def ready(address: str) -> None:
        console.print(f"{settings.engine} at {address}", markup=False, highlight=False)

    place = Place(chosen.host, chosen.port, chosen.allowed_host)
    serve(settings, place, chosen.model_name, chosen.slots, ready)
    return OK
