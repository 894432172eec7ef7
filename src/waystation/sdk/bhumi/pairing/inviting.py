"""Writes the invitations of a participant, and prepares the use of another's: its relays and their authority.

An invitation names the authority of its relays by the SHA-256 of its certificate. A relay shows that certificate behind
its own. Who accepts the invitation takes it from the relay, once, and keeps it in the home for all later connections.
"""

import datetime
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi.payload.invite import INVITE_RELAYS_MAX, Invite, encode_invite
from waystation.protocols.bhumi.payload.pairing import PairedSuite
from waystation.sdk.bhumi.pairing.admission import Admission
from waystation.sdk.errors import InviteRefusedError, RelayUnreachableError
from waystation.transport.dial import RelayUrl, fetch_authority
from waystation.transport.tls import TlsContext, added_authorities, client_context, trust_authority

__all__ = [
    "LEGACY_INVITE",
    "authority_of",
    "check_end",
    "home_context",
    "invitation",
    "learn_authority",
]

LEGACY_INVITE: Final = (
    "this token has no secret: a relay that carries its use can pair in the place of its holder. Make one that begins "
    "with bhumi: where both sides know it"
)
_TLS: Final = "tls://"


def invitation(
    state: Admission,
    alias: str,
    relays: Sequence[str],
    authority: bytes,
    *,
    expires_s: int | None = None,
    allow: Iterable[str] | None = None,
    suite: PairedSuite = PairedSuite.CHACHA,
) -> str:
    """Make an invite and return its one text.

    Args:
        state: Folder of who invites.
        alias: How the invited one shall be called.
        relays: Where the inviter listens; more than 8 are cut.
        authority: SHA-256 of the relays' authority, see ``authority_of``; left out where no relay is tls://.
        expires_s: As for ``Admission.make_invite``.
        allow: As for ``Admission.make_invite``.
        suite: What the pairing is sealed in.

    Raises:
        LocalError: As ``Admission.make_invite``, or a relay is no address.
    """
    named = tuple(dict.fromkeys(relays))[:INVITE_RELAYS_MAX]
    shown = authority if any(relay.startswith(_TLS) for relay in named) else b""
    encode_invite(replace(_EMPTY, relays=named))  # a relay that is no address leaves no invite behind
    made = state.make_invite(alias, expires_s=expires_s, allow=allow, suite=suite)
    return encode_invite(replace(made, relays=named, authority=shown))


def authority_of(tls: TlsContext | None) -> bytes:
    """Return the SHA-256 of the one authority that a context trusts besides the system's; b"" for none or several."""
    added = [] if tls is None else added_authorities(tls)
    return sha256(added[0]) if len(added) == 1 else b""


def home_context(state: Admission) -> TlsContext | None:
    """Return a context that trusts what invitations have named, besides the system's; None when they named nothing."""
    kept = state.authorities()
    if not kept:
        return None
    context = client_context()
    for der in kept:
        trust_authority(context, der)
    return context


def check_end(invite: Invite, *, clock: Callable[[], float] = time.time) -> None:
    """Raise InviteRefusedError when an invitation has ended; nothing is sent for one that the inviter refuses."""
    if 0 < invite.expires_s <= clock():
        ended = datetime.datetime.fromtimestamp(invite.expires_s, tz=datetime.UTC)
        raise InviteRefusedError(f"the invitation ended on {ended:%Y-%m-%d at %H:%M} UTC; ask for a new one")


async def learn_authority(state: Admission, invite: Invite, timeout_s: float) -> bytes | None:
    """Keep the authority that an invitation names, and return it in DER; None when it names none, or it is kept.

    Args:
        state: Folder of who accepts.
        invite: Of any version.
        timeout_s: For each relay.

    Raises:
        RelayUnreachableError: No relay of the invitation shows it; has the reason of each.
    """
    relays = [RelayUrl.parse(relay) for relay in invite.relays if relay.startswith(_TLS)]
    if not invite.authority or not relays or any(sha256(der) == invite.authority for der in state.authorities()):
        return None
    reasons: list[str] = []
    for relay in relays:
        try:
            der = await fetch_authority(relay, invite.authority, timeout_s)
        except HostError as error:
            reasons.append(str(error))
        else:
            state.keep_authority(der)
            return der
    raise RelayUnreachableError("; ".join(reasons))


_EMPTY: Final = Invite(PublicKey(bytes(32)), bytes(32), bytes(32), PairedSuite.CHACHA)
