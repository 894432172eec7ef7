"""Mailboxes against a dictionary: random owners, frames, refusing stores, crashes, damage-free rows and days."""

import random

import pytest

from tests.protocols.merk.build_mail import ALICE, AWAY, BOB, CAROL, HOME, MONTH_MS, Post, presence_of, sending_to
from tests.protocols.merk.net import key_of
from tests.protocols.refusing import RefusingStore
from waystation.core.errors import StoreFault
from waystation.protocols.merk.relay.mail import Closed, Kept, NotKept, NotOpened, Opened
from waystation.protocols.merk.relay.mailboxes import DAY_MS

OWNERS = [key_of(f"owner {number}") for number in range(3)]
SENDERS = [ALICE, BOB, CAROL]
SOURCES = [HOME, AWAY, ""]
LIMITS = {
    "mailboxes": 2,
    "mail_messages_per_mailbox": 6,
    "mail_messages_per_sender": 4,
    "mail_messages_per_source": 4,
    "mail_messages": 64,
    "mail_bytes_per_mailbox": 2_000,
    "mail_waiting_bytes": 1_500,
}


class Model:
    """What every owner must get, by the shortest rule: what was answered as kept, until it is taken or over."""

    def __init__(self):
        self.open = {}
        """Until when each owner's word holds."""
        self.kept = {}
        """Frames by owner: number of the frame to its last day."""
        self.gone = {}
        """What may come back if the node dies before the disk has its end."""

    def hear(self, answer):
        """Take an answer over."""
        if isinstance(answer, Opened):
            self.open.setdefault(answer.owner, 0)
            self.kept.setdefault(answer.owner, {})
        elif isinstance(answer, Closed):
            self.gone.pop(answer.owner, None)
        else:
            assert isinstance(answer, Kept | NotKept | NotOpened)

    def end(self, owner):
        """A mailbox is over."""
        self.open.pop(owner, None)
        self.gone.setdefault(owner, set()).update(self.kept.pop(owner, {}))


class Town:
    """Three owners, a node with a bad disk, and a model."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.store = RefusingStore(random.Random(seed + 1), 0.3)
        self.post = Post(self.store, **LIMITS)
        self.model = Model()
        self.asked, self.waiting = {}, {}
        self.number = 0

    def step(self):
        """Let one thing happen, and look."""
        steps = (self.open, self.keep, self.keep, self.keep, self.commit, self.commit, self.take, self.close)
        self.rng.choice((*steps, self.days, self.crash))()
        self.look()

    def open(self):
        """An owner asks for a mailbox."""
        owner = self.rng.choice(OWNERS)
        presence = presence_of(owner, self.post.wall_ms, self.post.wall_ms + self.rng.choice((DAY_MS, 2 * MONTH_MS)))
        if self.post.boxes.open(presence, HOME, self.post.wall_ms) is None:
            self.asked.setdefault(owner.public, []).append(presence)
        else:
            assert len(self.post.boxes) == LIMITS["mailboxes"]

    def keep(self):
        """Somebody writes to an owner."""
        owner, sender = self.rng.choice(OWNERS), self.rng.choice(SENDERS)
        if self.post.boxes.presence_of(owner.public, self.post.wall_ms) is None:
            return
        self.number += 1
        number = self.number if self.rng.random() < 0.8 else max(1, self.number - 2)
        sending = sending_to(owner, number, ALICE, 64 if number % 3 else 300)
        refusal = self.post.boxes.keep(sending, sender.public, self.rng.choice(SOURCES), self.post.wall_ms)
        if refusal is None:
            self.waiting[id(sending)] = (sending, number, self.post.wall_ms + 7 * DAY_MS)

    def commit(self):
        """The disk takes what waits, or refuses it; sometimes more comes meanwhile."""
        if not self.post.boxes.has_changes:
            return
        changes = self.post.boxes.changes()
        for _ in range(self.rng.randrange(3)):
            self.rng.choice((self.open, self.keep, self.take, self.close))()
        try:
            self.store.commit(changes)
        except StoreFault:
            self.post.boxes.not_committed()
        else:
            self.post.boxes.committed()

    def take(self):
        """An owner's program took some."""
        self.hear()
        owner = self.rng.choice(OWNERS)
        mail = list(self.post.boxes.mail_of(owner.public, 0))
        some = self.rng.sample(mail, self.rng.randrange(len(mail) + 1))
        numbers = [self._number_of(owner, stored) for stored in some]
        assert self.post.boxes.taken(owner.public, [stored.frame_hash for stored in some]) == len(some)
        for number in numbers:
            del self.model.kept[owner.public][number]
            self.model.gone.setdefault(owner.public, set()).add(number)

    def close(self):
        """An owner wants no more mail."""
        if self.rng.random() < 0.3:
            owner = self.rng.choice(OWNERS)
            self.hear()
            self.model.end(owner.public)
            self.post.boxes.close(owner.public)

    def days(self):
        """Time goes by."""
        self.look()
        self.post.wall_ms += self.rng.choice((1, DAY_MS // 2, 3 * DAY_MS))
        opening = {owner.public for owner in OWNERS if self.post.boxes._is_opening(owner.public)}
        self.post.boxes.sweep(self.post.wall_ms)
        for owner, mail in self.model.kept.items():
            over = {number for number, until in mail.items() if until <= self.post.wall_ms}
            self.model.gone.setdefault(owner, set()).update(over)
            self.model.kept[owner] = {number: until for number, until in mail.items() if number not in over}
        for owner in list(self.model.open):
            away = self.post.wall_ms - self.post_came(owner) >= MONTH_MS
            if owner not in opening and (self.model.open[owner] <= self.post.wall_ms or away):
                self.model.end(owner)

    def post_came(self, owner):
        """Return when an owner came last, as far as it is on disk."""
        return self.post.boxes.of(owner).came_ms if self.post.boxes.of(owner) else 0

    def crash(self):
        """The node dies and comes back: what waited for the disk is lost, and was never said to be kept."""
        if self.rng.random() < 0.5:
            self.hear()
            self.waiting.clear()
            self.post.restart()
            self.after_crash()

    def after_crash(self):
        """What is on disk must be all that was kept; beyond that only what had ended without the disk's word."""
        for owner in OWNERS:
            found = set(self._numbers(owner))
            kept = set(self.model.kept.get(owner.public, {}))
            assert kept <= found
            assert found - kept <= self.model.gone.get(owner.public, set())
            box = self.post.boxes.of(owner.public)
            assert box is not None or owner.public not in self.model.open
            if box is not None:
                mail = {self._number_of(owner, each): each.until_ms for each in box.mail.values()}
                self.model.kept[owner.public] = mail
                self.model.open[owner.public] = box.presence.until_ms

    def hear(self):
        """Take the answers over."""
        for answer in self.post.boxes.take_answers():
            self.model.hear(answer)
            if isinstance(answer, Kept | NotKept):
                sending, number, until = self.waiting.pop(id(answer.sending))
                if isinstance(answer, Kept):
                    self.model.kept[sending.target].setdefault(number, until)
                else:  # of a mailbox that was closed meanwhile it may be on disk until the next commit
                    self.model.gone.setdefault(sending.target, set()).add(number)

    def look(self):
        """Compare with the model."""
        self.hear()
        boxes = self.post.boxes
        for owner in self.model.open:  # of two words that were asked for at once, the disk may have refused the second
            presence = boxes.of(owner).presence
            assert presence in self.asked[owner]
            self.model.open[owner] = presence.until_ms
        for owner in OWNERS:
            kept = sorted(self.model.kept.get(owner.public, {}))
            assert sorted(self._numbers(owner)) == kept
        assert len(boxes) <= LIMITS["mailboxes"]
        assert boxes.mail_count >= sum(map(len, self.model.kept.values()))
        assert boxes.waiting_bytes <= LIMITS["mail_waiting_bytes"]

    def finish(self):
        """When the disk is well again, a new life counts exactly what this one does."""
        self.store._rng = None
        self.post.settle_with(self.hear)
        sizes = self.post.sizes()
        assert self.post.restart().sizes() == sizes
        self.look()

    def _numbers(self, owner):
        return [self._number_of(owner, stored) for stored in self.post.boxes.mail_of(owner.public, 0)]

    def _number_of(self, owner, stored):
        frame = self.post.boxes.read(owner.public, stored)
        return int.from_bytes(frame[152:160], "big")


@pytest.mark.parametrize("seed", range(60))
def test_what_was_said_to_be_kept_is_kept_until_it_is_taken_or_over(seed):
    """With a disk that refuses a third of everything, crashes at any moment, and owners that come and go."""
    town = Town(seed)
    for _ in range(120):
        town.step()

    town.finish()
