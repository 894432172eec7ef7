"""Loads the ``[pipeline]`` settings: a flag overrides the environment, the environment the file, the file the default.

The commands and ``pipeline.__main__`` call it and get ``PipelineSettings``. The file is TOML and may be the node's own;
other tables in it are ignored. Environment variables are named ``WAYSTATION_PIPELINE__KEY``. The error for an unknown
key or bad value names its source and the allowed values.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from waystation.core.errors import ConfigError, LocalError
from waystation.core.settings import check
from waystation.core.tomllines import find_line
from waystation.pipeline.settings import PipelineSettings

__all__ = ["CONFIG_FILE", "TABLE", "load_settings"]

CONFIG_FILE: Final = "pipeline.toml"
"""What is read in a node's home when no file is named."""
TABLE: Final = "pipeline"
_PREFIX: Final = f"WAYSTATION_{TABLE.upper()}__"


class _Given(NamedTuple):
    key: str
    value: object
    origin: str
    line: int | None


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> PipelineSettings:
    """Return checked settings.

    Args:
        path: TOML file, or None for none.
        environ: Environment; names ``WAYSTATION_PIPELINE__KEY`` count, in any case.
        overrides: Values by key, as flags give them.

    Raises:
        ConfigError: A file cannot be read, a key is unknown, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for given in (*_from_file(path), *_from_environment(environ), *_from_flags(overrides or {})):
        values[given.key] = _checked(given)
    return PipelineSettings(**values)


def _from_file(path: Path | None) -> Iterator[_Given]:
    if path is None:
        return
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text).get(TABLE, {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", origin=path) from error
    if not isinstance(table, dict):
        raise ConfigError(f"{TABLE} must be a table", origin=path, line=find_line(text, TABLE))
    for key, value in table.items():
        yield _Given(key, value, str(path), find_line(text, TABLE, key))


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name in sorted(environ):
        if name.upper().startswith(_PREFIX):
            key = name[len(_PREFIX) :].lower()
            yield _Given(key, _read(key, environ[name]), f"environment {name}", None)


def _from_flags(overrides: Mapping[str, str]) -> Iterator[_Given]:
    for key, text in overrides.items():
        yield _Given(key, _read(key, text), f"flag {TABLE}.{key}", None)


def _read(key: str, text: str) -> object:
    """Return a text as its setting takes it; one that does not fit stays text and is refused."""
    digits = text.removeprefix("-")
    return int(text) if _KINDS.get(key) is int and digits.isascii() and digits.isdigit() else text


def _checked(given: _Given) -> object:
    if given.key not in _KINDS:
        near = difflib.get_close_matches(given.key, _KINDS, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; the keys are: {', '.join(_KINDS)}"
        raise ConfigError(f"unknown key {TABLE}.{given.key}{hint}", origin=given.origin, line=given.line)
    try:
        check(PipelineSettings, given.key, given.value)
    except LocalError as error:
        raise ConfigError(f"{TABLE}.{error}", origin=given.origin, line=given.line) from error
    return given.value


_KINDS: Final[Mapping[str, Any]] = get_type_hints(PipelineSettings)
