"""Loads the node's configuration from flags, environment, file and defaults, in this precedence, and checks it.

``serve`` and other commands get a ``Config`` from it. An unknown key or a bad value is an error that names its source
and the allowed values. It is never ignored, because a typo in a limit would otherwise disable the limit.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, get_origin, get_type_hints

from waystation.core.errors import ConfigError, LocalError
from waystation.core.tomllines import find_line
from waystation.server.config.access_checks import check_access
from waystation.server.config.admin_checks import check_hosts
from waystation.server.config.checks import check_tls_files, run_checks
from waystation.server.config.parts import PARTS, TABLES, Part, fields_of
from waystation.server.config.policy_checks import check_allowed, check_policy_key
from waystation.server.config.ports import check_ports_apart
from waystation.server.config.proxy_checks import check_proxy_protocol, check_trusted_proxies, tcp_listeners
from waystation.server.config.settings import PlainValue, admit, allowed_values, plain_value
from waystation.server.config.values import DEFAULT, Config, Origin, Sources
from waystation.server.config.web_ports import check_web_ports
from waystation.server.registry import protocol_tables

__all__ = ["Change", "Explained", "changes", "explain", "load_config", "reload_config"]

_PREFIX: Final = "WAYSTATION_"
_LIST_FORMS: Final = 'texts joined by commas, such as a,b, or a TOML array, such as ["a", "b"]'
_OF_OTHERS: Final = "pipeline"  # a table that may be in the same file; the pipeline checks it (pipeline.config)
_SYNTAX_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


class _Given(NamedTuple):
    """One value that the file, the environment or a flag gives."""

    table: str
    key: str
    value: Any
    origin: Origin
    is_text: bool
    """True when the value is still text, from the environment or a flag."""


def load_config(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str]) -> Config:
    """Read and check the configuration.

    Args:
        path: TOML file, or None for none.
        environ: Environment; names ``WAYSTATION_TABLE__KEY`` count, in any case.
        overrides: Texts of flags by "table.key".

    Raises:
        ConfigError: A key is unknown, a value is not allowed, or the file is no TOML; names the place.
    """
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for given in (*_from_file(path), *_from_environment(environ), *_from_flags(overrides)):
        value = _admitted(given)
        values[f"{given.table}.{given.key}"] = value
        origins[f"{given.table}.{given.key}"] = given.origin
    ours = {name: text for name, text in environ.items() if name.upper().startswith(_PREFIX)}
    parts = {part.owner: part.owner(**_values_of(part, values)) for part in PARTS}
    config = Config(parts, origins, Sources(path, ours, dict(overrides)))
    _check_together(config)
    return config


def reload_config(config: Config) -> Config:
    """Read the sources of ``config`` again, the same environment and flags over the file as it is now.

    Raises:
        ConfigError: As ``load_config``; the caller keeps the old configuration as a whole.
    """
    return load_config(config.sources.path, config.sources.environ, config.sources.overrides)


class Change(NamedTuple):
    """One key that differs between two configurations."""

    name: str
    """"table.key"."""
    reloads: bool
    """True when SIGHUP applies it, False when it needs a restart."""


def changes(old: Config, new: Config) -> list[Change]:
    """Return the keys whose values differ, in the order of the file."""
    return [
        Change(f"{table}.{declared.name}", declared.metadata["reload"])
        for table in TABLES
        for part, declared in fields_of(table)
        if _value(old, part, declared.name) != _value(new, part, declared.name)
    ]


class Explained(NamedTuple):
    """One key with its value and where that came from."""

    name: str
    """"table.key"."""
    value: PlainValue
    """As the file writes it."""
    origin: Origin


def explain(config: Config) -> list[Explained]:
    """Return every key with its value and origin, in the order of the file."""
    return [
        Explained(name, plain_value(_value(config, part, declared.name)), config.origins.get(name, DEFAULT))
        for table in TABLES
        for part, declared in fields_of(table)
        for name in [f"{table}.{declared.name}"]
    ]


def _value(config: Config, part: Part, name: str) -> Any:
    return getattr(config.of(part.owner), name)


def _values_of(part: Part, values: Mapping[str, Any]) -> dict[str, Any]:
    names = get_type_hints(part.owner)
    return {name: values[f"{part.table}.{name}"] for name in names if f"{part.table}.{name}" in values}


def _from_file(path: Path | None) -> Iterator[_Given]:
    if path is None:
        return
    text, document = _read(path)
    for table, keys in document.items():
        if table == _OF_OTHERS:
            continue
        if table not in TABLES:
            raise Origin(str(path), find_line(text, table)).refuse(_unknown("table", table, TABLES))
        yield from _from_table(path, text, table, keys)


def _from_table(path: Path, text: str, table: str, keys: Any) -> Iterator[_Given]:
    """Yield the keys of a table of the file, and of the tables inside it."""
    names = table.split(".")
    if not isinstance(keys, dict):
        raise Origin(str(path), find_line(text, *names)).refuse(f"{table} is a table; write [{table}]")
    for key, value in keys.items():
        if f"{table}.{key}" in TABLES:
            yield from _from_table(path, text, f"{table}.{key}", value)
        else:
            yield _Given(table, key, value, Origin(str(path), find_line(text, *names, key)), is_text=False)


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_bytes().decode().replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", origin=path) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", origin=path, line=line) from error
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _SYNTAX_PLACE.search(str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines()) or 1
        raise ConfigError(f"not TOML: {_SYNTAX_PLACE.sub('', str(error))}", origin=path, line=line) from error


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name in sorted(environ):
        if not name.upper().startswith(_PREFIX):
            continue
        origin = Origin(f"environment {name}")
        tables, separator, key = name[len(_PREFIX) :].lower().rpartition("__")
        table = tables.replace("__", ".") if separator else key
        if table.partition(".")[0] == _OF_OTHERS:
            continue
        if separator:
            yield _Given(table, key, environ[name], origin, is_text=True)
        elif (guess := _two_underscores(name)) is not None:
            raise origin.refuse(f"a table and its key are joined by two underscores; did you mean {guess}?")


def _two_underscores(name: str) -> str | None:
    """Return the name that was meant when a key was joined to its table by one underscore; other tools' names pass."""
    table, _, key = name[len(_PREFIX) :].lower().partition("_")
    known = {declared.name for _, declared in fields_of(table)}
    return f"{_PREFIX}{table.upper()}__{key.upper()}" if key in known else None


def _from_flags(overrides: Mapping[str, str]) -> Iterator[_Given]:
    for name, text in overrides.items():
        origin = Origin(f"flag {name}")
        table, separator, key = name.rpartition(".")
        if not separator:
            raise origin.refuse("a setting is named table.key, such as bhumi.tls")
        yield _Given(table, key, text, origin, is_text=True)


def _admitted(given: _Given) -> Any:
    """Return the value of one given key as its field holds it, or refuse it where it came from."""
    if given.table not in TABLES:
        raise given.origin.refuse(_unknown("table", given.table, TABLES))
    fields = {declared.name: part.owner for part, declared in fields_of(given.table)}
    if given.key not in fields:
        inner = (table.rpartition(".")[2] for table in TABLES if table.rpartition(".")[0] == given.table)
        raise given.origin.refuse(_unknown(f"key in [{given.table}]", given.key, (*fields, *inner)))
    if reason := _not_in_this_version(given.table, given.key, given.value):
        raise given.origin.refuse(reason)
    owner = fields[given.key]
    try:
        value = _from_text(owner, given.key, given.value) if given.is_text else given.value
        return admit(owner, given.key, value)
    except LocalError as error:
        forms = f" ({_LIST_FORMS})" if given.is_text and get_type_hints(owner)[given.key] == list[str] else ""
        raise given.origin.refuse(f"{given.table}.{error}{forms}") from error


def _from_text(owner: type[Any], name: str, text: str) -> Any:
    """Return a text from the environment or a flag as the file would have given it; what does not fit stays text."""
    kind = get_type_hints(owner)[name]
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is int and re.fullmatch(r"[+-]?[0-9][0-9_]*", text):
        return int(text)
    if kind == list[str] or (get_origin(kind) is list and text.strip().startswith("[")):
        return _list_from_text(owner, name, text)
    if kind == dict[str, str]:
        pairs = (part.rpartition("=") for part in text.split(",") if part.strip())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return text


def _list_from_text(owner: type[Any], name: str, text: str) -> Any:
    """Return the list that "a,b" or a TOML array names.

    Raises:
        LocalError: The text begins as an array and is none.
    """
    if not text.strip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tomllib.loads(f"{name} = {text.strip()}")[name]
    except tomllib.TOMLDecodeError as error:
        raise LocalError(f"{name} = {text!r} is not allowed; allowed: {allowed_values(owner, name)}") from error


def _not_in_this_version(table: str, key: str, value: object) -> str | None:
    if (table, key) == ("bus", "url") and value:
        return "bus.url is set, but this version runs as one process and has no bus; leave it empty"
    if (table, key) == ("store", "url") and str(value).startswith("postgres"):
        return 'store.url names PostgreSQL, which this version cannot use; allowed: one of "sqlite", "memory"'
    return None


def _unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"; did you mean {near[0]}?" if near else ""
    return f"unknown {what}: {name}{guess} (known: {', '.join(known)})"


def _check_together(config: Config) -> None:
    """Check what depends on several values."""
    policy = config.policy
    checks = {"key": lambda: check_policy_key(policy.key), "allow": lambda: check_allowed(policy.allow)}
    run_checks(config, "policy", checks)
    lists = ("allow", "deny", "unlimited")
    run_checks(config, "access", {name: partial(check_access, config.access, name) for name in lists})
    run_checks(config, "admin", {"hosts": lambda: check_hosts(config.admin.hosts)})
    listeners = [name for table in protocol_tables() for name in tcp_listeners(table.name, table.listen)]
    about_proxies = {
        "trusted_proxies": lambda: check_trusted_proxies(config.node),
        "proxy_protocol": lambda: check_proxy_protocol(config.node, listeners),
    }
    run_checks(config, "node", about_proxies)
    check_tls_files(config, "node", config.node)
    for table in protocol_tables():
        table.check(config)
    check_web_ports(config)
    check_ports_apart(config)
