"""What a device must not forget, in one small file that survives power cuts.

The file is written anew as a whole, under another name first; it carries a sequence number and a checksum. Reading
takes the newer of the two that is whole. So the power may go at any moment: what was kept before stays, and deep sleep
is nothing special, because everything that an answer promises is kept before the answer leaves. A whole file that still
has the other name gets its own before the next write, so that no write ever begins in the only place. It holds secrets.
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
_HEAD_BYTES = 12
_CHECK_BYTES = 8
_TORN = -1


class StateError(port.SetupError):
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
        self._is_renamed = True
        self.whole = False
        """Whether everything was read; otherwise ``reload`` comes before anything else."""
        self.reload()

    def reload(self) -> None:
        """Forget what was not saved."""
        chosen, newest, torn = None, _TORN, False
        for name in (self._path, self._path + ".new"):
            sequence = _sequence_of(name)
            if sequence is not None and sequence > newest:
                chosen, newest = name, sequence
            torn = torn or sequence == _TORN
        self.whole = False
        self.invites, self.peers = [], []
        port.make_room()  # what is read next is as large, and wants the same room in one piece
        if chosen is not None:
            with open(chosen, "rb") as file:
                self._decode(file)
            self._is_renamed = chosen == self._path
            self.whole = True
            return
        # A first write that the power cut short leaves a torn .new alone: nothing was promised yet.
        if torn and _exists(self._path):
            raise StateError("%s is damaged; restore a copy, or delete it for a new identity" % self._path)
        self.seed = os.urandom(32)
        self.identity = ed25519.public_of(self.seed, self._feed)
        self.whole = True
        self.save()

    def save(self) -> None:
        """Keep everything; raises OSError, and then what was kept before still is."""
        if not self.whole:
            raise OSError(errno.EIO)
        fresh = self._path + ".new"
        if not self._is_renamed:  # the power went, or a rename failed: the newest state stands where we write
            port.replace(fresh, self._path)
            self._is_renamed = True
        self._sequence += 1
        port.keep(fresh, self._parts())
        self._is_renamed = False
        port.replace(fresh, self._path)
        self._is_renamed = True

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

    def _parts(self) -> list:
        """Return the file in parts: a board may have no room for the whole in one piece."""
        parts = [self.seed, self.identity, bytes((len(self.invites),))]
        for preimage, alias in self.invites:
            parts.append(preimage + _short(alias))
        parts.append(bytes((len(self.peers),)))
        for peer in self.peers:
            parts.append(b"".join((peer.key, peer.root, bytes((peer.suite,)), _short(peer.alias))))
            parts.append(bytes((len(peer.issued),)) + b"".join(peer.issued))
            parts.append((peer.preimage or bytes(32)) + struct.pack(">H", len(peer.response)))
            parts.append(peer.response)
        parts.insert(0, _MAGIC + struct.pack(">II", self._sequence, sum([len(part) for part in parts])))
        check = sha256()
        for part in parts:
            check.update(part)
        parts.append(check.digest()[:_CHECK_BYTES])
        return parts

    def _decode(self, file: object) -> None:
        """Take everything from a file that is whole, in pieces: a board may have no room for it twice."""
        self._sequence = struct.unpack(">4sII", file.read(_HEAD_BYTES))[1]
        self.seed, self.identity = file.read(32), file.read(32)
        self.invites = [(file.read(32), _read_short(file)) for _ in range(file.read(1)[0])]
        for _ in range(file.read(1)[0]):
            key, root, suite = file.read(32), file.read(32), file.read(1)[0]
            peer = Peer(key, root, suite, _read_short(file))
            peer.issued = [file.read(32) for _ in range(file.read(1)[0])]
            preimage = file.read(32)
            if preimage != bytes(32):
                peer.preimage = preimage
            peer.response = file.read(struct.unpack(">H", file.read(2))[0])
            self.peers.append(peer)


def _sequence_of(path: str) -> int:
    """Return the number of a file that is whole, ``_TORN`` for one that is not, None for none; raises OSError."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES or head[:4] != _MAGIC:
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


def _short(alias: str) -> bytes:
    data = alias.encode()
    return bytes((len(data),)) + data


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True
