"""Loads the Bootstrap Document that an operator names, and puts its skew and provenance roots into the settings.

``StrataHost`` and ``waystation strata import`` call it before they make the relay. A document that its gatekeepers have
not signed stops the start; one that has expired is left out with a warning.

Spec: RFC-0005 4.1; specs/strata.md 17; decision STRATA-BOOTSTRAP.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from waystation.core.errors import ConfigError, LocalError
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.bootstrap import (
    BootstrapDocument,
    BootstrapRefusedError,
    Doubt,
    check_document,
    read_gatekeepers,
)
from waystation.protocols.strata.refusals import RefusedError
from waystation.protocols.strata.settings import StrataSettings

__all__ = ["read_bootstrap", "with_bootstrap"]

FILE_BYTES_MAX: Final = 4 * 1_048_576
_PASSES: Final = frozenset({Doubt.EXPIRED, Doubt.NOT_YET})

_log = structlog.get_logger("waystation.server")


def read_bootstrap(settings: StrataSettings, wall_s: int) -> BootstrapDocument | None:
    """Return the document that the settings name, or None without one, and for one that is not for now.

    Raises:
        ConfigError: A file cannot be read, holds something else, or is not believed.
    """
    if not settings.bootstrap:
        return None
    try:
        gatekeepers = read_gatekeepers(_parsed(settings.gatekeepers))
        return check_document(_parsed(settings.bootstrap), gatekeepers, wall_s)
    except BootstrapRefusedError as error:
        if error.doubt not in _PASSES:
            raise ConfigError(f"strata.bootstrap: {error}", origin=settings.bootstrap) from error
        _log.warning("strata.bootstrap_left_out", file=settings.bootstrap, why=error.doubt.value)
        return None
    except LocalError as error:
        raise ConfigError(f"strata.gatekeepers: {error}", origin=settings.gatekeepers) from error


def with_bootstrap(settings: StrataSettings, document: BootstrapDocument | None) -> StrataSettings:
    """Return the settings as a document changes them: its skew holds over ours, our roots over its own."""
    if document is None:
        return settings
    skew_s = document.clock_skew_s if document.clock_skew_s is not None else settings.clock_skew_s
    roots = [*(f"{name}={key.hex()}" for name, key in document.roots.items()), *settings.roots]
    return replace(settings, clock_skew_s=skew_s, roots=roots)


def _parsed(name: str) -> object:
    try:
        with Path(name).open("rb") as file:
            return parse(file.read(FILE_BYTES_MAX))
    except (OSError, RefusedError) as error:
        raise ConfigError(f"cannot be read: {error}", origin=name or "strata.gatekeepers") from error
