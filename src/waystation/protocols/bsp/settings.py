"""Settings of the BSP device: the protocol keys of the ``[bsp]`` table in the node's configuration.

``server.bsp`` loads them; the relay and its mailbox read them at the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.settings import setting
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["BspSettings", "GroupEntry", "PeerEntry", "read_groups", "read_owners", "read_peers"]

_GROUP_KEYS: Final = ("client_id", "descriptor", "format", "share_with", "name")
_PEER_KEYS: Final = ("key", "url", "name")
_FORMATS: Final = ("opaque", "deps_v1")
_SCHEMES: Final = ("bsp+tls://", "bsp+wss://")


class GroupEntry(NamedTuple):
    """One group that the node is a member of."""

    client_id: bytes
    descriptor: bytes
    format: str
    """opaque or deps_v1."""
    share_with: tuple[PublicKey, ...]
    name: str
    """For display."""


class PeerEntry(NamedTuple):
    """One peer in the node's table of peers."""

    key: PublicKey
    url: str
    """bsp+tls:// or bsp+wss:// address to dial, without a key; "" for a peer that comes to us."""
    name: str


@dataclass(frozen=True, slots=True)
class BspSettings:
    """The settings that an operator may change; every other limit is fixed and named where it holds."""

    profile: str = setting(
        "seed", "Bytes of records and hashes: those of the text, or Briar's.", choices=("seed", "briar")
    )
    mode: str = setting(
        "auto",
        "Offer messages first, send them at once, or choose whichever costs fewer bytes.",
        choices=("auto", "interactive", "batch"),
    )
    plain_peer: str = setting("", "Key of the one peer that bare records on the plain listener are taken from.")
    groups: list[dict[str, str | list[str]]] = setting(
        [],
        "Groups the node is a member of: client_id and descriptor (hexadecimal), format (opaque or deps_v1), share_with"
        " (keys of peers), name.",
    )
    peers: list[dict[str, str]] = setting(
        [], "Peers besides those of groups: key, url (bsp+tls:// or bsp+wss://, dialled for ever), name."
    )
    group_messages_max: int = setting(
        250_000,
        "Most messages of one group, those without a body included.",
        at_least=1_000,
        at_most=1_000_000,
        reload=True,
        refusal=Refusal.GROUP_FULL,
    )
    owners: list[str] = setting([], "Keys that may use this node as a mailbox for their groups.")
    owner_groups_max: int = setting(
        64,
        "Most groups hosted for one owner.",
        at_least=1,
        at_most=4_096,
        reload=True,
        refusal=Refusal.MAILBOX_GROUPS_FULL,
    )
    owner_mib_max: int = setting(
        64,
        "Most bodies kept for one owner.",
        unit="MiB",
        at_least=1,
        at_most=1_048_576,
        reload=True,
        refusal=Refusal.QUOTA_FULL,
    )
    owner_messages_max: int = setting(
        50_000,
        "Most messages with a body kept for one owner.",
        at_least=1,
        at_most=1_000_000,
        reload=True,
        refusal=Refusal.QUOTA_FULL,
    )
    owner_tombstones_max: int = setting(
        500_000,
        "Most messages without a body remembered for one owner.",
        at_least=1,
        at_most=10_000_000,
        reload=True,
        refusal=Refusal.QUOTA_FULL,
    )
    terminator_certificate: str = setting(
        "",
        "SHA-256 (hexadecimal) of the certificate that a TLS proxy before our WebSocket shows; without it bsp+wss needs"
        " our own TLS.",
    )


def read_groups(entries: Sequence[Mapping[str, str | list[str]]]) -> tuple[GroupEntry, ...]:
    """Return the groups that the configuration names; the profile checks its own bounds later.

    Raises:
        LocalError: A key is unknown, missing or not of its form, or a group is named twice.
    """
    groups = []
    for entry in entries:
        _check_keys("groups", entry, _GROUP_KEYS)
        share_with = entry.get("share_with", [])
        form = _text("groups", entry, "format", "opaque")
        # Spec 4: an application's own format exists only in programs that bring it; a node has these two.
        if form not in _FORMATS:
            raise LocalError(f"groups: format = {form!r}; allowed: {', '.join(_FORMATS)}")
        if not isinstance(share_with, list):
            raise LocalError(f"groups: share_with = {share_with!r} is not a list of keys")
        groups.append(
            GroupEntry(
                _hex("groups", entry, "client_id"),
                _hex("groups", entry, "descriptor"),
                form,
                tuple(dict.fromkeys(_key("groups: share_with", key) for key in share_with)),
                _text("groups", entry, "name", ""),
            )
        )
    # Both entries would have one identifier, and one of the two lists of members would be lost.
    if len({(group.client_id, group.descriptor) for group in groups}) < len(groups):
        raise LocalError("groups: one group is listed twice")
    return tuple(groups)


def read_peers(entries: Sequence[Mapping[str, str]]) -> tuple[PeerEntry, ...]:
    """Return the peers that the configuration names.

    Raises:
        LocalError: A key is unknown, missing or not of its form, an address names another, or a peer is named twice.
    """
    peers = []
    for entry in entries:
        _check_keys("peers", entry, _PEER_KEYS)
        url = entry.get("url", "")
        # Spec 5: plain connections come from loopback only and are never dialled by a node.
        if url and not url.startswith(_SCHEMES):
            raise LocalError(f"peers: url = {url!r} is not a bsp+tls:// or bsp+wss:// address")
        key = _key("peers: key", entry.get("key", ""))
        peers.append(PeerEntry(key, _without_key(url, key), entry.get("name", "")))
    if len({peer.key for peer in peers}) < len(peers):
        raise LocalError("peers: one key is listed twice")
    return tuple(peers)


def read_owners(entries: Sequence[str]) -> tuple[PublicKey, ...]:
    """Return the owners of mailboxes.

    Raises:
        LocalError: One of them is no key.
    """
    return tuple(dict.fromkeys(_key("owners", entry) for entry in entries))


def _check_keys(what: str, entry: Mapping[str, object], known: Sequence[str]) -> None:
    unknown = [name for name in entry if name not in known]
    if unknown:
        raise LocalError(f"{what}: unknown key {unknown[0]} (known: {', '.join(known)})")


def _without_key(url: str, key: PublicKey) -> str:
    """Return an address without the key that it may contain, as in the addresses of a node's public document.

    Raises:
        LocalError: The part before the host is not this key.
    """
    scheme, _, rest = url.partition("://")
    named, at, place = rest.partition("@")
    if not at or not {"/", "?", "#"}.isdisjoint(named):  # none, or one that is not the host's
        return url
    # Spec 5: the client closes when another key answers, so this peer could never connect.
    if _key("peers: url", named) != key:
        raise LocalError(f"peers: url = {url!r} names another key than key")
    return f"{scheme}://{place}"


def _text(what: str, entry: Mapping[str, str | list[str]], name: str, default: str) -> str:
    value = entry.get(name, default)
    if not isinstance(value, str):
        raise LocalError(f"{what}: {name} = {value!r} is not a text")
    return value


def _hex(what: str, entry: Mapping[str, str | list[str]], name: str) -> bytes:
    text = _text(what, entry, name, "")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise LocalError(f"{what}: {name} = {text[:16]!r}... is not hexadecimal") from error


def _key(what: str, text: str) -> PublicKey:
    try:
        return PublicKey.parse(text)
    except LocalError as error:
        raise LocalError(f"{what}: {error}") from error
