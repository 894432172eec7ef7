"""Prints the results and errors of all commands, and defines their exit codes.

Exit codes: 0 ok, 1 failure, 2 usage, 3 configuration, 4 port or permission, 5 store or bus, 6 conformance, 130
interrupted. A ``LocalError`` that is no ``ConfigError`` is a usage error, because the request was impossible.
"""

import json
from typing import Any, Final

import typer

from waystation.core.errors import ConfigError, HostError, LocalError, WaystationError

__all__ = [
    "EXIT_CONFIG",
    "EXIT_FAILURE",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "WANTS_JSON",
    "exit_code_of",
    "print_json",
    "print_result",
    "report_error",
    "split_settings",
    "visible",
]

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 3
EXIT_INTERRUPTED: Final = 130  # what shells report for a program that Ctrl-C ended

WANTS_JSON: Final = "waystation.json"
"""Key in the click context's ``meta``: whether the command was called with --json."""


def print_json(document: Any) -> None:
    """Print one line of JSON on stdout; of others' texts nothing in it steers a terminal or has no UTF-8."""
    line = json.dumps(document, ensure_ascii=False)
    if not line.isprintable():  # what is not, stands within strings, where JSON may escape anything
        line = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
    typer.echo(line)


def print_result(document: Any, *lines: str, as_json: bool) -> None:
    """Print a result on stdout: one line of JSON for programs, ``lines`` for people."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        typer.echo(line)


def exit_code_of(error: WaystationError) -> int:
    """Return what the process exits with after ``error``."""
    if isinstance(error, ConfigError):
        return EXIT_CONFIG
    if isinstance(error, HostError):
        return error.exit_code
    return EXIT_USAGE if isinstance(error, LocalError) else EXIT_FAILURE


def report_error(error: WaystationError, *, as_json: bool) -> None:
    """Say what went wrong: one sentence on stderr, or one JSON object on stdout."""
    if not as_json:
        typer.echo(visible(f"waystation: {error}"), err=True)
        return
    print_json({"error": str(error), "kind": type(error).__name__, "exit_code": exit_code_of(error)})


def visible(text: str, *, kept: str = "\n\t") -> str:
    """Return text with control characters escaped, but those ``kept``: a text of a peer must not steer a terminal."""
    return "".join(each if each.isprintable() or each in kept else repr(each)[1:-1] for each in text)


def split_settings(settings: list[str] | None, *, home: str | None = None, **flags: str | None) -> dict[str, str]:
    """Return --set texts and dedicated flags as overrides by "table.key"; a dedicated flag wins.

    Args:
        settings: Texts "table.key=value".
        home: Value of --home.
        flags: Values of other flags of [node], by key.

    Raises:
        ConfigError: A text has no "=".
    """
    overrides = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(
                "a setting is given as table.key=value, such as bhumi.tls=127.0.0.1:0", origin=f"flag {text}"
            )
        overrides[name.strip()] = value.strip()
    dedicated = {"home": home, **flags}
    return overrides | {f"node.{key}": value for key, value in dedicated.items() if value is not None}
