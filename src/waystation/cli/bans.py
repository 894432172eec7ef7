"""``waystation bans``: who is banned from the node that runs on a home, and how to ban and to lift.

The node is asked over its admin port (``NodeClient``); a ban is on disk and in force when the command returns.
"""

import datetime
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote

import typer

from waystation.cli.node_client import NodeClient
from waystation.cli.options import ConfigOption, HomeOption, JsonOption
from waystation.cli.output import print_result, visible
from waystation.core.errors import LocalError

__all__ = ["app", "seconds_of"]

_BANS: Final = "/admin/v1/bans"
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MICROSECONDS: Final = 1_000_000


class _Options(NamedTuple):
    home: str | None
    config: str | None
    as_json: bool

    def node(self) -> NodeClient:
        return NodeClient.find(self.home, self.config)


SubjectArgument = Annotated[
    str,
    typer.Argument(help="Key (id52, hexadecimal or DID), IP address, or network such as 203.0.113.0/24."),
]

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True, add_completion=False)


@app.callback()
def bans(
    context: typer.Context, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show who is banned from the running node, oldest ban first; add and lift change that.

    Example: waystation bans --home ./waystation
    """
    context.obj = _Options(home, config, as_json)
    if context.invoked_subcommand is None:
        _show(context.obj)


@app.command("list")
def list_bans(
    context: typer.Context, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show who is banned, as bans alone does.

    Example: waystation bans list --json
    """
    _show(_merged(context, home, config, as_json=as_json))


@app.command()
def add(
    context: typer.Context,
    subject: SubjectArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever reads the list: 1 to 200 characters.")],
    lasts: Annotated[
        str | None, typer.Option("--for", help="How long, such as 30m, 24h or 7d; for good without it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Ban even everybody, or this machine itself.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ban an identity, an address or a network: its connections end at once, and no new one is taken.

    An IPv6 address stands for its /64. A ban of the same subject replaces the older one.

    Example: waystation bans add 203.0.113.0/24 --reason floods --for 24h
    """
    expires_s = seconds_of(lasts) if lasts is not None else None
    body: dict[str, Any] = {"subject": subject, "reason": reason, "expires_s": expires_s}
    options = _merged(context, home, config, as_json=as_json)
    answer = options.node().ask("POST", _BANS, body | ({"force": True} if force else {}))
    until = f"for {lasts}" if lasts is not None else "for good"
    print_result(answer, f"{visible(subject)} is banned {until}", as_json=options.as_json)


@app.command()
def lift(
    context: typer.Context,
    subject: SubjectArgument,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lift a ban, named as it was banned or as the list shows it.

    Example: waystation bans lift 203.0.113.0/24
    """
    options = _merged(context, home, config, as_json=as_json)
    answer = options.node().ask("DELETE", f"{_BANS}/{quote(subject, safe='/:')}")
    print_result(answer, f"{visible(subject)} is not banned any more", as_json=options.as_json)


def seconds_of(text: str) -> int:
    """Return the seconds of a duration such as 90s, 30m, 24h, 7d or 2w.

    Raises:
        LocalError: It is none, or none at all long.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = int(match[1]) * _SECONDS[match[2]] if match is not None else 0
    if not seconds:
        raise LocalError(f"--for {text!r} is no duration; write a number and s, m, h, d or w, such as 30m, 24h or 7d")
    return seconds


def _merged(context: typer.Context, home: str | None, config: str | None, *, as_json: bool) -> _Options:
    """Return the options of a command, else those that stand before it."""
    before: _Options = context.obj
    if home is None and config is None:
        home, config = before.home, before.config
    return _Options(home, config, as_json or before.as_json)


def _show(options: _Options) -> None:
    answer = options.node().get(_BANS)
    lines = [_line(ban) for ban in answer["bans"]]
    print_result(answer, *(lines or ["nobody is banned"]), as_json=options.as_json)


def _line(ban: Mapping[str, Any]) -> str:
    subject = ban.get("id52") or str(ban["subject"]).partition(":")[2]
    until = f"until {_day(ban['expires_us'])}" if ban["expires_us"] is not None else "for good"
    return visible(f"{subject:<52}  {until:<22}  since {_day(ban['since_us'])}  {ban['reason']}", kept="")


def _day(wall_us: int) -> str:
    moment = datetime.datetime.fromtimestamp(wall_us // _MICROSECONDS, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M}Z"
