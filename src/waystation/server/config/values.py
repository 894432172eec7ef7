"""The checked configuration, with the source of each value.

``config.load`` makes a ``Config``; all of the server reads settings from it. The source (file and line, variable, flag
or default) goes into the error when a later check finds the value wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from waystation.core.errors import ConfigError
from waystation.server.config.settings import (
    AccessSettings,
    AdminSettings,
    BusSettings,
    JournalSettings,
    LimitSettings,
    NodeSettings,
    PolicySettings,
    StoreSettings,
)

__all__ = ["DEFAULT", "Config", "Origin", "Sources"]

_Settings = TypeVar("_Settings")


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


@dataclass(frozen=True, slots=True)
class Sources:
    """What ``reload_config`` reads again."""

    path: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """One checked configuration; build it with ``load_config``."""

    parts: Mapping[type[Any], Any]
    """One object of each settings class in ``config.parts``, by its class."""
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    """Where each value that is not a default came from, by "table.key"."""
    sources: Sources = field(default_factory=Sources, repr=False, compare=False)

    def of(self, kind: type[_Settings]) -> _Settings:
        """Return the settings that ``kind`` declares."""
        settings: _Settings = self.parts[kind]
        return settings

    def origin(self, *names: str) -> Origin:
        """Return where the first of these settings ("table.key") came from that is not a default."""
        return next((self.origins[name] for name in names if name in self.origins), DEFAULT)

    @property
    def node(self) -> NodeSettings:
        """``[node]``."""
        return self.of(NodeSettings)

    @property
    def store(self) -> StoreSettings:
        """``[store]``."""
        return self.of(StoreSettings)

    @property
    def bus(self) -> BusSettings:
        """``[bus]``."""
        return self.of(BusSettings)

    @property
    def journal(self) -> JournalSettings:
        """``[journal]``."""
        return self.of(JournalSettings)

    @property
    def policy(self) -> PolicySettings:
        """``[policy]``."""
        return self.of(PolicySettings)

    @property
    def access(self) -> AccessSettings:
        """``[access]``."""
        return self.of(AccessSettings)

    @property
    def admin(self) -> AdminSettings:
        """``[admin]``."""
        return self.of(AdminSettings)

    @property
    def limits(self) -> LimitSettings:
        """``[limits]``."""
        return self.of(LimitSettings)
