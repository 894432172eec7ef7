"""``waystation serve``: runs the node in this process.

It loads the configuration, prepares the home and calls ``server.node.run``, whose exit code it returns.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.options import ConfigOption, HomeOption, SetOption
from waystation.cli.output import split_settings

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def serve(
    config: ConfigOption = None,
    home: HomeOption = None,
    settings: SetOption = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="auto, console or json.")] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
) -> None:
    """Run the node until SIGTERM or Ctrl-C; one JSON line on stdout says when it is ready, logs go to stderr.

    Missing keys and certificates are made first. The port of MERK has a page for browsers: the log has its address.

    Example: waystation serve --home ./waystation --set bhumi.tls=127.0.0.1:0
    """
    from waystation.server.certificates.named_files import check_named_files  # noqa: PLC0415 - only this command needs
    from waystation.server.config.load import load_config  # noqa: PLC0415
    from waystation.server.home import Home  # noqa: PLC0415
    from waystation.server.home.mark import damage_explained, prepare_home  # noqa: PLC0415

    overrides = split_settings(settings, home=home, log_format=log_format, log_level=log_level)
    chosen = load_config(Path(config) if config else None, os.environ, overrides)
    check_named_files(chosen)
    place = Home(chosen.node.home)
    place.make_folder()
    with place.lock(), damage_explained(place):
        prepared = prepare_home(place, uses_store=chosen.store.url != "memory")
        place.check_secrets()
        from waystation.console.site import StaticSite  # noqa: PLC0415 - as above
        from waystation.server.home.keeper import log_prepared  # noqa: PLC0415 - as below
        from waystation.server.logs import configure_logs  # noqa: PLC0415 - half a second that a refusal need not wait
        from waystation.server.node import run  # noqa: PLC0415

        configure_logs(chosen.node.log_format, chosen.node.log_level)
        log_prepared(place, prepared)
        code = run(chosen, place, StaticSite().answer)
    raise typer.Exit(code)
