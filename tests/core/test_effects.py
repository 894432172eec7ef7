"""Laws of core.effects."""

from enum import Enum
from typing import get_args

import pytest

from waystation.core.effects import Close, Commit, Dial, Effect, Hold, Peer, Send, SendMany, SendTo, Verify
from waystation.core.facts import Fact, Refused


class _Reason(Enum):
    DONE = "done"


EXAMPLES = [
    Send(Peer(1), b"x"),
    Close(Peer(1), _Reason.DONE),
    Hold(Peer(1), held=True),
    Dial("them", "ws://192.0.2.1", only_public=True),
    SendMany(Peer(1), (b"x", b"y")),
    SendTo(b"x", ("192.0.2.1", 4810)),
    Refused("bhumi", None, "late"),
]


def test_effect_is_one_of_eight_or_a_fact():
    """The server has one branch per effect, so a new one must be noticed; facts never reach it (NODE-FACTS)."""
    assert set(get_args(Effect)) - set(get_args(Fact)) == {
        Send,
        SendMany,
        SendTo,
        Close,
        Hold,
        Dial,
        Commit,
        Verify,
    }


@pytest.mark.parametrize("effect", EXAMPLES, ids=lambda effect: type(effect).__name__)
def test_effect_cannot_change_after_it_was_asked_for(effect):
    """What stands in the outbox is what happens."""
    with pytest.raises(AttributeError):
        setattr(effect, effect._fields[0], None)


def test_quiet_defaults():
    """A plain send wants no receipt, a plain close lets what was sent leave first."""
    assert not Send(Peer(1), b"x").receipt
    assert not Close(Peer(1), _Reason.DONE).abort
