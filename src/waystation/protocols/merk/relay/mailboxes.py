"""Mailboxes: frames that this node keeps for clients that are away, on disk before it says so.

The relay's ``mailing`` passes in what clients ask for and frames for who is away, and carries out the answers. A client
opens one mailbox with its signed presence. A frame for it waits for the disk and is then kept until the owner says that
its program took it, until it expires, or until the mailbox ends. The owner's newest key advert is in the mailbox's row,
so that who writes to it after a restart can encrypt. What was reported as kept is never given up for newer
frames: every limit refuses the newcomer, and each sender, network and node has a share, so that no sender fills a
mailbox alone.

One commit is under way at a time. It has two kinds of changes. Promises (an opened mailbox, a kept frame) are undone
and refused when the store refuses them. Removals are asked for again until they are on disk; in memory they count at
once, so after a crash the owner may get a frame again, which its replay memory drops.

Times are Unix milliseconds. Frames are in the store alone; memory has what the limits need.

Spec: specs/merk.md 7, 8; MERK-MAIL.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from waystation.core.records import Change, Record, Store
from waystation.core.settings import InForce
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import InfoType, KeyAdvert, Presence
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.mail import (
    Answer,
    Arrival,
    Batch,
    Closed,
    Kept,
    Mailbox,
    NotKept,
    NotOpened,
    Opened,
    Opening,
    Shares,
    Stored,
)
from waystation.protocols.merk.relay.mail_rows import (
    BOXES,
    MAIL,
    BoxRow,
    MailRow,
    box_rows,
    decode_mail,
    encode_box,
    encode_mail,
    lost_boxes,
    mail_key,
    mail_rows,
    next_number,
)
from waystation.protocols.merk.session import Sending

__all__ = ["Mailboxes"]

DAY_MS: Final = 86_400_000
_SPARE_EXPIRIES: Final = 1_024
_PRESENCE: Final = bytes((InfoType.PRESENCE,))
_ADVERT: Final = bytes((InfoType.KEY_ADVERT,))


class Mailboxes:
    """Every mailbox of this node.

    Cost: O(1) per call, ``sweep`` O(mailboxes), the start O(rows).
    """

    def __init__(self, store: Store, node_key: bytes, limits: InForce[MerkLimits]) -> None:
        """Load what was committed.

        Args:
            store: Has the two tables.
            node_key: Our own key; a mailbox that was opened for another one takes nothing.
            limits: How much there may be.

        Raises:
            HostError: A newer waystation wrote the tables (exit code 5).
        """
        self._store = store
        self._node_key = node_key
        self._limits = limits
        self._boxes: dict[bytes, Mailbox] = {}
        self._networks = Shares()
        """How many mailboxes each network has, those that are being opened included."""
        self._owners, self._sources = Shares(), Shares()
        """What the mailboxes of each network, and each source, have in all of them."""
        self._gathered, self._under_way = Batch(), Batch()
        self._adverts: dict[bytes, KeyAdvert] = {}
        """By owner: adverts that are not on disk, of those who have a mailbox or are opening one."""
        self._removals: dict[tuple[str, bytes], None] = {}
        self._removing: dict[tuple[str, bytes], None] = {}
        self._expiries: list[tuple[int, int, bytes, bytes]] = []
        """Until when, number, owner and hash of each frame, as a heap; what was taken stays a while."""
        self._answers: list[Answer] = []
        self.is_committing = False
        """Whether a commit is under way."""
        self._next_number = 1
        self._waiting_bytes = 0
        self._load()

    # What there is

    def __len__(self) -> int:
        """Return how many mailboxes there are, those that are being opened included."""
        return self._networks.count

    @property
    def mail_count(self) -> int:
        """How many frames are kept or wait for the disk."""
        return self._owners.count

    @property
    def mail_bytes(self) -> int:
        """Their bytes."""
        return self._owners.size

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the frames that wait for the disk."""
        return self._waiting_bytes

    @property
    def has_changes(self) -> bool:
        """Whether anything waits for a commit."""
        gathered = self._gathered
        return bool(gathered.openings or gathered.arrivals or gathered.closings or self._removals)

    def of(self, owner: bytes) -> Mailbox | None:
        """Return a client's mailbox, None when it has none on disk."""
        return self._boxes.get(owner)

    def presence_of(self, owner: bytes, wall_ms: int) -> Presence | None:
        """Return the owner's word that we keep its mail, None when we take nothing for it."""
        box = self._boxes.get(owner)
        return box.presence if box is not None and box.takes_at(wall_ms) else None

    def advert_of(self, owner: bytes) -> KeyAdvert | None:
        """Return the newest agreement key that the owner of a mailbox has said, None when none is known."""
        box = self._boxes.get(owner)
        return self._adverts.get(owner) or (box.advert if box is not None else None)

    def mail_of(self, owner: bytes, after: int) -> Iterator[Stored]:
        """Yield the frames kept for a client whose number is above ``after``, the oldest first.

        Cost: O(frames of the mailbox).
        """
        box = self._boxes.get(owner)
        if box is not None:
            yield from [stored for stored in box.mail.values() if stored.number > after]

    def read(self, owner: bytes, stored: Stored) -> bytes | None:
        """Return a kept frame; None when its row is damaged: it is lost, and nothing else is."""
        value = self._store.get(MAIL, mail_key(owner, stored.number))
        if value is not None:
            return decode_mail(value).frame
        box = self._boxes.get(owner)
        if box is not None:
            self._drop(box, stored)
        return None

    # What clients ask for

    def open(self, presence: Presence, network: str, wall_ms: int) -> Refusal | None:
        """Open a client's mailbox, or renew it; ``Opened`` or ``NotOpened`` follows unless it is refused at once.

        Args:
            presence: Checked: of kind 1, signed by the client, for this node, and not over.
            network: Where the client is connected from.
            wall_ms: Unix milliseconds.
        """
        owner, limits, box = presence.client, self._limits.now, self._boxes.get(presence.client)
        # A mailbox counts for the network that asked for it first, wherever its owner is later.
        first = self._gathered.openings.get(owner) or self._under_way.openings.get(owner)
        if box is not None:
            network = box.network
        elif first is not None:
            network = first.network
        elif self._networks.has_room(0, limits.mailboxes, 0) and self._networks.has_room_for(
            network, 0, limits.mailboxes_per_network, 0
        ):
            self._networks.add(network, 0)
        else:
            return Refusal.MAILBOXES_FULL
        self._gathered.closings.pop(owner, None)
        self._gathered.openings[owner] = Opening(presence, network, wall_ms, is_asked=True)
        return None

    def close(self, owner: bytes) -> None:
        """End a client's mailbox with everything in it; ``Closed`` follows once it is off the disk."""
        gathered = self._gathered.openings.pop(owner, None)
        # What is being written gets no answer any more, and is removed by the next commit.
        under_way = self._under_way.openings.pop(owner, None)
        box, opening = self._boxes.get(owner), gathered or under_way
        if box is not None:
            self._end(box)
        elif opening is not None:
            self._adverts.pop(owner, None)
            self._networks.add(opening.network, 0, -1)
        at = (BOXES, owner)
        if under_way is not None:
            self._removals[at] = None
        if at in self._removals or at in self._removing:
            self._gathered.closings[owner] = None
        else:
            self._answers.append(Closed(owner))

    def came(self, owner: bytes, wall_ms: int) -> None:
        """Note that a client is here; the row of its mailbox follows once a day."""
        box = self._boxes.get(owner)
        if box is None or box.presence is None or self._is_opening(owner):
            return
        if wall_ms - box.came_ms >= DAY_MS:
            self._gathered.openings[owner] = Opening(box.presence, box.network, wall_ms, is_asked=False)

    def advertised(self, advert: KeyAdvert) -> None:
        """Keep an advert that the caller has verified with its owner's mailbox, if it has one; an older one is ignored.

        A client says the same one each time it comes, so what is on disk is not written again.
        """
        owner, known = advert.key, self.advert_of(advert.key)
        if owner not in self._boxes and not self._is_opening(owner):
            return
        if known is None or advert.time_ms > known.time_ms:
            self._adverts[owner] = advert
            self._write_advert(owner)

    def taken(self, owner: bytes, hashes: Sequence[bytes]) -> int:
        """Delete frames that a client's program took; return how many there were. Others are ignored."""
        box = self._boxes.get(owner)
        gone = [] if box is None else [box.mail[each] for each in dict.fromkeys(hashes) if each in box.mail]
        for stored in gone:
            assert box is not None
            self._drop(box, stored)
        return len(gone)

    # Frames for who is away

    def keep(self, sending: Sending, sender: bytes, source: str, wall_ms: int) -> Refusal | None:
        """Keep a frame; ``Kept`` or ``NotKept`` follows unless it is refused at once.

        Args:
            sending: The frame, its hash and who gets its outcome; ``presence_of`` its target is not None.
            sender: Key of the client that sent it.
            source: Its network, or the node that brought the frame; "" where neither is known.
            wall_ms: Unix milliseconds.
        """
        box = self._boxes[sending.target]
        frame_hash = sending.frame_hash or wire.frame_hash(sending.frame)
        # The same frame again takes no place: its sender may have had no notice of it.
        if frame_hash in box.mail:
            self._answers.append(Kept(sending))
            return None
        at = (box.owner, frame_hash)
        waiting = self._gathered.arrivals.get(at) or self._under_way.arrivals.get(at)
        if waiting is not None:
            if len(waiting.sendings) >= self._limits.now.mail_messages_per_sender:
                return Refusal.MAIL_SHARE
            waiting.sendings.append(sending)
            return None
        size = len(sending.frame)
        refusal = self._refusal(box, sender, source, size)
        if refusal is not None:
            return refusal
        stored = Stored(
            self._next_number, sender, source, size, wall_ms + self._limits.now.mail_days * DAY_MS, frame_hash
        )
        self._next_number += 1
        self._count(box, stored, 1)
        self._waiting_bytes += size
        self._gathered.arrivals[at] = Arrival(stored, sending, wall_ms)
        return None

    def _refusal(self, box: Mailbox, sender: bytes, source: str, size: int) -> Refusal | None:
        """Return which limit stands against one frame more."""
        limits = self._limits.now
        if size > limits.mail_frame_bytes:
            return Refusal.MAIL_TOO_LARGE
        count_max, bytes_max = limits.mail_messages_per_mailbox, limits.mail_bytes_per_mailbox
        if not box.senders.has_room(size, count_max, bytes_max):
            return Refusal.MAILBOX_FULL
        # Keys cost nothing, so the network of a sender, or the node that brings its frames, has a share too.
        if not (
            box.senders.has_room_for(sender, size, limits.mail_messages_per_sender, limits.mail_bytes_per_sender)
            and box.sources.has_room_for(source, size, limits.mail_messages_per_source, limits.mail_bytes_per_source)
        ):
            return Refusal.MAIL_SHARE
        count_max, bytes_max = limits.mail_messages, limits.mail_bytes
        part = limits.mail_network_part
        has_room = (
            self._owners.has_room(size, count_max, bytes_max)
            and self._owners.has_room_for(box.network, size, count_max // part, bytes_max // part)
            and self._sources.has_room_for(source, size, count_max // part, bytes_max // part)
        )
        if not has_room or self._waiting_bytes + size > limits.mail_waiting_bytes:
            return Refusal.MAIL_FULL
        return None

    # The disk

    def changes(self) -> tuple[Change, ...]:
        """Return what is to be committed in one group; ``committed`` or ``not_committed`` must follow."""
        assert not self.is_committing
        self.is_committing = True
        batch, self._gathered, self._under_way = self._gathered, Batch(), self._gathered
        # Removals first: what is opened anew in the same group is written behind them.
        self._removing, self._removals = self._removals, {}
        records: list[Change] = [Record(table, key, None) for table, key in self._removing]
        for owner, (presence, network, came_ms, _) in batch.openings.items():
            body, advert = wire.encode_info(presence)[1:], self.advert_of(owner)
            if advert is not None:
                batch.adverts[owner] = advert
            said = wire.encode_info(advert)[1:] if advert is not None else b""
            records.append(Record(BOXES, owner, encode_box(BoxRow(body, came_ms, network, said))))
        for (owner, frame_hash), arrival in batch.arrivals.items():
            stored = arrival.stored
            row = MailRow(arrival.kept_ms, stored.until_ms, frame_hash, stored.source, arrival.sendings[0].frame)
            records.append(Record(MAIL, mail_key(owner, stored.number), encode_mail(row)))
        return tuple(records)

    def committed(self) -> None:
        """Take over what is on disk now."""
        self.is_committing = False
        batch, self._under_way = self._under_way, Batch()
        self._removing = {}
        for owner, opening in batch.openings.items():
            self._renew(owner, opening, batch.adverts.get(owner))
            if opening.is_asked:
                self._answers.append(Opened(owner))
        for (owner, _), arrival in batch.arrivals.items():
            stored = arrival.stored
            self._waiting_bytes -= stored.size
            box = self._boxes.get(owner)
            if box is None:
                # It was closed meanwhile, which has counted the frame out already.
                self._removals[MAIL, mail_key(owner, stored.number)] = None
                self._answers += [NotKept(sending) for sending in arrival.sendings]
                continue
            self._put(box, stored)
            self._answers += [Kept(sending) for sending in arrival.sendings]
        self._answers += [Closed(owner) for owner in batch.closings]

    def not_committed(self) -> None:
        """Undo the promises that the store refused, and ask for the removals again."""
        self.is_committing = False
        batch, self._under_way = self._under_way, Batch()
        self._removals = {**self._removing, **self._removals}
        self._removing = {}
        for owner, opening in batch.openings.items():
            if owner not in self._boxes and owner not in self._gathered.openings:
                self._networks.add(opening.network, 0, -1)
                self._adverts.pop(owner, None)
            self._write_advert(owner)
            if opening.is_asked:
                self._answers.append(NotOpened(owner))
        for (owner, _), arrival in batch.arrivals.items():
            self._waiting_bytes -= arrival.stored.size
            box = self._boxes.get(owner)
            if box is not None:  # else the end of the mailbox has counted it out
                self._count(box, arrival.stored, -1)
            self._answers += [NotKept(sending) for sending in arrival.sendings]
        for owner in batch.closings:
            self._gathered.closings.setdefault(owner)

    def take_answers(self) -> list[Answer]:
        """Return and forget the answers gathered since the last call, in order."""
        answers, self._answers = self._answers, []
        return answers

    # Time

    def sweep(self, wall_ms: int) -> Shares:
        """Delete frames that have expired, and mailboxes whose owner stays away; return what went, by owner."""
        gone = Shares()
        while self._expiries and self._expiries[0][0] <= wall_ms:
            _, number, owner, frame_hash = heappop(self._expiries)
            box = self._boxes.get(owner)
            stored = box.mail.get(frame_hash) if box is not None else None
            if box is not None and stored is not None and stored.number == number:
                gone.add(owner, stored.size)
                self._drop(box, stored)
        for box in list(self._boxes.values()):
            if self._is_over(box, wall_ms) and not self._is_opening(box.owner):
                for stored in box.mail.values():
                    gone.add(box.owner, stored.size)
                self._end(box)
        # Frames that were taken leave their times behind, which must not grow with all that ever came.
        left = sum(len(box.mail) for box in self._boxes.values())
        if len(self._expiries) > 2 * left + _SPARE_EXPIRIES:
            self._expiries = []
            for box in self._boxes.values():
                for stored in box.mail.values():
                    heappush(self._expiries, (stored.until_ms, stored.number, box.owner, stored.frame_hash))
        return gone

    def _is_over(self, box: Mailbox, wall_ms: int) -> bool:
        if box.presence is None:
            # What a damaged mailbox still has is kept for its owner; an empty one is nothing.
            return not box.mail
        away_ms = wall_ms - box.came_ms
        return box.presence.until_ms <= wall_ms or away_ms >= self._limits.now.mailbox_days * DAY_MS

    # Helpers

    def _load(self) -> None:
        for owner, row in box_rows(self._store):
            presence = wire.decode_info(_PRESENCE + row.presence)
            assert isinstance(presence, Presence)
            # A home that has another key now keeps what it has, and takes nothing under the old one.
            box = Mailbox(owner, presence if presence.node == self._node_key else None, row.came_ms, row.network)
            advert = wire.decode_info(_ADVERT + row.advert) if row.advert else None
            assert advert is None or isinstance(advert, KeyAdvert)
            box.advert = advert
            self._enter(box)
        for owner in lost_boxes(self._store):
            if owner not in self._boxes:
                self._enter(Mailbox(owner, None, 0, ""))
        newest = 0
        for owner, number, mail in mail_rows(self._store):
            newest = max(newest, number)
            found = self._boxes.get(owner)
            if found is None:
                # Its mailbox's row is damaged, key and all: the frame is kept as long as was promised.
                found = Mailbox(owner, None, 0, "")
                self._enter(found)
            _, sender = wire.read_head(mail.frame)
            stored = Stored(number, sender, mail.source, len(mail.frame), mail.until_ms, mail.frame_hash)
            self._count(found, stored, 1)
            self._put(found, stored)
        self._next_number = next_number(self._store, newest)

    def _enter(self, box: Mailbox) -> None:
        self._boxes[box.owner] = box
        self._networks.add(box.network, 0)

    def _renew(self, owner: bytes, opening: Opening, advert: KeyAdvert | None) -> None:
        box = self._boxes.get(owner)
        if box is None:
            box = self._boxes[owner] = Mailbox(owner, opening.presence, opening.came_ms, opening.network)
        box.presence, box.came_ms, box.advert = opening.presence, opening.came_ms, advert
        if self._adverts.get(owner) is advert:
            self._adverts.pop(owner, None)
        self._write_advert(owner)

    def _write_advert(self, owner: bytes) -> None:
        """Have a mailbox's row written anew for an advert that is not on disk."""
        box = self._boxes.get(owner)
        if box is not None and box.presence is not None and owner in self._adverts and not self._is_opening(owner):
            self._gathered.openings[owner] = Opening(box.presence, box.network, box.came_ms, is_asked=False)

    def _put(self, box: Mailbox, stored: Stored) -> None:
        box.mail[stored.frame_hash] = stored
        box.mail_bytes += stored.size
        heappush(self._expiries, (stored.until_ms, stored.number, box.owner, stored.frame_hash))

    def _drop(self, box: Mailbox, stored: Stored) -> None:
        del box.mail[stored.frame_hash]
        box.mail_bytes -= stored.size
        self._count(box, stored, -1)
        self._removals[MAIL, mail_key(box.owner, stored.number)] = None

    def _end(self, box: Mailbox) -> None:
        """Forget a mailbox and everything in it, and what waits for the disk."""
        for stored in list(box.mail.values()):
            self._drop(box, stored)
        for at in [at for at in self._gathered.arrivals if at[0] == box.owner]:
            arrival = self._gathered.arrivals.pop(at)
            self._waiting_bytes -= arrival.stored.size
            self._count(box, arrival.stored, -1)
            self._answers += [NotKept(sending) for sending in arrival.sendings]
        for (owner, _), arrival in self._under_way.arrivals.items():
            if owner == box.owner:
                self._count(box, arrival.stored, -1)
        del self._boxes[box.owner]
        self._adverts.pop(box.owner, None)
        self._networks.add(box.network, 0, -1)
        self._removals[BOXES, box.owner] = None

    def _count(self, box: Mailbox, stored: Stored, times: int) -> None:
        box.senders.add(stored.sender, stored.size, times)
        box.sources.add(stored.source, stored.size, times)
        self._owners.add(box.network, stored.size, times)
        self._sources.add(stored.source, stored.size, times)

    def _is_opening(self, owner: bytes) -> bool:
        return owner in self._gathered.openings or owner in self._under_way.openings
