"""Laws of the face of LPRP."""

from tests.sdk.lprp.build import HostServer, run
from waystation.sdk import lprp
from waystation.sdk.lprp import Outcome


def test_everything_named_is_there():
    """The one module has all that its list names."""
    assert all(hasattr(lprp, name) for name in lprp.__all__)


def test_the_example_works(tmp_path):
    """What the module's docstring shows runs: who is allowed leaves a message that its recipient reads."""

    async def scenario():
        async with (
            HostServer() as server,
            lprp.open(tmp_path / "alice", server.url) as alice,
            lprp.open_sender(tmp_path / "bob", server.url) as bob,
        ):
            await alice.allow(bob.public_key.did)
            sent = await bob.send(alice.public_key.id52, "hello")
            return sent, await anext(alice.messages()), bob.public_key

    sent, message, bob = run(scenario)

    assert sent.outcome is Outcome.ACCEPTED and sent.check().hashes == 0
    assert (message.sender, message.text, message.id) == (bob, "hello", sent.message_id)
