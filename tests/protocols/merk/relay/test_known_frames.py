"""Laws of protocols.merk.relay.known_frames; what a relay does with each frame stands in test_machine*."""

from tests.protocols.merk.build_relay import world
from waystation.protocols.merk.messages import MailClose, MailFetch
from waystation.protocols.merk.refusals import Refusal


def test_mail_is_between_a_client_and_its_node():
    """Another node that says MAIL breaks a rule, and the link stays."""
    _, node, _, peer = world(peers=1)

    peer.say(MailFetch(), MailClose())

    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 2
    assert peer.closed is None
