"""``waystation config``: prints the active settings, the sample file or the reference page.

The settings classes of ``server.config`` are the source of all three, so they agree with what ``serve`` accepts.
"""

import os
from pathlib import Path

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption, SetOption
from waystation.cli.output import print_result, split_settings

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Show settings and where they come from.")


@app.command()
def show(
    config: ConfigOption = None, home: HomeOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Check the configuration and show every value with its origin.

    Example: waystation config show --config node.toml
    """
    from waystation.server.config.load import explain, load_config  # noqa: PLC0415 - only this command needs it

    overrides = split_settings(settings, home=home)
    rows = explain(load_config(Path(config) if config else None, os.environ, overrides))
    width = max(len(row.name) for row in rows)
    lines = (f"{row.name:<{width}}  {row.value!r:<24} {row.origin}" for row in rows)
    print_result({row.name: {"value": row.value, "origin": str(row.origin)} for row in rows}, *lines, as_json=as_json)


@app.command()
def sample() -> None:
    """Print a configuration file that holds every default.

    Example: waystation config sample > node.toml
    """
    from waystation.server.config.reference import render_sample  # noqa: PLC0415 - only this command needs it

    typer.echo(render_sample(), nl=False)


@app.command()
def docs() -> None:
    """Print the reference of all settings in Markdown.

    Example: waystation config docs > docs/configuration.md
    """
    from waystation.server.config.reference import render_docs  # noqa: PLC0415 - only this command needs it

    typer.echo(render_docs(), nl=False)
