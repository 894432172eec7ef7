"""What a device must not forget, in one small file that survives power cuts.

The file is written anew as a whole, under another name first; it carries a sequence number and a checksum. Reading
takes the newer of the two that is whole. So the power may go at any moment: what was kept before stays, and deep sleep
is nothing special, because everything that an answer promises is kept before the answer leaves. It holds secrets.
"""

import errno
import os
import struct
from hashlib import sha256

from . import ed25519, port, suites

__all__ = ["ALIAS_BYTES_MAX", "INVITES_MAX", "ISSUED_MAX", "PEERS_MAX", "Peer", "State", "StateError"]

INVITES_MAX = 8
PEERS_MAX = 8  # with all that is kept of them, 16 KiB at most on a board
ISSUED_MAX = 16  # preimages that one peer holds; it spends the oldest first
ALIAS_BYTES_MAX = 32
_MAGIC = b"BHU1"
_CHECK_BYTES = 8


class StateError(Exception):
    """The file cannot be used; the text says why."""


class Peer:
    """Somebody who may ask."""

    def __init__(self, key: bytes, root: bytes, suite: int, alias: str) -> None:
        """Begin with nothing issued.

        Args:
            key: 32-byte identity.
            root: 32 bytes that both sides derive their keys from.
            suite: 1 or 2: what the peer used last.
            alias: How we call it.
        """
        self.key = key
        self.root = root
        self.suite = suite
        self.alias = alias
        self.issued = []
        """Preimages that the peer may still use, oldest first."""
        self.preimage = b""
        """Of the last request, or empty."""
        self.response = b""
        """The answer to it, as it left."""


class State:
    """Identity, invites and peers; ``save`` after each change that something outside is to rest on."""

    def __init__(self, path: str, feed: object = None) -> None:
        """Read the file, or make it and an identity when there is none.

        Raises:
            StateError: There is a file, but neither it nor its predecessor is whole.
            OSError: The file system fails.
        """
        self._path = path
        self._feed = feed
        self._sequence = 0
        self.reload()

    def reload(self) -> None:
        """Forget what was not saved."""
        newest = None
        torn = False
        for name in (self._path, self._path + ".new"):
            try:
                with open(name, "rb") as file:
                    data = file.read()
            except OSError as error:
                if error.errno != errno.ENOENT:  # a file that cannot be read must not become a new identity
                    raise
                continue
            if not _is_whole(data):
                torn = True
            elif newest is None or _sequence_of(data) > _sequence_of(newest):
                newest = data
        if newest is not None:
            self._decode(newest)
            return
        # A first write that the power cut short leaves a torn .new alone: nothing was promised yet.
        if torn and _exists(self._path):
            raise StateError("%s is damaged; restore a copy, or delete it for a new identity" % self._path)
        self.seed = os.urandom(32)
        self.identity = ed25519.public_of(self.seed, self._feed)
        self.invites = []
        self.peers = []
        self.save()

    def save(self) -> None:
        """Keep everything; raises OSError, and then what was kept before still is."""
        self._sequence += 1
        data = self._encode()
        port.keep(self._path + ".new", data)
        port.replace(self._path + ".new", self._path)

    def add_invite(self, alias: str) -> bytes:
        """Return the preimage of a new invite; it is saved. Raises ValueError when there are too many."""
        if len(self.invites) >= INVITES_MAX:
            raise ValueError("%d invites wait to be used already" % INVITES_MAX)
        if len(alias.encode()) > ALIAS_BYTES_MAX:
            raise ValueError("an alias has at most %d bytes" % ALIAS_BYTES_MAX)
        preimage = os.urandom(32)
        self.invites.append((preimage, alias))
        self.save()
        return preimage

    def take_invite(self, preimage: bytes) -> str:
        """Remove an invite and return its alias, or None when it is none."""
        for index, (known, alias) in enumerate(self.invites):
            if known == preimage:
                del self.invites[index]
                return alias
        return None

    def peer_of(self, preimage: bytes) -> Peer:
        """Return who may use a preimage, or None."""
        for peer in self.peers:
            if preimage in peer.issued:
                return peer
        return None

    def peer(self, key: bytes) -> Peer:
        """Return the peer with this identity, or None."""
        for peer in self.peers:
            if peer.key == key:
                return peer
        return None

    def response_to(self, preimage: bytes) -> bytes:
        """Return the answer that was given to a preimage, or None if it was not the last to its peer."""
        for peer in self.peers:
            if peer.preimage == preimage:
                return peer.response
        return None

    def preimages(self) -> list:
        """Return every preimage that somebody may still use."""
        found = [preimage for preimage, _ in self.invites]
        for peer in self.peers:
            found.extend(peer.issued)
        return found

    def responses(self) -> list:
        """Return the last answer to each peer, as pairs of preimage and answer."""
        return [(peer.preimage, peer.response) for peer in self.peers if peer.preimage]

    def find(self, hint: bytes) -> bytes:
        """Return the preimage whose 8-byte hint this is, or None."""
        for preimage in self.preimages() + [peer.preimage for peer in self.peers]:
            if suites.hint_of(preimage) == hint:
                return preimage
        return None

    def answered(self, peer: Peer, preimage: bytes, response: bytes, issued: list) -> None:
        """Note an answer and the preimages that it gives out; ``save`` before it leaves."""
        if preimage in peer.issued:
            peer.issued.remove(preimage)
        peer.issued.extend(issued)
        del peer.issued[:-ISSUED_MAX]
        peer.preimage = preimage
        peer.response = response

    def _encode(self) -> bytes:
        parts = [self.seed, self.identity, bytes((len(self.invites),))]
        for preimage, alias in self.invites:
            parts.append(preimage)
            parts.append(_short(alias))
        parts.append(bytes((len(self.peers),)))
        for peer in self.peers:
            parts.append(peer.key)
            parts.append(peer.root)
            parts.append(bytes((peer.suite,)))
            parts.append(_short(peer.alias))
            parts.append(bytes((len(peer.issued),)))
            parts.extend(peer.issued)
            parts.append(peer.preimage or bytes(32))
            parts.append(struct.pack(">H", len(peer.response)))
            parts.append(peer.response)
        body = b"".join(parts)
        data = _MAGIC + struct.pack(">II", self._sequence, len(body)) + body
        return data + sha256(data).digest()[:_CHECK_BYTES]

    def _decode(self, data: bytes) -> None:
        self._sequence = _sequence_of(data)
        self.seed, self.identity = data[12:44], data[44:76]
        at = 77
        self.invites = []
        for _ in range(data[76]):
            end = at + 33 + data[at + 32]
            self.invites.append((data[at : at + 32], data[at + 33 : end].decode()))
            at = end
        count, at = data[at], at + 1
        self.peers = []
        for _ in range(count):
            end = at + 66 + data[at + 65]
            peer = Peer(data[at : at + 32], data[at + 32 : at + 64], data[at + 64], data[at + 66 : end].decode())
            at = end + 1
            for _ in range(data[end]):
                peer.issued.append(data[at : at + 32])
                at += 32
            end = at + 34 + struct.unpack_from(">H", data, at + 32)[0]
            if data[at : at + 32] != bytes(32):
                peer.preimage = data[at : at + 32]
            peer.response = data[at + 34 : end]
            at = end
            self.peers.append(peer)


def _is_whole(data: bytes) -> bool:
    if len(data) < 12 + _CHECK_BYTES or data[:4] != _MAGIC:
        return False
    return sha256(data[:-_CHECK_BYTES]).digest()[:_CHECK_BYTES] == data[-_CHECK_BYTES:]


def _sequence_of(data: bytes) -> int:
    return struct.unpack_from(">I", data, 4)[0]


def _short(alias: str) -> bytes:
    data = alias.encode()
    return bytes((len(data),)) + data


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True
