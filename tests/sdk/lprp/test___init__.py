"""Laws of the face of LPRP."""

import pytest

from tests.sdk.lprp.build import Events, HostServer, run
from waystation.core.errors import LocalError
from waystation.sdk import lprp
from waystation.sdk.lprp import LeaseDoubted, Outcome


def test_everything_named_is_there():
    """The one module has all that its list names."""
    assert all(hasattr(lprp, name) for name in lprp.__all__)


@pytest.mark.parametrize("silence_s", [0.9, 3_601])
def test_silence_has_the_same_bounds_as_elsewhere(tmp_path, silence_s):
    """A second to an hour; refused before anything is done."""
    with pytest.raises(LocalError, match="1 to 3600 seconds"):
        lprp.open(tmp_path, silence_s=silence_s)


def test_host_that_falls_silent_is_in_doubt_within_silence_s(tmp_path):
    """NODE-SILENCE: a second is enough where the program says so."""
    events = Events()

    async def scenario():
        async with HostServer() as server:
            client = lprp.open(tmp_path, server.url, on_event=events, silence_s=1)
            await client.__aenter__()
        await events.until(LeaseDoubted)
        await client.aclose()

    run(scenario, timeout_s=20)  # a limit of 30 s would doubt after 29.5


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
