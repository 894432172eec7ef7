"""Answers that wait for the disk, and which packets get them again."""

import pytest

from tests.protocols.lprp.build import HOST, SENDER, TENANT, sealed
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.promises import Promise, repeats_of
from waystation.protocols.lprp.relay.replies import Reply, refuse

MAIL = sealed(SENDER, TENANT, Command.RELAY, bytes(64))
WORK = sealed(SENDER, HOST, Command.WORK, bytes(64))
BEAT = sealed(TENANT, HOST, Command.HEARTBEAT)


@pytest.mark.parametrize(
    ("reply", "packet", "repeats"),
    [
        (Reply(Command.HEARTBEAT_ANSWER, BEAT), BEAT, ()),
        (Reply(Command.RELAY_ACCEPTED, MAIL), MAIL, (MAIL.data,)),
        (Reply(Command.RELAY_ACCEPTED, MAIL), WORK, (WORK.data, MAIL.data)),
        (refuse(Refusal.NO_LEASE, MAIL), MAIL, ()),
        (refuse(Refusal.NO_LEASE, MAIL), WORK, (WORK.data,)),
        (refuse(Refusal.TOO_FEW_BITS, WORK), WORK, (WORK.data,)),
    ],
    ids=["200", "202", "202 after work", "402", "402 after work", "401"],
)
def test_who_gets_an_answer_again(reply, packet, repeats):
    """The packet and what its work was for; a refused 102 is judged again, a heartbeat's tenant remembers (10.4)."""
    assert repeats_of(reply, packet) == repeats


def test_new_promise_is_nobodys_heartbeat():
    """A promise keeps what it answers, for whom else, and where it goes; only a 200 is remembered by a tenant."""
    promise = Promise(WORK.data, (MAIL.data,), b"answer", None)

    assert (promise.packet, promise.packets, promise.answer) == (WORK.data, (MAIL.data,), b"answer")
    assert promise.address is None and promise.heartbeat_of is None
