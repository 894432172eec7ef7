"""Synchronises the host's whitelist with the one that the owner wants.

The client machine sends the steps that it plans (108 toggles or compares, 808 clears). An update toggles keys, so the
client must know the host's current set. That set is unknown after a lost answer, a refused update, or a new lease. The
client then compares the likely sets one by one; a comparison changes nothing and costs no work. If none matches, it
clears the whitelist and builds it anew.

One step is in flight at a time. Repeated refusals or silence of the host end in ``WhitelistFailed``.

Spec: specs/lprp.md 3, LPRP-D11, LPRP-D12.
"""

import random
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import (
    RequestOutcome,
    WhitelistAgreed,
    WhitelistDiffers,
    WhitelistFailed,
)
from waystation.protocols.lprp.messages import REFERENCE_BYTES, Command
from waystation.protocols.lprp.whitelist import (
    WHITELIST_KEYS_MAX,
    ZERO_KEY,
    comparison,
    plan_updates,
    read_update,
    toggled,
)

__all__ = ["REFUSALS_MAX", "SILENCES_MAX", "Keys", "Step", "WhitelistSync"]

REFUSALS_MAX: Final = 3  # ours: two devices may change it at once; more is a host that refuses on principle
SILENCES_MAX: Final = 3  # ours: requests in a row without an answer, each sent eight times

Keys = frozenset[PublicKey]


class _Does(Enum):
    TOGGLE = auto()
    ASK = auto()
    CLEAR = auto()
    COMPARE = auto()


class Step(NamedTuple):
    """One request that brings the lists nearer."""

    command: Command
    payload: bytes
    does: _Does
    after: Keys
    """The host's set if it agrees."""


class WhitelistSync:
    """Plans the next step from the outcome of the last."""

    def __init__(self, context: ClientContext, rng: random.Random, known: Keys | None) -> None:
        self._context = context
        self._rng = rng
        self._wanted: Keys | None = None
        self._last_known: tuple[Keys, ...] = (known,) if known is not None else ()
        """Sets that the host may have while ``agreed`` is unknown, likeliest first."""
        self._guesses: list[Keys] = []
        self._is_active = False
        self._must_clear = False
        self._compares = False
        self._refusals_count = 0
        self._silences_count = 0
        self._under_way: Step | None = None
        self.agreed = known
        """The set that the host agreed to last; None when it is unknown."""

    # Commands

    def want(self, keys: Iterable[bytes]) -> None:
        """Bring the host's list to ``keys``; see ``LprpClient.want_whitelist``."""
        self._begin(_checked(keys))

    def clear(self) -> None:
        """Empty the host's list whatever it holds, and want it empty."""
        self._begin(frozenset())
        self._must_clear = True

    def compare(self) -> None:
        """Ask whether the host has the wanted keys, and change nothing."""
        self._compares = True

    def lease_began(self) -> None:
        """Doubt the host's set: a lease that ran out long ago took its whitelist along."""
        if self.agreed is not None:
            self._last_known = (self.agreed,)
        self.agreed = None
        if self._wanted is not None:
            self._begin(self._wanted)

    def _begin(self, wanted: Keys) -> None:
        self._wanted = wanted
        self._is_active = True
        self._must_clear = False
        self._refusals_count = self._silences_count = 0
        if self.agreed is None:
            self._guess(*self._last_known)

    # Steps

    def next_step(self) -> Step | None:
        """Return the step to take now, or None when there is nothing to do; only while none is under way."""
        assert self._under_way is None
        self._under_way = self._plan()
        return self._under_way

    def _plan(self) -> Step | None:
        if self._compares:
            self._compares = False
            return _ask(self._target(), _Does.COMPARE)
        if not self._is_active:
            return None
        assert self._wanted is not None
        if self._must_clear:
            return self._clearing()
        if self.agreed == self._wanted:
            self._is_active = False
            self._context.emit(WhitelistAgreed(self._wanted))
            return None
        if self.agreed is not None:
            # Spec 3: a 108 toggles keys, so it only works from a set that both sides know.
            return _toggling(self.agreed, self._wanted)
        if self._guesses:
            # Spec 3: a 108 with one zero key changes nothing and only compares.
            return _ask(self._guesses.pop(0), _Does.ASK)
        # Spec 4: an 808 empties the list whatever it holds.
        return self._clearing()

    def _target(self) -> Keys:
        if self._wanted is not None:
            return self._wanted
        if self.agreed is not None:
            return self.agreed
        return self._last_known[0] if self._last_known else frozenset()

    def _clearing(self) -> Step:
        payload = self._rng.randbytes(REFERENCE_BYTES)  # no shorter than its answer
        return Step(Command.CLEAR_WHITELIST, payload, _Does.CLEAR, frozenset())

    def _guess(self, *sets: Keys) -> None:
        likely = (self._wanted or frozenset(), *sets, frozenset[PublicKey]())
        self._guesses = list(dict.fromkeys(likely))

    # Outcomes of a step

    def finished(self, outcome: RequestOutcome) -> None:
        """Take the outcome of the step under way; ``next_step`` plans the next."""
        step = self._under_way
        assert step is not None
        self._under_way = None
        if step.does is _Does.COMPARE:
            self._on_compared(step, outcome)
        elif outcome is RequestOutcome.ACCEPTED:
            self._on_done(step)
        elif outcome is RequestOutcome.REFUSED:
            self._on_refused(step)
        elif outcome is RequestOutcome.UNANSWERED:
            self._on_silence(step)
        else:
            self._doubt(step)
            self._fail(outcome)

    def interrupted(self) -> None:
        """Drop the step under way: a lease comes first, and the host may have accepted the step or not."""
        step = self._under_way
        assert step is not None
        self._under_way = None
        if step.does is _Does.COMPARE:
            self._compares = True
        elif step.does is _Does.ASK:
            self._guesses.insert(0, step.after)
        else:
            self._doubt(step)

    def _on_compared(self, step: Step, outcome: RequestOutcome) -> None:
        if outcome is RequestOutcome.ACCEPTED:
            self.agreed = step.after
            self._context.emit(WhitelistAgreed(step.after))
        elif outcome is RequestOutcome.REFUSED:
            # Another device of ours has changed the list.
            if self.agreed == step.after:
                self._doubt(step)
            self._context.emit(WhitelistDiffers(step.after))
        else:
            self._context.emit(WhitelistFailed(outcome))

    def _on_done(self, step: Step) -> None:
        self.agreed = step.after
        self._silences_count = 0
        self._must_clear = self._must_clear and step.does is not _Does.CLEAR

    def _on_refused(self, step: Step) -> None:
        self._silences_count = 0
        if step.does is _Does.ASK:
            return
        self._refusals_count += 1
        self._doubt(step)
        # A host that refuses every update would else be asked for ever.
        if self._refusals_count >= REFUSALS_MAX:
            self._fail(RequestOutcome.REFUSED)

    def _on_silence(self, step: Step) -> None:
        self._silences_count += 1
        if step.does is _Does.ASK:
            self._guesses.insert(0, step.after)
        else:
            self._doubt(step)
        if self._silences_count >= SILENCES_MAX:
            self._fail(RequestOutcome.UNANSWERED)

    def _doubt(self, step: Step) -> None:
        # The lost step may have been carried out or not: both sets are likely.
        before = (self.agreed,) if self.agreed is not None else self._last_known
        self.agreed = None
        self._last_known = tuple(dict.fromkeys((step.after, *before)))[:_LAST_KNOWN_MAX]
        self._guess(*self._last_known)

    def _fail(self, outcome: RequestOutcome) -> None:
        self._is_active = False
        self._context.emit(WhitelistFailed(outcome))


_LAST_KNOWN_MAX: Final = 4  # each costs one question


def _checked(keys: Iterable[bytes]) -> Keys:
    checked = frozenset(PublicKey(bytes(key)) for key in keys)
    if any(len(key) != KEY_BYTES for key in checked):
        raise LocalError(f"a key has {KEY_BYTES} bytes")
    # Spec 3: the zero key marks a comparison.
    if ZERO_KEY in checked:
        raise LocalError("the zero key belongs to no device and cannot be on a whitelist")
    # Spec 7: 256 keys; beyond, 408.
    if len(checked) > WHITELIST_KEYS_MAX:
        raise LocalError(f"a whitelist holds {WHITELIST_KEYS_MAX} keys, these are {len(checked)}")
    return checked


def _toggling(agreed: Keys, wanted: Keys) -> Step:
    payload = plan_updates(agreed, wanted)[0]
    after = toggled(agreed, read_update(payload).keys)
    return Step(Command.UPDATE_WHITELIST, payload, _Does.TOGGLE, after)


def _ask(keys: Keys, does: _Does) -> Step:
    return Step(Command.UPDATE_WHITELIST, comparison(keys), does, keys)
