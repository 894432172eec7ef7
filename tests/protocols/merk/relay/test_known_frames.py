"""Laws of protocols.merk.relay.known_frames; what a relay does with each frame stands in test_machine*."""

from tests.protocols.merk.build_relay import world
from waystation.protocols.merk.messages import MailClose, MailFetch
from waystation.protocols.merk.refusals import Refusal


def test_mail_at_a_node_without_the_feature_is_a_strike():
    """What a client says of a feature that the node has not named is turned down, and the connection stays."""
    _, node, alice = world(peers=0)

    alice.say(MailFetch(), MailClose())

    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 2
    assert alice.closed is None
