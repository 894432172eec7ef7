"""Whom the client commands trust over TLS: their two options, and what these come to."""

from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = ["CaOption", "InsecureOption", "ca_or_local"]

_LOCAL_CA: Final = Path("waystation/tls/ca.pem")  # what `waystation init` makes in the folder it runs in

CaOption = Annotated[
    Path | None, typer.Option("--ca", help=f"PEM file of an authority to trust. Default ./{_LOCAL_CA} when it exists.")
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Take any certificate of the relay.")]


def ca_or_local(given: Path | None) -> Path | None:
    """Return the authority that was named, else that of a node in this folder; None leaves it to the system's."""
    return _LOCAL_CA if given is None and _LOCAL_CA.exists() else given
