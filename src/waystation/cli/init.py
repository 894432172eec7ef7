"""``waystation init``: creates the node's key and certificates.

``serve`` makes what is missing too; this command is for a node whose key must be known before it runs. Files that exist
stay.
"""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption, SetOption
from waystation.cli.output import print_json, split_settings
from waystation.core.dids import encode_did
from waystation.core.ids import encode_id52

if TYPE_CHECKING:
    from waystation.server.home import Home

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

NameOption = Annotated[
    list[str] | None,
    typer.Option("--name", help="One more DNS name or IP address the certificate is for; may repeat."),
]


@app.command()
def init(
    home: HomeOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    names: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the node's key and certificates; what is there stays, and --name adds names to the local certificate.

    Example: waystation init --home ./waystation --name relay.example.org
    """
    from waystation.server.config.load import load_config  # noqa: PLC0415 - only this command needs it
    from waystation.server.home import Home, certificate_names  # noqa: PLC0415
    from waystation.server.home.mark import prepare_home  # noqa: PLC0415

    overrides = split_settings(settings, home=home)
    chosen = load_config(Path(config) if config else None, os.environ, overrides)
    place = Home(chosen.node.home)
    made = prepare_home(place, certificate_names(names or [])).made
    note = _add_names(place, names) if names and place.cert_path not in made else ""
    if names and chosen.node.cert:
        note = f"node.cert names {chosen.node.cert}, so listeners do not show the certificate that has these names"
    public = place.key_pair().public
    next_command = _next_command(home, config)
    if as_json:
        print_json(
            {
                "home": str(place.path.resolve()),
                "made": [str(path) for path in made],
                "public_key": public.hex(),
                "id52": encode_id52(public),
                "did": encode_did(public),
                "ca": str(place.ca_path),
                "note": note,
                "next": next_command,
            }
        )
        return
    for path in made:
        typer.echo(f"made   {path}")
    if not made:
        typer.echo(f"ready  {place.path} has everything already")
    if note:
        typer.echo(f"note   {note}")
    typer.echo(f"id52   {encode_id52(public)}")
    typer.echo(f"next   {next_command}")


def _add_names(place: "Home", names: Sequence[str]) -> str:
    """Have the home's certificate signed anew for these names too; return what became of it, in a sentence."""
    from waystation.server.certificates.authority import LocalAuthority  # noqa: PLC0415 - as above

    added = LocalAuthority(place).add_names(names, datetime.datetime.now(datetime.UTC))
    if added is None:
        return (
            f"the certificate stays as it is, because {place.ca_key_path} did not sign it; for one with these names "
            f"move {place.tls_path} away and run this again, then give clients the new ca.pem"
        )
    if not added:
        return "the certificate has these names already"
    return (
        f"the certificate is for {', '.join(added)} too; clients keep their ca.pem, "
        "and a running node shows it within half a minute"
    )


def _next_command(home: str | None, config: str | None) -> str:
    words = ["waystation", "serve"]
    words += ["--config", config] if config else []
    words += ["--home", home] if home else []
    return " ".join(words)
