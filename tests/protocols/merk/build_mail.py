"""Mailboxes over a store, and what clients and nodes ask of them: what the tests of mailboxes share."""

from tests.protocols.merk.net import WALL_MS, in_force, key_of
from tests.protocols.refusing import RefusingStore
from waystation.core.errors import StoreFault
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import MessageType, PresenceKind
from waystation.protocols.merk.relay.mailboxes import DAY_MS, Mailboxes
from waystation.protocols.merk.session import Sending

NODE, ALICE, BOB, CAROL = (key_of(name) for name in ("node", "alice", "bob", "carol"))
HOME, AWAY = "net:203.0.113.0/24", "net:198.51.100.0/24"
MONTH_MS = 30 * DAY_MS


def presence_of(owner, issued_ms=WALL_MS, until_ms=None, node=NODE):
    """Return a client's word that a node keeps its mail."""
    until_ms = issued_ms + MONTH_MS if until_ms is None else until_ms
    return wire.make_presence(owner, PresenceKind.MAILBOX, node.public, issued_ms, until_ms)


def frame_to(owner, number=0, sender=ALICE, size=64):
    """Return an encrypted frame; equal numbers give equal frames."""
    body = number.to_bytes(8, "big") + bytes(max(0, size - 8))
    return wire.encode_frame(MessageType.ENCRYPTED_DATA, owner.public + body, sender=sender.public)


def sending_to(owner, number=0, sender=ALICE, size=64):
    """Return one that nobody wants to hear of."""
    return Sending(None, owner.public, frame_to(owner, number, sender, size), b"")


class Post:
    """Mailboxes, their store and the wall clock."""

    def __init__(self, store=None, **limits):
        self.store = store if store is not None else RefusingStore()
        self.limits = in_force(**limits)
        self.wall_ms = WALL_MS
        self.boxes = Mailboxes(self.store, NODE.public, self.limits)

    def restart(self):
        """Begin another life over what is on disk."""
        self.boxes = Mailboxes(self.store, NODE.public, self.limits)
        return self

    def commit(self):
        """Let the store answer what waits; return whether it took it."""
        changes = self.boxes.changes()
        try:
            self.store.commit(changes)
        except StoreFault:
            self.boxes.not_committed()
            return False
        self.boxes.committed()
        return True

    def settle(self):
        """Commit until nothing waits; return the answers."""
        while self.boxes.has_changes:
            self.commit()
        return self.boxes.take_answers()

    def settle_with(self, hear):
        """Commit until nothing waits, and let the answers be heard."""
        while self.boxes.has_changes:
            self.commit()
            hear()
        hear()

    def open(self, owner, network=HOME, **presence):
        """Ask for a mailbox; return the refusal."""
        return self.boxes.open(presence_of(owner, **presence), network, self.wall_ms)

    def opened(self, *owners):
        """Open mailboxes, and be done with it."""
        for owner in owners:
            assert self.open(owner) is None
        self.settle()
        return self

    def keep(self, owner, number=0, sender=ALICE, source=AWAY, size=64):
        """Bring a frame for a client; return the refusal."""
        return self.boxes.keep(sending_to(owner, number, sender, size), sender.public, source, self.wall_ms)

    def kept(self, owner):
        """Return the numbers of the frames that a client would get, in order."""
        frames = [self.boxes.read(owner.public, stored) for stored in self.boxes.mail_of(owner.public, 0)]
        return [int.from_bytes(frame[152:160], "big") for frame in frames if frame is not None]

    def take(self, owner, *numbers, sender=ALICE, size=64):
        """Say that the client's program took frames."""
        hashes = [wire.frame_hash(frame_to(owner, number, sender, size)) for number in numbers]
        return self.boxes.taken(owner.public, hashes)

    def sizes(self):
        """Return everything that is counted."""
        boxes = self.boxes
        return len(boxes), boxes.mail_count, boxes.mail_bytes, boxes.waiting_bytes
