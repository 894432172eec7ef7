"""``waystation id``: shows the node's public key, as hexadecimal digits, id52 (Bhumi) and DID (Strata)."""

import os
from pathlib import Path

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption
from waystation.cli.output import print_result, split_settings
from waystation.core.dids import encode_did
from waystation.core.ids import encode_id52

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def show(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the node's public key in its three spellings: hexadecimal, id52 (Bhumi) and DID (Strata).

    Example: waystation id --home ./waystation --json
    """
    from waystation.server.config.load import load_config  # noqa: PLC0415 - only this command needs it
    from waystation.server.home import Home  # noqa: PLC0415

    overrides = split_settings(None, home=home)
    place = Home(load_config(Path(config) if config else None, os.environ, overrides).node.home)
    public = place.key_pair().public
    spellings = {"public_key": public.hex(), "id52": encode_id52(public), "did": encode_did(public)}
    print_result(spellings, *(f"{name:<11} {text}" for name, text in spellings.items()), as_json=as_json)
