"""What a device answers to whoever uses an invite; only who proves to have it spends it. Spec: BHUMI-PAIR."""

import os

from . import payloads, suites
from .answers import Done, name_of, nothing
from .port import seldom, unix_s
from .state import PEERS_MAX, Peer

__all__ = ["welcome"]


def welcome(
    state: object, relay: str, admit: object, invite: tuple, message_id: int, sealed: bytes, feed: object
) -> Done:
    """Return the answer to a first request, which is kept when it has changed anything.

    Args:
        state: A ``State``.
        relay: Where its holder learns that we can be reached.
        admit: None, or called with identity and alias; False refuses.
        invite: From ``State.invite_of``.
        message_id: Of the delivery.
        sealed: The opaque payload.
        feed: Called several times, for a watchdog.

    Raises:
        OSError: The state cannot be kept; it must be read again.
        MemoryError: Likewise.
    """
    preimage, _, secret, expires_s = invite
    if expires_s and unix_s() >= expires_s:
        state.invites.remove(invite)
        state.save()
        return nothing(message_id, b"", "an invite was used that has expired")
    plain = suites.open_handshake(state.seed, preimage, sealed, feed, secret)
    request = None if plain is None else payloads.request_of(plain[suites.CONFIRM_BYTES :] if secret else plain)
    root = None
    if request is not None and request[0] == "init" and request[1] != state.identity:
        root = suites.root_with(state.seed, request[1], feed, secret)
    if root is None or (secret and not suites.confirms(root, preimage, sealed, plain)):
        wanted = "the whole invitation" if secret else "--legacy --e2e suite-2"
        text = "an invite was used by somebody who does not have it; accept it with " + wanted
        return nothing(message_id, preimage, text)
    peer = state.peer(request[1])
    if peer is not None and suites.is_paired(peer.suite) and not secret:
        return nothing(message_id, preimage, "%s used an invite that is weaker than its pairing" % name_of(peer))
    key, suite = request[1], sealed[8] & 0x7F
    state.invites.remove(invite)
    refusal = ""
    if peer is None and len(state.peers) >= PEERS_MAX:
        refusal = "no room for another peer: it has %d; one must be unpaired first" % PEERS_MAX
    elif admit is not None and not admit(key, invite[1]):
        refusal = "the device does not admit you"
    given = b"" if refusal else os.urandom(32)
    answer = payloads.handshake_answer(given, refusal or relay)
    sealed = suites.seal(root, suite, preimage, os.urandom(12), answer, b"a", suites.tag_of(sealed))
    if refusal:
        state.save()
        return Done(
            [message_id], sealed, (), "trouble", "%s was refused: %s" % (seldom("names", "id52", key)[:8], refusal)
        )
    peer = _met(state, peer, invite[1], request, root)
    peer.suite = suite
    state.answered(peer, preimage, sealed, [given])
    state.save()
    return Done([message_id], sealed, [given], "joined", "%s (%s)" % (name_of(peer), seldom("names", "id52", key)))


def _met(state: object, peer: Peer, alias: str, request: tuple, root: bytes) -> Peer:
    """Return the peer that a handshake makes known, or known anew, with its permission to reach it."""
    if peer is None:
        peer = Peer(request[1], root, 0, alias)
        peer.manages = not state.peers
        state.peers.append(peer)
    elif peer.root != root:  # what was sealed before can no longer be answered
        for notice in [each for each in state.notices if each.peer == peer.key and each.right]:
            state.notices.remove(notice)
            notice.outcome, notice.reason = "uncertain", "the peer was paired anew"
    peer.alias, peer.root = alias or peer.alias, root
    peer.url = request[3] if len(request[3].encode()) < 256 else ""
    peer.rights = []
    if request[2] != bytes(32):
        peer.gains(request[2])
    return peer
