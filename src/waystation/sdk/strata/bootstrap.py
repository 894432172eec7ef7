"""Loads what a Strata client begins with: signed documents from files, and snapshots from relays by HTTP.

``waystation strata`` calls ``load_document`` with the keys of ``load_gatekeepers``; an application calls
``fetch_snapshots``; ``sdk.strata.open`` takes the results. A client needs only one document and no relay. A document
that fails any check raises BootstrapRefusedError, a snapshot that does is left out; a file that cannot be read and a
relay that cannot be reached are a HostError. Spec: RFC-0005 4.1, RFC-0006 7.2; specs/strata.md 17.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.bootstrap import (
    BootstrapDocument,
    BootstrapRefusedError,
    Doubt,
    Gatekeeper,
    Snapshot,
    check_document,
    read_gatekeepers,
    read_snapshot,
)
from waystation.protocols.strata.client.inspection import Fault, inspect_packet
from waystation.protocols.strata.refusals import RefusedError
from waystation.transport.http_get import TlsContext, http_get

__all__ = ["fetch_snapshots", "load_document", "load_gatekeepers"]

FILE_BYTES_MAX: Final = 4 * 1_048_576
_SNAPSHOTS_MAX: Final = 50
_OK: Final = 200


def load_document(path: Path, gatekeepers: Mapping[str, Gatekeeper], now_s: int | None = None) -> BootstrapDocument:
    """Return the Bootstrap Document in a file, checked.

    Raises:
        HostError: The file cannot be read.
        BootstrapRefusedError: It is not believed.
    """
    try:
        body = parse(_read(path))
    except RefusedError as error:
        raise BootstrapRefusedError(Doubt.MALFORMED, error.refusal.detail) from error
    return check_document(body, gatekeepers, int(time.time()) if now_s is None else now_s)


def load_gatekeepers(path: Path) -> dict[str, Gatekeeper]:
    """Return pinned gatekeepers from a JSON file: issuer -> {"public_key": hex, "diversity_tags": [...]}.

    Raises:
        HostError: The file cannot be read.
        LocalError: It holds something else.
    """
    try:
        return read_gatekeepers(parse(_read(path)))
    except (RefusedError, LocalError) as error:
        raise LocalError(f"{path}: {error}") from error


async def fetch_snapshots(
    http_base: str, *, limit: int = 10, tls: TlsContext | None = None, clock: Callable[[], float] = time.time
) -> list[Snapshot]:
    """Return the snapshots that a relay hands on and that hold; none at all is no error.

    Raises:
        HostError: The relay cannot be reached.
    """
    url = f"{http_base}/.well-known/strata/bootstrap-snapshots?limit={limit}"
    status, raw = await http_get(url, context=tls)
    if status != _OK:
        return []
    try:
        body: Any = parse(raw, 66)
    except RefusedError:
        return []
    entries = body.get("snapshots") if isinstance(body, dict) else body
    now_s = int(clock())
    usable = [each for each in entries[:_SNAPSHOTS_MAX] if isinstance(each, dict)] if isinstance(entries, list) else []
    found = [_snapshot(entry, now_s) for entry in usable]
    return [snapshot for snapshot in found if snapshot is not None]


def _snapshot(entry: dict[str, Any], now_s: int) -> Snapshot | None:
    inspected = inspect_packet(entry, None, now_s, now_s)
    if isinstance(inspected, Fault) or not inspected.verified:
        return None
    try:
        return read_snapshot(inspected.packet, now_s)
    except BootstrapRefusedError:
        return None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error
