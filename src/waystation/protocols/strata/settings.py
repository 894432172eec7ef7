"""Settings of the Strata relay: the protocol keys of the ``[strata]`` table in the node's configuration.

``server.strata`` loads them; the parts of the relay read them at the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from waystation.core.dids import is_did
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, decode_key_hex
from waystation.core.settings import setting
from waystation.crypto.issuers import is_issuer_key

__all__ = ["StrataSettings", "Upstream", "check_capabilities", "read_roots", "read_static_dids", "read_upstreams"]

_CAPABILITIES: Final = ("publish", "subscribe")
_UPSTREAM_KEYS: Final = ("url", "relay_id", "profile", "ca")
_PROFILES: Final = ("FULL_ARCHIVE", "PUBLIC_SOCIAL", "HIGH_TRUST_ONLY")


class Upstream(NamedTuple):
    """A relay to replicate from."""

    url: str
    """ws:// or wss:// address."""
    relay_id: str
    """Its DID; a relay with another one is refused."""
    profile: str
    """The replication profile to ask for."""
    ca: str = ""
    """PEM file of the authority that vouches for its certificate; empty takes the system's."""


@dataclass(frozen=True, slots=True)
class StrataSettings:
    """The settings that an operator may change; every other limit is fixed and named where it holds."""

    max_packet_bytes: int = setting(
        262_144, "Largest canonical packet that is accepted.", unit="bytes", at_least=1_024, at_most=1_048_576
    )
    max_age_s: int = setting(86_400, "Oldest timestamp that PUBLISH accepts.", unit="s", at_least=60, at_most=604_800)
    max_backfill_s: int = setting(
        604_800, "Oldest timestamp that replication and import accept.", unit="s", at_least=86_400, at_most=31_536_000
    )
    clock_skew_s: int = setting(300, "Tolerance around the validity of keys.", unit="s", at_least=60, at_most=300)
    provenance_downgrade_mode: str = setting(
        "annotate",
        "How a downgraded packet is served: as signed with a note, or changed to the letter of RFC-0002 10.2.",
        choices=("annotate", "mutate"),
    )
    anonymous: list[str] = setting(["publish", "subscribe"], "What a connection may do without AUTH.")
    auth_challenge_s: int = setting(120, "How long a challenge may be answered.", unit="s", at_least=60, at_most=600)
    auth_grants: list[str] = setting(
        ["publish", "subscribe"], "What AUTH may give to anybody; replicate is given by replicate_allow alone."
    )
    replicate_allow: list[str] = setting([], "DIDs of relays that may replicate from here.")
    blocked_authors: list[str] = setting([], "DIDs whose packets are refused and no longer served.", reload=True)
    blocked_packets: list[str] = setting([], "Packet ids that are refused and no longer served.", reload=True)
    blocked_media: list[str] = setting([], "Media hashes whose packets are refused and no longer served.", reload=True)
    roots: list[str] = setting([], 'Roots of provenance chains, each "did:…=public key in hex".')
    retention_days: int = setting(
        365, "How long packets are kept; key events stay for ever.", unit="days", at_least=7, at_most=36_500
    )
    retention_mib: int = setting(
        10_240, "Most space of packets; the oldest go first.", unit="MiB", at_least=1, at_most=16_777_216
    )
    key_events_mib: int = setting(
        1_024,
        "Most space of key events, which are never dropped; half of it for authors without other packets.",
        unit="MiB",
        at_least=1,
        at_most=1_048_576,
    )
    trust_edge_budget: bool = setting(
        default=True, help="Hold authors to 20 strong and 100 weak trust edges in 24 hours (RFC-0005 5.2)."
    )
    static_dids: dict[str, str] = setting({}, "Public keys, in hex, that you vouch for, by DID.")
    did_documents: str = setting("", "Folder of DID documents (*.json) that you vouch for; empty for none.")
    bootstrap: str = setting(
        "", "File of a Bootstrap Document: its skew, provenance roots and DID documents count; empty for none."
    )
    gatekeepers: str = setting("", "JSON file of the gatekeepers that must have signed it: keys and tags by issuer.")
    upstreams: list[dict[str, str]] = setting(
        [],
        "Relays to replicate from: url, relay_id (DID), profile (else FULL_ARCHIVE), ca (PEM of its authority).",
    )
    public_url: str = setting(
        "", "WebSocket address that the descriptor advertises; empty publishes no descriptor packet."
    )


def read_roots(entries: Sequence[str]) -> dict[str, bytes]:
    """Return public keys of provenance roots by name: Ed25519 (32 bytes), or a point of P-256 (65) or P-384 (97).

    Raises:
        LocalError: An entry is not "name=key in hexadecimal", or its key is none of these.
    """
    roots: dict[str, bytes] = {}
    for entry in entries:
        name, equals, key = entry.rpartition("=")
        if not equals or not name:
            raise LocalError(f'roots: {entry!r} is not "did:…=public key in hex"')
        try:
            roots[name] = bytes.fromhex(key)
        except ValueError as error:
            raise LocalError(f"roots: not a key in hexadecimal: {key!r}") from error
        # Spec 9: a root is Ed25519, P-256 or P-384.
        if not is_issuer_key(roots[name]):
            raise LocalError(f"roots: {key!r} is neither an Ed25519 key nor an uncompressed point of P-256 or P-384")
    return roots


def read_static_dids(entries: Mapping[str, str]) -> dict[str, PublicKey]:
    """Return the operator's keys by DID.

    Raises:
        LocalError: A name is no DID, or its value no key in hex.
    """
    for did in entries:
        if not is_did(did):
            raise LocalError(f"static_dids: {did!r} is not a DID such as did:strata:name")
    return {did: decode_key_hex(key) for did, key in entries.items()}


def read_upstreams(entries: Sequence[Mapping[str, str]]) -> tuple[Upstream, ...]:
    """Return the relays to replicate from.

    Raises:
        LocalError: A key is unknown or missing, an address is not WebSocket, a relay is named twice, or a DID is none.
    """
    upstreams = []
    for entry in entries:
        unknown = [name for name in entry if name not in _UPSTREAM_KEYS]
        if unknown:
            raise LocalError(f"upstreams: unknown key {unknown[0]} (known: {', '.join(_UPSTREAM_KEYS)})")
        upstream = Upstream(
            entry.get("url", ""), entry.get("relay_id", ""), entry.get("profile", _PROFILES[0]), entry.get("ca", "")
        )
        # Spec 10: a WebSocket at path /strata.
        if not upstream.url.startswith(("ws://", "wss://")):
            raise LocalError(f"upstreams: url = {upstream.url!r} is not a ws:// or wss:// address")
        if not is_did(upstream.relay_id):
            raise LocalError(f"upstreams: relay_id = {upstream.relay_id!r} is not the relay's DID")
        if upstream.profile not in _PROFILES:
            raise LocalError(f"upstreams: profile = {upstream.profile!r}; allowed: {', '.join(_PROFILES)}")
        upstreams.append(upstream)
    if len({upstream.relay_id for upstream in upstreams}) < len(upstreams):
        raise LocalError("upstreams: one relay_id is listed twice")
    return tuple(upstreams)


def check_capabilities(name: str, entries: Sequence[str]) -> None:
    """Check a list of capabilities.

    Raises:
        LocalError: A word that is neither publish nor subscribe.
    """
    for entry in entries:
        if entry not in _CAPABILITIES:
            raise LocalError(f"{name}: {entry!r} is not one of {', '.join(_CAPABILITIES)}")
