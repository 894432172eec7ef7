"""Laws of protocols.bhumi.contact."""

from tests.protocols.bhumi.build import START, limits_of
from waystation.core.effects import Peer
from waystation.protocols.bhumi.relay.gossip_peer import Contact
from waystation.protocols.bhumi.session import Session
from waystation.protocols.bhumi.wire import relay_frame_limits


def test_contact_is_stalled_while_its_bytes_wait():
    """Whatever connection it is on."""
    session = Session(Peer(1), 7, relay_frame_limits(64), limits_of(), START)
    contact = Contact(session, None, "", START, None, None)
    assert not contact.is_stalled
    session.note_congested(START)

    assert contact.is_stalled
