"""The node's configuration: flag over environment over file over default, each value checked where it came from.

An unknown key or a bad value is refused with the place it came from and what is allowed there, never ignored: a typo in
a limit must not leave the node without one.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, get_origin, get_type_hints

from waystation.core.errors import ConfigError, LocalError
from waystation.core.tomllines import find_line
from waystation.protocols.bhumi.settings import BhumiSettings, check_address
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.merk.settings import MerkSettings, check_url
from waystation.protocols.strata.settings import (
    StrataSettings,
    check_capabilities,
    read_roots,
    read_static_dids,
    read_upstreams,
)
from waystation.server.bsp_checks import checks_of
from waystation.server.policy_checks import check_allowed, check_policy_key
from waystation.server.settings import (
    PARTS,
    AdminSettings,
    BhumiListenSettings,
    BspListenSettings,
    BusSettings,
    JournalSettings,
    LimitSettings,
    ListenSettings,
    LprpListenSettings,
    MerkListenSettings,
    NodeSettings,
    Part,
    PlainValue,
    PolicySettings,
    StoreSettings,
    StrataListenSettings,
    admit,
    allowed_values,
    fields_of,
    merk_paths,
    plain_value,
)

__all__ = ["Change", "Config", "Explained", "Origin", "changes", "explain", "load_config", "reload_config"]

_PREFIX: Final = "WAYSTATION_"
_LIST_FORMS: Final = 'texts joined by commas, such as a,b, or a TOML array, such as ["a", "b"]'
_TABLES: Final = tuple(dict.fromkeys(part.table for part in PARTS))
_OF_OTHERS: Final = "pipeline"  # a table that may stand in the same file; the pipeline checks it (pipeline.config)
_PATH: Final = re.compile(r"/[!-\"$->@-~]*")
_MERK_PATHS: Final = ("merk.paths", "merk.mesh_path")
_SYNTAX_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


class Origin(NamedTuple):
    """Where a value came from."""

    source: str
    """Path of the file, "environment NAME", "flag table.key", or "default"."""
    line: int | None = None
    """1-based line in the file."""

    def refuse(self, message: str) -> ConfigError:
        """Return the error that names this place."""
        return ConfigError(message, origin=self.source, line=self.line)

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


DEFAULT: Final = Origin("default")


class _Given(NamedTuple):
    """One value that somebody gave."""

    table: str
    key: str
    value: Any
    origin: Origin
    is_text: bool
    """True when the value is still text, from the environment or a flag."""


@dataclass(frozen=True, slots=True)
class _Sources:
    path: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """One checked configuration; build it with ``load_config``."""

    node: NodeSettings = field(default_factory=NodeSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    bus: BusSettings = field(default_factory=BusSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    bhumi_listen: BhumiListenSettings = field(default_factory=BhumiListenSettings)
    bhumi: BhumiSettings = field(default_factory=BhumiSettings)
    bsp_listen: BspListenSettings = field(default_factory=BspListenSettings)
    bsp: BspSettings = field(default_factory=BspSettings)
    lprp_listen: LprpListenSettings = field(default_factory=LprpListenSettings)
    lprp: LprpSettings = field(default_factory=LprpSettings)
    merk_listen: MerkListenSettings = field(default_factory=MerkListenSettings)
    merk: MerkSettings = field(default_factory=MerkSettings)
    strata_listen: StrataListenSettings = field(default_factory=StrataListenSettings)
    strata: StrataSettings = field(default_factory=StrataSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    """Where each value that is not a default came from, by "table.key"."""
    sources: _Sources = field(default_factory=_Sources, repr=False, compare=False)
    """What ``reload_config`` reads again."""

    def listeners(self) -> dict[str, ListenSettings]:
        """Return the listener part of each protocol over connections by its table."""
        return {
            "bhumi": self.bhumi_listen,
            "bsp": self.bsp_listen,
            "merk": self.merk_listen,
            "strata": self.strata_listen,
        }

    @property
    def bsp_sites(self) -> list[str]:
        """Return the tables of the WebSocket listeners that carry bsp+wss: those whose certificate we know."""
        listen = self.bsp_listen
        sites: dict[str, MerkListenSettings | StrataListenSettings] = {
            "merk": self.merk_listen,
            "strata": self.strata_listen,
        }
        if not listen.enabled or not listen.path:
            return []
        knows = bool(self.bsp.terminator_certificate)
        return [name for name, site in sites.items() if site.enabled and site.ws is not None and (site.tls or knows)]

    @property
    def shares_port(self) -> bool:
        """Whether MERK and Strata are told to listen on the same port of the same host."""
        merk, strata = self.merk_listen, self.strata_listen
        return merk.enabled and strata.enabled and merk.ws is not None and merk.ws == strata.ws and merk.ws.port != 0


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
    settings: dict[str, Any] = {part.attribute: part.owner(**_values_of(part, values)) for part in PARTS}
    config = Config(**settings, origins=origins, sources=_Sources(path, ours, dict(overrides)))
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
        for table in _TABLES
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
        for table in _TABLES
        for part, declared in fields_of(table)
        for name in [f"{table}.{declared.name}"]
    ]


def _value(config: Config, part: Part, name: str) -> Any:
    return getattr(getattr(config, part.attribute), name)


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
        if table not in _TABLES:
            raise Origin(str(path), find_line(text, table)).refuse(_unknown("table", table, _TABLES))
        if not isinstance(keys, dict):
            raise Origin(str(path), find_line(text, table)).refuse(f"{table} is a table; write [{table}]")
        for key, value in keys.items():
            yield _Given(table, key, value, Origin(str(path), find_line(text, table, key)), is_text=False)


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
        table, separator, key = name[len(_PREFIX) :].lower().partition("__")
        if table == _OF_OTHERS:
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
        table, separator, key = name.partition(".")
        if not separator:
            raise origin.refuse("a setting is named table.key, such as bhumi.tls")
        yield _Given(table, key, text, origin, is_text=True)


def _admitted(given: _Given) -> Any:
    """Return the value of one given key as its field holds it, or refuse it where it came from."""
    if given.table not in _TABLES:
        raise given.origin.refuse(_unknown("table", given.table, _TABLES))
    fields = {declared.name: part.owner for part, declared in fields_of(given.table)}
    if given.key not in fields:
        raise given.origin.refuse(_unknown(f"key in [{given.table}]", given.key, tuple(fields)))
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
    """Check what no single value can tell."""
    for name, plain in (("bhumi.plain", config.bhumi_listen.plain), ("bsp.plain", config.bsp_listen.plain)):
        if plain is not None and not plain.is_loopback:
            raise config.origins[name].refuse(
                f'{name} = "{plain}" carries no encryption, so it takes only a loopback address; '
                'allowed: 127.0.0.1:port, [::1]:port, localhost:port, or "" for off'
            )
    for table, pair in config.listeners().items():
        if bool(pair.cert) != bool(pair.key):
            given = f"{table}.cert" if pair.cert else f"{table}.key"
            raise config.origins[given].refuse(f"{table}.cert and {table}.key come together: give both, or neither")
    _check_policy(config)
    _check_bhumi(config)
    _check_bsp(config)
    _check_strata(config)
    _check_merk(config)
    if config.shares_port:
        _check_shared(config)
    _check_bsp_sites(config)


def _run_checks(config: Config, table: str, checks: Mapping[str, Callable[[], object]]) -> None:
    """Run what reads the values of a table, by key; each may raise LocalError, whose text begins with its key."""
    for name, check in checks.items():
        try:
            check()
        except LocalError as error:
            raise config.origins.get(f"{table}.{name}", DEFAULT).refuse(f"{table}.{error}") from error


def _check_policy(config: Config) -> None:
    policy = config.policy
    checks = {"key": lambda: check_policy_key(policy.key), "allow": lambda: check_allowed(policy.allow)}
    _run_checks(config, "policy", checks)


def _check_bhumi(config: Config) -> None:
    bhumi = config.bhumi
    for name, addresses in (("peers", bhumi.peers), ("advertise", [bhumi.advertise] if bhumi.advertise else [])):
        for address in addresses:
            try:
                check_address(address)
            except LocalError as error:
                raise config.origins[f"bhumi.{name}"].refuse(f"bhumi.{name}: {error}") from error


def _check_bsp(config: Config) -> None:
    listen, bsp = config.bsp_listen, config.bsp
    _run_checks(config, "bsp", checks_of(bsp))
    if listen.plain is not None and not bsp.plain_peer:
        raise config.origins["bsp.plain"].refuse(
            "bsp.plain takes bare records without any proof, so bsp.plain_peer must say whose they are: a peer's key"
        )
    if listen.path:
        _check_path(config, "bsp.path", listen.path)


def _check_strata(config: Config) -> None:
    strata = config.strata
    checks: dict[str, Callable[[], object]] = {
        "roots": lambda: read_roots(strata.roots),
        "static_dids": lambda: read_static_dids(strata.static_dids),
        "upstreams": lambda: read_upstreams(strata.upstreams),
        "anonymous": lambda: check_capabilities("anonymous", strata.anonymous),
        "auth_grants": lambda: check_capabilities("auth_grants", strata.auth_grants),
    }
    _run_checks(config, "strata", checks)
    if strata.public_url and not strata.public_url.startswith(("ws://", "wss://")):
        origin = config.origins["strata.public_url"]
        raise origin.refuse(f"strata.public_url = {strata.public_url!r} is not a ws:// or wss:// address")
    _check_path(config, "strata.path", config.strata_listen.path)


def _check_merk(config: Config) -> None:
    listen, merk = config.merk_listen, config.merk
    for path in listen.paths:
        _check_path(config, "merk.paths", path)
    if not listen.paths:
        raise config.origins["merk.paths"].refuse('merk.paths is empty; allowed: at least one path, such as "/merk"')
    if listen.mesh_path:
        _check_path(config, "merk.mesh_path", listen.mesh_path)
    paths = merk_paths(listen)
    if len(set(paths)) < len(paths):
        origin = config.origins.get("merk.paths") or config.origins["merk.mesh_path"]
        raise origin.refuse(f"merk.paths and merk.mesh_path name a path twice: {', '.join(paths)}")
    for name, urls in (("peers", merk.peers), ("public_url", [merk.public_url] if merk.public_url else [])):
        for url in urls:
            try:
                check_url(url)
            except LocalError as error:
                raise config.origins[f"merk.{name}"].refuse(f"merk.{name}: {error}") from error


def _check_path(config: Config, name: str, path: str) -> None:
    if not _PATH.fullmatch(path):
        raise config.origins[name].refuse(
            f"{name} = {path!r} is no path; allowed: text that begins with a slash, of printable ASCII characters "
            "without ? and #"
        )


def _check_bsp_sites(config: Config) -> None:
    """Check that nobody else has the path of bsp+wss on the ports that carry it."""
    path = config.bsp_listen.path
    taken = {"merk": merk_paths(config.merk_listen), "strata": [config.strata_listen.path]}
    for site in config.bsp_sites:
        if path in taken[site]:
            named = ("bsp.path", "strata.path") if site == "strata" else ("bsp.path", *_MERK_PATHS)
            origin = next(found for name in named if (found := config.origins.get(name)))
            raise origin.refuse(f"bsp.path = {path!r} is a path of [{site}] too, whose port carries bsp+wss")


def _check_shared(config: Config) -> None:
    """Check that two protocols of one port can live together."""
    merk, strata = config.merk_listen, config.strata_listen
    if strata.path in merk_paths(merk):
        origin = next(found for name in ("strata.path", *_MERK_PATHS) if (found := config.origins.get(name)))
        raise origin.refuse(f"strata.path = {strata.path!r} is a path of [merk] too, and both listen on {merk.ws}")
    if (merk.tls, merk.cert, merk.key) != (strata.tls, strata.cert, strata.key):
        named = (f"{table}.{key}" for table in ("merk", "strata") for key in ("tls", "cert", "key"))
        origin = next(found for name in named if (found := config.origins.get(name)))
        raise origin.refuse(
            f"merk and strata both listen on {merk.ws}, so tls, cert and key must be the same in both tables, such as "
            "--set merk.tls=true --set strata.tls=true; or give one of them a port of its own, such as "
            "--set merk.ws=0.0.0.0:8082"
        )
