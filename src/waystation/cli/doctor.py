"""``waystation doctor``: checks this machine and the node's home, and reports each problem with its remedy.

It collects ``Finding`` values of ``machine_checks``, ``serve_checks``, ``cli.home`` and its own; nothing is changed,
and a node may run on the home meanwhile.
"""

import datetime
import importlib.util
import os
import platform
import socket
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from waystation.cli.home.check import check_mark, check_store
from waystation.cli.machine_checks import Finding, check_clock, check_reachable, check_space
from waystation.cli.options import ConfigOption, HomeOption, JsonOption, SetOption
from waystation.cli.output import EXIT_FAILURE, print_json, split_settings
from waystation.cli.serve_checks import check_start, check_writable, running_pid
from waystation.core.errors import ConfigError, HostError, WaystationError

if TYPE_CHECKING:
    from waystation.server.config.settings import Address
    from waystation.server.config.values import Config
    from waystation.server.home import Home

__all__ = ["app", "check_certificates", "check_home", "check_java", "check_ports"]

app = typer.Typer(rich_markup_mode=None)

_PYTHON_LEAST: Final = (3, 11)
_SQLITE_LEAST: Final = (3, 24, 0)  # first with "ON CONFLICT DO UPDATE", which the store uses


@app.command()
def doctor(
    home: HomeOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check what serve checks, and this machine: disk, clock, ports, addresses; exit 1 when something is wrong.

    Example: waystation doctor --home ./waystation
    """
    from waystation.server.config.load import load_config  # noqa: PLC0415 - only this command needs it
    from waystation.server.home import Home  # noqa: PLC0415

    overrides = split_settings(settings, home=home)
    try:
        chosen = load_config(Path(config) if config else None, os.environ, overrides)
    except ConfigError as error:
        findings = [_check_python(), Finding("config", good=False, says=str(error))]
    else:
        findings = list(_look(chosen, Home(chosen.node.home)))
    good = all(finding.good for finding in findings)
    if as_json:
        print_json({"good": good, "findings": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            typer.echo(f"{_mark(finding)}  {finding.name:<12} {finding.says}")
    if not good:
        raise typer.Exit(EXIT_FAILURE)


def _mark(finding: Finding) -> str:
    if not finding.good:
        return typer.style("FAIL", fg="red", bold=True)
    return typer.style("note", fg="yellow") if finding.note else typer.style("ok  ", fg="green")


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
    if home.cert_path.exists() != home.tls_key_path.exists():
        way_out = "put the missing file back, or move the folder away to have both made anew"
        says = f"{home.tls_path} needs both cert.pem and key.pem; {way_out}"
        return Finding("home", good=False, says=says)
    if (trouble := check_writable(home)) is not None:
        return trouble
    return Finding("home", good=True, says=f"{home.path.resolve()}, secrets are private")


def check_certificates(config: "Config", home: "Home", now: datetime.datetime) -> Iterator[Finding]:
    """Look at the certificate of every listener that speaks TLS, as it stands at ``now`` (aware)."""
    from waystation.server.certificates.report import report_certificates  # noqa: PLC0415 - only this check needs it

    for report in report_certificates(config, home, now):
        yield Finding("certificate", good=report.good, says=report.says)


def check_ports(listeners: "dict[str, Address]", home: "Home") -> Iterator[Finding]:
    """Look whether each address can be bound; the ports of a node that runs on ``home`` are taken by right."""
    from waystation.server.config.ports import DATAGRAM_LISTENERS  # noqa: PLC0415 - only this check needs it

    pid = running_pid(home)
    for name, address in listeners.items():
        kind = socket.SOCK_DGRAM if name in DATAGRAM_LISTENERS else socket.SOCK_STREAM
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
    from waystation.server.config.ports import named_listeners  # noqa: PLC0415 - only this command needs it

    yield _check_python()
    yield _check_loop()
    yield _check_sqlite()
    yield check_home(home)
    if home.path.exists():
        yield check_mark(home)
    yield check_store(home)
    yield from check_certificates(config, home, datetime.datetime.now(datetime.UTC))
    yield from check_start(config, home)
    listeners = named_listeners(config)
    yield from check_ports(listeners, home)
    yield from check_reachable(config, listeners)
    yield check_space(config, home)
    yield check_clock(home, datetime.datetime.now(datetime.UTC))
    yield check_java(os.environ, has_spark=importlib.util.find_spec("pyspark") is not None)


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
    from waystation.transport.addresses import EVERY_ADDRESS, every_place  # noqa: PLC0415 - only this check needs it

    try:
        if address.host == EVERY_ADDRESS:
            family, place = every_place(address.port)
        else:
            family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=kind)[0]
        with socket.socket(family, kind) as probe:
            if family == socket.AF_INET6:  # as the listeners do: one family keeps the port from the other or not
                takes_both = address.host == EVERY_ADDRESS or (kind == socket.SOCK_DGRAM and address.host == "::")
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not takes_both)
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
