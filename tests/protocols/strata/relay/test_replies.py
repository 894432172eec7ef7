"""Laws of protocols.strata.replies: the answer to one packet, and what is told of a connection."""

import orjson

from tests.protocols.strata.build import ALICE, did, in_force, post
from waystation.core.dids import identity_of
from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.intake import Candidate, Verdict
from waystation.protocols.strata.relay.replies import left_fact, refused_fact, verdict_answer
from waystation.protocols.strata.session import Session


def candidate():
    """Return a packet that a client has published under a name of its own."""
    sent = post("hello")
    found = Candidate(sent.body, None, Instant(0), 1, client_msg_id="mine")
    found.packet = sent
    return found


def answered(verdict, found=None):
    """Return what a client gets for a packet."""
    return orjson.loads(verdict_answer(found or candidate(), verdict))


def test_good_packet_is_answered_with_its_id():
    """The client's own name comes back."""
    told = answered(Verdict(duplicate=True))

    assert (told["type"], told["client_msg_id"], told["duplicate"]) == ("OK", "mine", True)
    assert told["packet_id"] == f"0x{candidate().packet.packet_id.hex()}"


def test_refused_packet_is_answered_with_its_code():
    """One that could not be read has no id."""
    unread = candidate()
    unread.packet = None
    refusal = Verdict(Refusal(Code.INVALID_SCHEMA))

    assert answered(refusal)["packet_id"] == f"0x{candidate().packet.packet_id.hex()}"
    assert (answered(refusal, unread)["code"], "packet_id" in answered(refusal, unread)) == ("invalid_schema", False)


def test_facts_name_who_has_proved_an_identity():
    """An anonymous connection has no name."""
    session = Session(Peer(1), "192.0.2.1", frozenset(), in_force())
    before = refused_fact(session, "rate_limited").identity
    session.authenticate(did(ALICE), frozenset())

    assert before is None
    assert refused_fact(session, "rate_limited").identity == identity_of(did(ALICE))
    assert (left_fact(session, "ended").identity, left_fact(session, "ended").reason) == (
        identity_of(did(ALICE)),
        "ended",
    )
