"""What happens to a running device rarely: it is managed by a peer, or sent too much. Spec: BHUMI-MCU.

A peer with the right for it invites, lists and unpairs by the commands ``bhumi:invite``, ``bhumi:peers`` and
``bhumi:unpair``; no command of a program begins with ``bhumi:``.
"""

import os
from hashlib import sha256

from . import payloads, suites
from .answers import Done, name_of
from .port import seldom, unix_s

__all__ = ["carry_out", "refuse_unread"]

_HOURS = 24 * 7


def carry_out(device: object, state: object, peer: object, name: str, arguments: object) -> object:
    """Return the answer to a command, anything that JSON can say.

    Args:
        device: Where the relay learns what is new.
        state: A ``State``; it is saved with the answer.
        peer: Who asks, and may.
        name: Without the prefix.
        arguments: Of ``invite`` an object with ``alias`` and ``hours`` (0 for ever; only a clock that is set can tell);
            of ``unpair`` the ``peer``, an alias or an id52.

    Raises:
        ValueError: It cannot be done; the text says why.
    """
    given = arguments if isinstance(arguments, dict) else {}
    if name == "invite":
        return _invite(device, state, str(given.get("alias") or ""), given.get("hours", _HOURS))
    if name == "peers":
        return [
            {"alias": each.alias, "id": seldom("names", "id52", each.key), "manages": each.manages}
            for each in state.peers
        ]
    if name != "unpair":
        raise ValueError("there is no command bhumi:" + name)
    gone = state.find_peer(given.get("peer") or "")
    if gone is None:
        raise ValueError("there is no such peer")
    if gone is peer:
        raise ValueError("a peer cannot unpair itself")
    preimages = list(gone.preimages())
    _remove(state, gone)
    device.revoke(preimages)
    return {"unpaired": gone.alias or seldom("names", "id52", gone.key)}


def _invite(device: object, state: object, alias: str, hours: object) -> dict:
    if not isinstance(hours, int) or not 0 <= hours <= 24 * 365:
        raise ValueError("hours is a number from 0, for ever, to 8760")
    now = unix_s()
    expires_s = now + 3600 * hours if now and hours else 0
    preimage, secret = state.add_invite(alias, expires_s, False, False)
    authority, relays = _place(device.relays)
    device.register(preimage)
    fingerprint = sha256(authority).digest() if authority else b""
    words = (state.identity, preimage, secret, relays, fingerprint, expires_s)
    return {
        "token": seldom("invitations", "invitation", *words),
        "expires_s": expires_s,
    }


def _place(known: object) -> tuple:
    """Return the authority in use of the first relay in DER, or empty, and the addresses that it vouches for."""
    found, relays = b"", []
    for number, relay in enumerate(known.urls):
        ca = known.authorities(number)[0] if relay.startswith("tls:") else b""
        if not relays:
            found = ca
        if ca == found:
            relays.append(relay)
    return found, relays


def _remove(state: object, peer: object) -> None:
    """Forget a peer, what it may ask, and what was to be told to it; the state is saved with the answer."""
    state.peers.remove(peer)
    for notice in [each for each in state.notices if each.peer == peer.key]:
        state.notices.remove(notice)
        notice.outcome, notice.reason = "no permission", "the peer was unpaired"
    if state.peers and not any(each.manages for each in state.peers):
        state.peers[0].manages = True


def refuse_unread(state: object, relay: str, peer: object, message_id: int, preimage: bytes, sealed: bytes) -> Done:
    """Refuse what was too large to be read, and so is not proved to be the peer's: the preimage stays good, too.

    Instead the peer gets another one, the same at every such refusal until it is used. Raises OSError or MemoryError
    when that cannot be kept.
    """
    if peer.reserve == preimage or not (peer.reserve and peer.may_use(peer.reserve)):
        peer.reserve = os.urandom(32)
        peer.issued += peer.reserve  # one above the limit, so that no other ends for it
        state.save()
    answer = payloads.response(True, peer.reserve, relay, payloads.command_error("the request is too large"))
    sealed = suites.seal(peer.root, sealed[8], preimage, os.urandom(12), answer, b"a", suites.tag_of(sealed))
    done = Done([message_id], sealed, [peer.reserve], "trouble", "%s sent something too large" % name_of(peer))
    done.again = preimage
    return done
