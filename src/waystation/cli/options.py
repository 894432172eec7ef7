"""Options that several commands share: output format, home folder of a node or identity, trusted TLS authority.

``ca_or_local`` computes the default of ``--ca``; the commands set the defaults of the others.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

__all__ = [
    "CaOption",
    "ConfigOption",
    "HomeOption",
    "InsecureOption",
    "JsonOption",
    "RecipientArgument",
    "SetOption",
    "TextArgument",
    "ca_or_local",
    "count_option",
    "home_option",
]

_LOCAL_CA: Final = Path("waystation/tls/ca.pem")  # what `waystation init` makes in the folder it runs in

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
HomeOption = Annotated[str | None, typer.Option("--home", help="Folder of the node's key, store and journal.")]
ConfigOption = Annotated[str | None, typer.Option("--config", help="TOML file with settings.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help='One setting, as table.key=value; a list as a,b or ["a", "b"]; may repeat.'),
]
CaOption = Annotated[
    Path | None, typer.Option("--ca", help=f"PEM file of an authority to trust. Default ./{_LOCAL_CA} when it exists.")
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Take any certificate of the relay.")]
TextArgument = Annotated[str | None, typer.Argument(help="What to say; - reads it from stdin.")]
RecipientArgument = Annotated[
    str, typer.Argument(help="Public key of the recipient: 64 hexadecimal digits, or its id52.")
]


def home_option(contents: str) -> Any:
    """Return the option ``--home`` of an identity whose folder has ``contents``."""
    return typer.Option("--home", help=f"Folder of this identity, {contents}.")


def count_option(things: str) -> Any:
    """Return the option ``--count``, which ends a command after so many ``things``."""
    return typer.Option("--count", min=0, help=f"End after so many {things}; 0 never ends.")


def ca_or_local(given: Path | None) -> Path | None:
    """Return the authority that was named, else that of a node in this folder; None leaves it to the system's."""
    return _LOCAL_CA if given is None and _LOCAL_CA.exists() else given
