"""Reads the file of ``state``: the newer one of two that is whole. It is in memory only meanwhile."""

import errno
import os
import struct
from hashlib import sha256

from .port import const
from .state import Notice, Peer

__all__ = ["decode", "newest_of", "sequence_of"]

_MAGIC = b"BHU2"
_MAGIC_1 = b"BHU1"  # no pairing secrets, nothing to send
_HEAD_BYTES = const(12)
_CHECK_BYTES = const(8)
_RIGHT_BYTES = const(48)  # preimage and tag
_TORN = -1


def newest_of(path: str) -> tuple:
    """Return which of two files to read, or None, and whether all there is is damaged; raises OSError."""
    chosen, newest, torn = None, _TORN, False
    for name in (path, path + ".new"):
        sequence = sequence_of(name)
        if sequence is not None and sequence > newest:
            chosen, newest = name, sequence
        torn = torn or sequence == _TORN
    # A first write that the power cut short leaves a torn .new alone: nothing was promised yet.
    return chosen, chosen is None and torn and _exists(path)


def decode(file: object, state: object) -> None:
    """Take everything from a file that is whole into a state, in pieces: a board may have no room for it twice."""
    magic, state.sequence, _ = struct.unpack(">4sII", file.read(_HEAD_BYTES))
    is_first = magic == _MAGIC_1
    state.seed, state.identity = file.read(32), file.read(32)
    for _ in range(file.read(1)[0]):
        preimage, alias = file.read(32), _read_short(file)
        secret, expires_s = (b"", 0) if is_first else struct.unpack(">32sI", file.read(36))
        state.invites.append((preimage, alias, b"" if secret == bytes(32) else secret, expires_s))
    for number in range(file.read(1)[0]):
        key, root, suite = file.read(32), file.read(32), file.read(1)[0]
        manages = number == 0 if is_first else bool(file.read(1)[0])
        peer = Peer(key, root, suite, _read_short(file))
        peer.manages = manages
        peer.issued = file.read(32 * file.read(1)[0])
        preimage = file.read(32)
        if preimage != bytes(32):
            peer.preimage = preimage
        peer.response = file.read(struct.unpack(">H", file.read(2))[0])
        if not is_first:
            peer.url = _read_short(file)
            peer.rights = [file.read(_RIGHT_BYTES) for _ in range(file.read(1)[0])]
        state.peers.append(peer)
    _decode_notices(file, state, is_first)


def _decode_notices(file: object, state: object, is_first: bool) -> None:
    """Take the queue; a notice that the program has in its hands stays the same object."""
    known = {notice.number: notice for notice in state.notices}
    state.notices = []
    state.last_number, left = (0, 0) if is_first else struct.unpack(">IB", file.read(5))
    for _ in range(left):
        peer = file.read(32)
        number, kind, is_asking = struct.unpack(">IBB", file.read(6))
        notice = known.get(number) or Notice(number, peer, kind, b"")
        notice.is_asking = bool(is_asking)
        notice.right = file.read(file.read(1)[0])
        notice.body = file.read(struct.unpack(">H", file.read(2))[0])
        # What it was sealed for may have left, for all that this file knows.
        notice.in_doubt = bool(notice.right)
        state.notices.append(notice)


def sequence_of(path: str) -> int:
    """Return the number of a file that is whole, ``_TORN`` for one that is not, None for none; raises OSError."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES or head[:4] not in (_MAGIC, _MAGIC_1):
                return _TORN
            check = sha256(head)
            sequence, left = struct.unpack_from(">II", head, 4)
            while left:
                part = file.read(min(left, 256))
                if not part:
                    return _TORN
                check.update(part)
                left -= len(part)
            return sequence if file.read() == check.digest()[:_CHECK_BYTES] else _TORN
    except OSError as error:
        if error.errno != errno.ENOENT:  # a file that cannot be read must not become a new identity
            raise
    return None


def _read_short(file: object) -> str:
    return file.read(file.read(1)[0]).decode()


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True
