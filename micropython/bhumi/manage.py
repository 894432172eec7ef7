"""What happens to a running device rarely: it is managed by a peer, or sent too much. Spec: BHUMI-MCU.

A peer with the right for it invites, lists and unpairs by the commands ``bhumi:invite``, ``bhumi:peers`` and
``bhumi:unpair``; no command of a program begins with ``bhumi:``.
"""

import os
from hashlib import sha256

from . import names, payloads, suites
from .answers import Done, name_of
from .port import unix_s

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
        return [{"alias": each.alias, "id": names.id52(each.key), "manages": each.manages} for each in state.peers]
    if name != "unpair":
        raise ValueError("there is no command bhumi:" + name)
    gone = state.find_peer(given.get("peer") or "")
    if gone is None:
        raise ValueError("there is no such peer")
    if gone is peer:
        raise ValueError("a peer cannot unpair itself")
    preimages = list(gone.preimages())
    state.remove_peer(gone)
    device.revoke(preimages)
    return {"unpaired": gone.alias or names.id52(gone.key)}


def _invite(device: object, state: object, alias: str, hours: object) -> dict:
    if not isinstance(hours, int) or not 0 <= hours <= 24 * 365:
        raise ValueError("hours is a number from 0, for ever, to 8760")
    now = unix_s()
    expires_s = now + 3600 * hours if now and hours else 0
    preimage, secret = state.add_invite(alias, expires_s)
    authority, relays = device.relays.authority()
    device.register(preimage)
    fingerprint = sha256(authority).digest() if authority else b""
    return {
        "token": names.invitation(state.identity, preimage, secret, relays, fingerprint, expires_s),
        "expires_s": expires_s,
    }


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
