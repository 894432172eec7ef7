"""Bootstrap data from files and relays: documents that must be signed enough, snapshots that may be asked for.

A client works from one static document with no relay at all; snapshots only add to it. No snapshot is no error, and a
document that fails any check is not used in part. Spec: RFC-0005 4.1, RFC-0006 7.2; specs/strata.md 17.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import decode_key_hex
from waystation.protocols.strata.bootstrap import (
    Advice,
    BootstrapDocument,
    BootstrapRefusedError,
    Doubt,
    Gatekeeper,
    RelayEntry,
    ServiceHint,
    Snapshot,
    advise,
    agreed_services,
    check_document,
    document_id,
    read_snapshot,
)
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.inspection import Fault, KeysOf, inspect_packet, own_key
from waystation.protocols.strata.refusals import RefusedError
from waystation.transport.http_get import TlsContext, http_get

__all__ = [
    "Advice",
    "BootstrapDocument",
    "BootstrapRefusedError",
    "Doubt",
    "Gatekeeper",
    "RelayEntry",
    "ServiceHint",
    "Snapshot",
    "advise",
    "agreed_services",
    "check_document",
    "document_id",
    "fetch_snapshots",
    "load_document",
    "load_gatekeepers",
    "read_snapshot",
]

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
        body: Any = parse(_read(path))
        return {
            str(issuer): Gatekeeper(decode_key_hex(entry["public_key"]), tuple(map(str, entry["diversity_tags"])))
            for issuer, entry in body.items()
        }
    except (RefusedError, KeyError, TypeError, AttributeError) as error:
        raise LocalError(
            f'{path} is no file of gatekeepers: {{"issuer": {{"public_key", "diversity_tags"}}}}'
        ) from error


async def fetch_snapshots(
    http_base: str,
    *,
    limit: int = 10,
    tls: TlsContext | None = None,
    keys_of: KeysOf = own_key,
    clock: Callable[[], float] = time.time,
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
    found = (
        _snapshot(entry, keys_of, now_s) for entry in (entries[:_SNAPSHOTS_MAX] if isinstance(entries, list) else ())
    )
    return [snapshot for snapshot in found if snapshot is not None]


def _snapshot(entry: object, keys_of: KeysOf, now_s: int) -> Snapshot | None:
    if not isinstance(entry, dict):
        return None
    inspected = inspect_packet(entry, None, now_s, now_s, keys_of)
    if isinstance(inspected, Fault) or not inspected.verified:
        return None
    try:
        return read_snapshot(inspected.packet, keys_of, now_s)
    except BootstrapRefusedError:
        return None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error
