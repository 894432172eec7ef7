"""``waystation doctor``: say what this machine lacks, and what to do about it."""

import contextlib
import datetime
import importlib.util
import os
import platform
import socket
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from waystation.cli.output import (
    EXIT_FAILURE,
    ConfigOption,
    HomeOption,
    JsonOption,
    SetOption,
    print_json,
    split_settings,
)
from waystation.core.errors import HostError, WaystationError

if TYPE_CHECKING:
    from waystation.server.config import Config
    from waystation.server.home import Home
    from waystation.server.settings import Address

__all__ = ["Finding", "app", "check_certificate", "check_home", "check_java", "check_ports", "check_store"]

app = typer.Typer(rich_markup_mode=None)

_PYTHON_LEAST: Final = (3, 11)
_SQLITE_LEAST: Final = (3, 24, 0)  # first with "ON CONFLICT DO UPDATE", which the store uses
_STORE_WAY_OUT: Final = "put a copy back, or move it away to begin without bans"
_DATAGRAM_LISTENERS: Final = ("lprp.udp",)
_RENEW: Final = datetime.timedelta(days=30)


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    good: bool
    says: str


@app.command()
def doctor(
    home: HomeOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, the node's home, its store, certificate and ports; exit 1 when something is wrong.

    Example: waystation doctor --home ./waystation
    """
    from waystation.server.config import load_config  # noqa: PLC0415 - only this command needs it
    from waystation.server.home import Home  # noqa: PLC0415

    overrides = split_settings(settings, home=home)
    chosen = load_config(Path(config) if config else None, os.environ, overrides)
    findings = list(_look(chosen, Home(chosen.node.home)))
    good = all(finding.good for finding in findings)
    if as_json:
        print_json({"good": good, "findings": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            mark = typer.style("ok  ", fg="green") if finding.good else typer.style("FAIL", fg="red", bold=True)
            typer.echo(f"{mark}  {finding.name:<12} {finding.says}")
    if not good:
        raise typer.Exit(EXIT_FAILURE)


def check_home(home: "Home") -> Finding:
    """Look whether the home is there, belongs to us alone and holds a readable key."""
    if not home.path.exists():
        return Finding("home", good=True, says=f"{home.path} is not made yet; run: waystation init --home {home.path}")
    if not os.access(home.path, os.R_OK | os.W_OK | os.X_OK):
        return Finding("home", good=False, says=f"{home.path} cannot be written by this user")
    try:
        home.check_secrets()
        if home.key_path.exists():
            home.key_pair()
    except WaystationError as error:
        return Finding("home", good=False, says=str(error))
    return Finding("home", good=True, says=f"{home.path.resolve()}, secrets are private")


def check_store(path: Path) -> Finding:
    """Look whether the database in ``path`` is whole; nothing is written into it."""
    if not path.exists():
        return Finding("store", good=True, says=f"{path} is not made yet")
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return Finding("store", good=False, says=f"the store {path} cannot be opened: {error}; {_STORE_WAY_OUT}")
    if verdict != "ok":
        return Finding("store", good=False, says=f"the store {path} is damaged: {verdict}; {_STORE_WAY_OUT}")
    return Finding("store", good=True, says=f"{path} is whole")


def check_certificate(path: Path, now: datetime.datetime) -> Finding:
    """Look whether the certificate in ``path`` is good for more than a month after ``now`` (aware)."""
    from waystation.crypto.certificates import expires_at  # noqa: PLC0415 - only this check needs it

    if not path.exists():
        return Finding("certificate", good=True, says=f"{path} is not made yet")
    try:
        end = expires_at(path.read_bytes())
    except (OSError, ValueError) as error:
        return Finding("certificate", good=False, says=f"{path} cannot be read: {error}")
    says = f"{path} is good until {end:%Y-%m-%d}"
    if end - now > _RENEW:
        return Finding("certificate", good=True, says=says)
    says += f"; renew it, or move {path.parent} away and run waystation init for a new local one"
    return Finding("certificate", good=False, says=says)


def check_ports(listeners: "dict[str, Address]", home: "Home") -> Iterator[Finding]:
    """Look whether each address can be bound; the ports of a node that runs on ``home`` are taken by right."""
    pid = home.locked_by() if home.path.exists() else None
    for name, address in listeners.items():
        kind = socket.SOCK_DGRAM if name in _DATAGRAM_LISTENERS else socket.SOCK_STREAM
        reason = _cannot_bind(address, kind)
        if reason is None:
            yield Finding("port", good=True, says=f"{name} {address} is free")
        elif pid is not None:
            yield Finding(
                "port", good=True, says=f"{name} {address} is taken; the node of this home runs (process {pid})"
            )
        else:
            yield Finding("port", good=False, says=f"{name} {address}: {reason}; try --set {name}=127.0.0.1:0")


def check_java(environ: Mapping[str, str], *, has_spark: bool) -> Finding:
    """Look which Java the pipeline would take; ``pipeline.java`` has the rule."""
    if not has_spark:
        return Finding("java", good=True, says='not needed; for reports: pip install "waystation[spark]"')
    from waystation.pipeline.java import choose_java  # noqa: PLC0415 - only this check needs it

    try:
        choice = choose_java(environ)
    except HostError as error:
        return Finding("java", good=False, says=str(error))
    return Finding("java", good=True, says=f"{choice.version}: {choice.why}")


def _look(config: "Config", home: "Home") -> Iterator[Finding]:
    yield _check_python()
    yield _check_loop()
    yield _check_sqlite()
    yield check_home(home)
    yield check_store(home.store_path)
    cert = Path(config.bhumi_listen.cert) if config.bhumi_listen.cert else home.cert_path
    yield check_certificate(cert, datetime.datetime.now(datetime.UTC))
    yield from check_ports(_listeners(config), home)
    yield check_java(os.environ, has_spark=importlib.util.find_spec("pyspark") is not None)


def _listeners(config: "Config") -> "dict[str, Address]":
    relay = config.bhumi_listen
    named = {"admin.listen": config.admin.listen}
    if relay.enabled:
        named |= {"bhumi.tls": relay.tls, "bhumi.plain": relay.plain}
    if config.bsp_listen.enabled:
        named |= {
            "bsp.tls": config.bsp_listen.tls,
            "bsp.plain": config.bsp_listen.plain,
            "bsp.box": config.bsp_listen.box,
        }
    if config.lprp_listen.enabled:
        named |= {"lprp.udp": config.lprp_listen.udp}
    if config.merk_listen.enabled:
        named |= {"merk.ws": config.merk_listen.ws}
    if config.strata_listen.enabled and not config.shares_port:
        named |= {"strata.ws": config.strata_listen.ws}
    return {name: address for name, address in named.items() if address is not None}


def _check_python() -> Finding:
    return Finding(
        "python", good=sys.version_info >= _PYTHON_LEAST, says=f"{platform.python_version()} (3.11 or newer)"
    )


def _check_loop() -> Finding:
    if importlib.util.find_spec("uvloop") is None:
        return Finding("event loop", good=True, says="asyncio's own; uvloop is not installed and would be faster")
    return Finding("event loop", good=True, says="uvloop")


def _check_sqlite() -> Finding:
    least = ".".join(map(str, _SQLITE_LEAST))
    good = sqlite3.sqlite_version_info >= _SQLITE_LEAST
    return Finding("sqlite", good=good, says=f"{sqlite3.sqlite_version} ({least} or newer)")


def _cannot_bind(address: "Address", kind: int) -> str | None:
    try:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=kind)[0]
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_DGRAM:  # the option that frees a port of TCP would share one of UDP
                probe.bind(place)
                return None
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            # Binding alone succeeds beside a listener on some systems; listening does not.
            probe.listen(1)
    except OSError as error:
        return error.strerror or str(error)
    return None
