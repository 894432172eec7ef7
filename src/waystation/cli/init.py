"""``waystation init``: make the node's key and certificates."""

import os
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.output import ConfigOption, HomeOption, JsonOption, SetOption, print_json, split_settings
from waystation.core.dids import encode_did
from waystation.core.ids import encode_id52

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
    """Make the node's key and certificates; what is there stays as it is.

    Example: waystation init --home ./waystation --name relay.example.org
    """
    from waystation.server.config import load_config  # noqa: PLC0415 - only this command needs it
    from waystation.server.home import Home, certificate_names  # noqa: PLC0415

    overrides = split_settings(settings, home=home)
    place = Home(load_config(Path(config) if config else None, os.environ, overrides).node.home)
    made = place.ensure(names=certificate_names(names or []))
    kept = bool(names) and place.cert_path not in made
    note = _how_to_replace(place.tls_path) if kept else ""
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


def _how_to_replace(folder: Path) -> str:
    return (
        f"the certificate stays as it is; for one with these names move {folder} away and run this again, "
        "then give clients the new ca.pem"
    )


def _next_command(home: str | None, config: str | None) -> str:
    words = ["waystation", "serve"]
    words += ["--config", config] if config else []
    words += ["--home", home] if home else []
    return " ".join(words)
