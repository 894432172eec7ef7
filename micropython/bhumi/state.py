"""What a device must not forget, in one small file that survives power cuts.

The file is written anew as a whole, under another name first; it carries a sequence number and a checksum. Reading
takes the newer of the two that is whole. So the power may go at any moment: what was kept before stays, and deep sleep
is nothing special, because everything that an answer promises is kept before the answer leaves. A whole file that still
has the other name gets its own before the next write, so that no write ever begins in the only place. It holds secrets.
Files of the first version are read, and written anew in this one.
"""

import errno
import os
import struct
from hashlib import sha256

from . import keys, port, suites
from .port import const

__all__ = [
    "ALIAS_BYTES_MAX",
    "INVITES_MAX",
    "ISSUED_MAX",
    "NOTICES_MAX",
    "NOTICE_BYTES_MAX",
    "PEERS_MAX",
    "RIGHTS_MAX",
    "Notice",
    "Peer",
    "State",
    "StateError",
]

INVITES_MAX = 8
PEERS_MAX = 8  # with all that is kept of them, 16 KiB at most on a board
ISSUED_MAX = 16  # preimages that one peer holds; it spends the oldest first
RIGHTS_MAX = 4  # preimages of one peer that we hold
NOTICES_MAX = 8
NOTICE_BYTES_MAX = 512
ALIAS_BYTES_MAX = 32
_MAGIC = b"BHU2"
_CHECK_BYTES = const(8)
_NO_TAG = bytes(16)


class StateError(port.SetupError):
    """The file cannot be used; the text says why."""


class Peer:
    """Somebody who may ask, and whom we may be able to ask."""

    def __init__(self, key: bytes, root: bytes, suite: int, alias: str) -> None:
        """Begin with nothing issued.

        Args:
            key: 32-byte identity.
            root: 32 bytes that both sides derive their keys from.
            suite: 1 to 4: what the peer used last. 3 and 4 are as strong as each other, and stronger than 1 and 2.
            alias: How we call it.
        """
        self.key = key
        self.root = root
        self.suite = suite
        self.alias = alias
        self.manages = False
        """Whether it may invite, list and unpair."""
        self.issued = b""
        """Preimages that the peer may still use, 32 bytes each, oldest first; in one piece, because pieces are dear."""
        self.preimage = b""
        """Of the last request, or empty."""
        self.response = b""
        """The answer to it, as it left."""
        self.url = ""
        """Where it says that it listens, or empty."""
        self.rights = []
        """What permits one request to it each: 32 bytes of preimage; the tag of what left under it before, or zeros."""
        self.reserve = b""
        """What it was given in place of a preimage that came with something too large to be read."""
        self.delay_ms = 0
        self.delayed_at = 0
        self.gives_spares = True

    def may_use(self, preimage: bytes) -> bool:
        """Whether the peer may still use a preimage."""
        at = self.issued.find(preimage)
        while at % 32 and at > 0:  # across two of them
            at = self.issued.find(preimage, at + 1)
        return at >= 0

    def issue(self, preimages: list) -> None:
        """Give out preimages; the oldest ones end when there are too many."""
        self.issued = (self.issued + b"".join(preimages))[-32 * ISSUED_MAX :]

    def spend(self, preimage: bytes) -> None:
        """Take back a preimage that was used."""
        if self.may_use(preimage):
            self.issued = b"".join([each for each in self.preimages() if each != preimage])

    def preimages(self) -> object:
        """Yield what the peer may still use."""
        for at in range(0, len(self.issued), 32):
            yield self.issued[at : at + 32]

    def gains(self, preimage: bytes) -> None:
        """Note a permission to ask this peer; the oldest goes when there are too many."""
        self.rights.append(preimage + _NO_TAG)
        del self.rights[:-RIGHTS_MAX]


class Notice:
    """Something that we tell a peer: a reading, an alarm."""

    def __init__(self, number: int, peer: bytes, kind: int, content: bytes) -> None:
        """Describe what nobody has got yet; ``State.add_notice`` gives the number."""
        self.number = number
        self.peer = peer
        self.kind = kind
        """``payloads.TEXT``, ``BINARY`` or ``COMMAND``."""
        self.body = content
        """The content; once it has a preimage, the sealed bytes that leave."""
        self.right = b""
        """Empty, or under which permission it leaves, for ever the same: as in ``Peer.rights``."""
        self.is_asking = False
        """Whether it asks for permissions on behalf of the device."""
        self.in_doubt = False
        """Whether it may have reached its peer."""
        self.is_passed = False
        """Whether others go before it until the next round."""
        self.denials_count = 0
        self.outcome = "waiting"
        """waiting, answered, refused (its handler failed), offline, uncertain or no permission."""
        self.reason = ""
        """A sentence for people, when there is no answer."""
        self.answer = b""
        """What the peer's handler returned."""

    @property
    def is_over(self) -> bool:
        """Whether this is the last word; otherwise it is tried again, with the same bytes."""
        return self.outcome in ("answered", "refused", "no permission")


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
        self.sequence = 0
        """How often it was written."""
        self._is_renamed = True
        self.notices = []
        self.whole = False
        """Whether everything was read; otherwise ``reload`` comes before anything else."""
        self.reload()

    def reload(self) -> None:
        """Forget what was not saved."""
        from . import reading  # in memory only meanwhile

        chosen, is_damaged = reading.newest_of(self._path)
        self.whole = False
        self.invites, self.peers = [], []
        self.last_number = 0
        port.make_room()  # what is read next is as large, and wants the same room in one piece
        if chosen is not None:
            with open(chosen, "rb") as file:
                reading.decode(file, self)
            port.unload("reading")
            self._is_renamed = chosen == self._path
            self.whole = True
            return
        if is_damaged:
            raise StateError("%s is damaged; restore a copy, or delete it for a new identity" % self._path)
        self.seed = os.urandom(32)
        self.identity = keys.public_of(self.seed, self._feed)
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
        self.sequence += 1
        port.keep(fresh, self._file())
        self._is_renamed = False
        port.replace(fresh, self._path)
        self._is_renamed = True

    # Invites

    def add_invite(self, alias: str, expires_s: int = 0, legacy: bool = False, saves: bool = True) -> tuple:
        """Return preimage and pairing secret of a new invite.

        Args:
            alias: How we call whoever uses it.
            expires_s: Unix seconds from which on it is refused, by a clock that is set; 0 for never.
            legacy: Without a secret, for peers without suites 3 and 4: a relay that sees it used can use it itself.
            saves: False when something else is saved with it.

        Raises:
            ValueError: There are too many, or the alias is too long.
        """
        if len(self.invites) >= INVITES_MAX:
            raise ValueError("%d invites wait to be used already" % INVITES_MAX)
        if len(alias.encode()) > ALIAS_BYTES_MAX:
            raise ValueError("an alias has at most %d bytes" % ALIAS_BYTES_MAX)
        preimage, secret = os.urandom(32), b"" if legacy else os.urandom(32)
        self.invites.append((preimage, alias, secret, expires_s))
        if saves:
            self.save()
        return preimage, secret

    def invite_of(self, preimage: bytes) -> tuple:
        """Return preimage, alias, secret (empty for a legacy one) and expiry of an invite, or None when it is none."""
        for invite in self.invites:
            if invite[0] == preimage:
                return invite
        return None

    # Who may ask

    def peer_of(self, preimage: bytes) -> Peer:
        """Return who may use a preimage, or None."""
        for peer in self.peers:
            if peer.may_use(preimage):
                return peer
        return None

    def peer(self, key: bytes) -> Peer:
        """Return the peer with this identity, or None."""
        for peer in self.peers:
            if peer.key == key:
                return peer
        return None

    def find_peer(self, name: object) -> Peer:
        """Return the peer with this 32-byte key, alias or id52, or None; the first one when several have the alias."""
        if not isinstance(name, str):
            return self.peer(name)
        for peer in self.peers:
            if peer.alias == name:
                return peer
        for peer in self.peers if len(name) == 52 else ():
            if port.seldom("names", "id52", peer.key) == name:
                return peer
        return None

    def response_to(self, preimage: bytes) -> bytes:
        """Return the answer that was given to a preimage, or None if it was not the last to its peer."""
        for peer in self.peers:
            if peer.preimage == preimage:
                return peer.response
        return None

    def preimages(self) -> object:
        """Yield every preimage that somebody may still use, ``count_preimages`` in all."""
        for invite in self.invites:
            yield invite[0]
        for peer in self.peers:
            yield from peer.preimages()

    def count_preimages(self) -> int:
        """Return how many preimages somebody may still use."""
        return len(self.invites) + sum([len(peer.issued) for peer in self.peers]) // 32

    def responses(self) -> list:
        """Return the last answer to each peer, as pairs of preimage and answer."""
        return [(peer.preimage, peer.response) for peer in self.peers if peer.preimage]

    def find(self, hint: bytes) -> bytes:
        """Return the preimage whose 8-byte hint this is, or None."""
        for preimage in self.preimages():
            if suites.hint_of(preimage) == hint:
                return preimage
        for peer in self.peers:
            if suites.hint_of(peer.preimage) == hint:
                return peer.preimage
        return None

    def answered(self, peer: Peer, preimage: bytes, response: bytes, issued: list) -> None:
        """Note an answer and the preimages that it gives out; ``save`` before it leaves."""
        peer.spend(preimage)
        peer.issue(issued)
        peer.preimage = preimage
        peer.response = response

    # What we tell others

    def add_notice(self, peer: Peer, kind: int, content: bytes) -> Notice:
        """Put something at the end of the queue; it is not saved yet."""
        self.last_number += 1
        notice = Notice(self.last_number, peer.key, kind, content)
        self.notices.append(notice)
        return notice

    # The file

    def _file(self) -> object:
        """Yield the file in parts, one after the other: a board may have no room for all of them at a time."""
        length = 0
        for part in self._parts():
            length += len(part)
        check = sha256()
        head = _MAGIC + struct.pack(">II", self.sequence, length)
        check.update(head)
        yield head
        for part in self._parts():
            check.update(part)
            yield part
        yield check.digest()[:_CHECK_BYTES]

    def _parts(self) -> object:
        """Yield what is between the head and the checksum."""
        yield self.seed
        yield self.identity
        yield bytes((len(self.invites),))
        for preimage, alias, secret, expires_s in self.invites:
            yield preimage + _short(alias) + (secret or bytes(32)) + struct.pack(">I", expires_s)
        yield bytes((len(self.peers),))
        for peer in self.peers:
            yield b"".join((peer.key, peer.root, bytes((peer.suite, peer.manages)), _short(peer.alias)))
            yield bytes((len(peer.issued) // 32,))
            yield peer.issued
            yield (peer.preimage or bytes(32)) + struct.pack(">H", len(peer.response))
            yield peer.response
            yield _short(peer.url) + bytes((len(peer.rights),)) + b"".join(peer.rights)
        yield struct.pack(">IB", self.last_number, len(self.notices))
        for notice in self.notices:
            yield notice.peer + struct.pack(">IBB", notice.number, notice.kind, notice.is_asking)
            yield bytes((len(notice.right),)) + notice.right + struct.pack(">H", len(notice.body))
            yield notice.body


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data
