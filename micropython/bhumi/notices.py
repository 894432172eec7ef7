"""The queue of what a device has to tell, which ``outgoing`` sends, and what seldom becomes of it. Spec: BHUMI-MCU.

In memory only while it is at work.
"""

from binascii import unhexlify

from . import payloads, suites
from .answers import name_of
from .state import NOTICE_BYTES_MAX, NOTICES_MAX, Notice, Peer

__all__ = ["add", "again_under_another", "drop", "reason_in", "take_spares"]

_SPARES_WANTED = 2


def add(state: object, name: object, kind: int, content: bytes, sweep: object) -> Notice:
    """Queue something for a peer, and keep it; return what tells what becomes of it.

    Args:
        state: A ``State``.
        name: A 32-byte key, an alias or an id52.
        kind: ``payloads.TEXT``, ``BINARY`` or ``COMMAND``.
        content: At most 512 bytes.
        sweep: Called when there is no memory for the writing, to make some.

    Raises:
        ValueError: There is no such peer, the content is too large, or the queue is full.
        OSError: The state cannot be kept, and so nothing was queued.
        MemoryError: Likewise.
    """
    peer = state.find_peer(name)
    if peer is None:
        raise ValueError("there is no peer %r" % (name,))
    if len(content) > NOTICE_BYTES_MAX:
        raise ValueError("%d bytes; at most %d can be sent" % (len(content), NOTICE_BYTES_MAX))
    if len([each for each in state.notices if not each.is_asking]) >= NOTICES_MAX:
        raise ValueError("%d notices wait to be sent already" % NOTICES_MAX)
    notice = state.add_notice(peer, kind, content)
    if not peer.rights and not any(each.right for each in state.notices if each.peer == peer.key):
        state.notices.remove(notice)
        notice.outcome = "no permission"
        notice.reason = "%s has given no permission to send to it; it must listen, and pair anew" % name_of(peer)
        return notice
    try:
        try:
            state.save()
        except MemoryError:
            sweep()
            state.save()
    except (OSError, MemoryError):
        state.notices.remove(notice)
        raise
    return notice


def drop(state: object, notice: Notice) -> bool:
    """Take a notice out of the queue; return whether it certainly has not reached its peer. Raises OSError."""
    if notice in state.notices:
        state.notices.remove(notice)
        state.save()
    return not notice.in_doubt and notice.outcome not in ("answered", "refused")


def again_under_another(peer: Peer, notice: Notice) -> None:
    """Let a notice leave anew: under its permission something else had arrived before, and so it never has."""
    plain = suites.open_sealed(peer.root, notice.right[:32], notice.body)
    notice.body = payloads.request_of(plain)[2]
    notice.right = b""
    notice.in_doubt = False


def take_spares(peer: Peer, notice: Notice) -> None:
    """Keep the permissions that a peer has given when it was asked for more; one that gives none is not asked again."""
    peer.gives_spares = False
    try:
        for text in payloads.answer_of(notice.answer)["spares"][:_SPARES_WANTED]:
            spare = unhexlify(text)
            if len(spare) == 32:
                peer.gains(spare)
                peer.gives_spares = True
    except (ValueError, KeyError, TypeError):
        pass


def reason_in(content: bytes) -> str:
    """Return the reason that a refusing peer gives: a text, or the error of a command."""
    try:
        return payloads.error_of(content)
    except (ValueError, UnicodeError):
        return "it could not handle this"
