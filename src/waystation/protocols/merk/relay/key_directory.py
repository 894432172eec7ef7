"""Two bounded tables of a MERK relay: the newest key advert of each client, and open queries for them to other nodes.

Adverts are in memory; those of clients with a mailbox are in its row as well, and are found there after a restart.

``key_frames`` and the relay's machine call it, and verify an advert's signature and owner before; only its time is
checked here. ``ask`` returns whether the asker will get an answer, and a new ``Question`` whose ``open`` nodes have to
be asked; ``answered``, ``lost`` and ``expired`` return those that can be answered now. The querier verifies the
signature too, so a node can hide an advert but cannot forge one.

Spec: specs/merk.md 7, 10.2; MERK-KEYS.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import KeyAdvert
from waystation.protocols.merk.session import Session

__all__ = ["KeyDirectory", "Question"]

AHEAD_MS_MAX: Final = 300_000  # how far an advert's clock may be ahead of ours
ANSWER_MS: Final = 5_000  # "as for a client look-up"


class Question:
    """One key that other nodes were asked for."""

    __slots__ = ("askers", "best", "key", "open", "until")

    def __init__(self, key: bytes, best: KeyAdvert | None, until: Instant) -> None:
        """Begin to ask for ``key``; ``best`` is what we hold ourselves."""
        self.key = key
        self.best = best
        self.until = until
        self.askers: dict[Session, None] = {}
        self.open: dict[Session, None] = {}
        """Nodes that have not answered."""


class KeyDirectory:
    """Adverts of clients that were here, and open questions."""

    def __init__(
        self, limits: InForce[MerkLimits], kept: Callable[[bytes], KeyAdvert | None] = lambda _key: None
    ) -> None:
        """Start empty; ``kept`` returns the advert that is with a client's mailbox."""
        self._limits = limits
        self._kept = kept
        self._adverts: OrderedDict[bytes, KeyAdvert] = OrderedDict()
        self._able: OrderedDict[bytes, None] = OrderedDict()
        """Keys of which others have shown us what only a client of ours signs."""
        self._questions: dict[bytes, Question] = {}

    def __len__(self) -> int:
        """Return how many adverts are held."""
        return len(self._adverts)

    @property
    def questions_count(self) -> int:
        """How many keys other nodes are being asked for."""
        return len(self._questions)

    def keep(self, advert: KeyAdvert, wall_ms: int) -> bool:
        """Keep an advert that the caller has verified; False when its time is too far ahead.

        An older one than we hold changes nothing.
        """
        # A time far ahead would outlast every later advert of the same client.
        if advert.time_ms > wall_ms + AHEAD_MS_MAX:
            return False
        held = self.held(advert.key)
        is_new = self._adverts.pop(advert.key, None) is None
        for _ in range(surplus(len(self._adverts) + 1, self._limits.now.adverts) if is_new else 0):
            self._adverts.popitem(last=False)
        # MERK-KEYS: the newest counts; popped and put back, the client's entry is the last to be evicted.
        self._adverts[advert.key] = held if held is not None and held.time_ms > advert.time_ms else advert
        return True

    def is_able(self, key: bytes) -> bool:
        """Return whether a key is known to be of a client of ours, which proves itself by AUTH (MERK-PROVED)."""
        return key in self._adverts or key in self._able or self._kept(key) is not None

    def note_able(self, key: bytes) -> None:
        """Remember a key of which a valid advert or presence has come from elsewhere; as many as adverts."""
        self._able.pop(key, None)
        for _ in range(surplus(len(self._able) + 1, self._limits.now.adverts)):
            self._able.popitem(last=False)
        self._able[key] = None

    def held(self, key: bytes) -> KeyAdvert | None:
        """Return the newest advert that was made here, None when there is none."""
        return self._adverts.get(key) or self._kept(key)

    def ask(self, key: bytes, asker: Session, nodes: Iterable[Session], now: Instant) -> tuple[bool, Question | None]:
        """Put a question for an asker.

        Returns:
            Whether the asker will get an answer, False when there are too many questions; and the question when it is
            new, so that its ``open`` nodes are to be asked.
        """
        question = self._questions.get(key)
        # Asked twice before the answer: one answer is enough.
        if question is not None and asker in question.askers:
            return True, None
        limits = self._limits.now
        # One client must not use up the questions of all.
        if asker.key_questions >= limits.key_questions_per_client:
            return False, None
        if question is not None:
            if len(question.askers) >= limits.key_askers:
                return False, None
            self._join(question, asker)
            return True, None
        if len(self._questions) >= limits.key_questions:
            return False, None
        # Spec 7: what we hold ourselves is answered only if no node has a newer one.
        question = self._questions[key] = Question(key, self.held(key), after_ms(now, ANSWER_MS))
        self._join(question, asker)
        # A dict for its order: nodes are asked in the order of their links.
        question.open = dict.fromkeys(nodes)
        return True, question

    def expects(self, key: bytes, node: Session) -> bool:
        """Return whether a node was asked for a key and has not answered."""
        question = self._questions.get(key)
        return question is not None and node in question.open

    def answered(self, key: bytes, node: Session, advert: KeyAdvert | None) -> Question | None:
        """Take the answer of a node that was asked; return the question when it was the last one.

        Args:
            key: What it was asked for.
            node: Who answers.
            advert: What it holds, its signature checked; None for nothing.
        """
        question = self._questions[key]
        del question.open[node]
        # Spec 7: the newest advert is the answer, whoever has it.
        if advert is not None and (question.best is None or advert.time_ms > question.best.time_ms):
            question.best = advert
        return self._end(question) if not question.open else None

    def lost(self, session: Session) -> list[Question]:
        """A connection is over; return the questions that end because it was the last to answer."""
        over = []
        for question in list(self._questions.values()):
            # A question goes on without its asker: others may wait for the same key.
            question.askers.pop(session, None)
            if session in question.open:
                del question.open[session]
                if not question.open:
                    over.append(self._end(question))
        return over

    def expired(self, now: Instant) -> list[Question]:
        """End and return the questions whose time is up."""
        over = []
        for question in self._questions.values():
            # All have the same time limit, so the order of asking is the order of their ends.
            if question.until > now:
                break
            over.append(question)
        return [self._end(question) for question in over]

    def deadline(self) -> Instant | None:
        """Return when a question is over."""
        oldest = next(iter(self._questions.values()), None)
        return oldest.until if oldest is not None else None

    def _join(self, question: Question, asker: Session) -> None:
        question.askers[asker] = None
        asker.key_questions += 1

    def _end(self, question: Question) -> Question:
        del self._questions[question.key]
        for asker in question.askers:
            asker.key_questions -= 1
        return question
