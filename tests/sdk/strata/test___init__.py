from tests.sdk.strata.build import RelayServer
from tests.sdk.strata.test_relay import scenario
from waystation.sdk import strata


def test_public_face_is_complete():
    """Everything it promises is there, in order."""
    assert all(hasattr(strata, name) for name in strata.__all__)


def test_folder_keeps_identity_and_relays(tmp_path):
    """A second program with the same folder is the same author and knows the same relays."""

    async def test():
        async with RelayServer() as server:
            async with strata.open(tmp_path, [server.url]) as first:
                one = await first.send({"type": "POST", "text": "1"})
            async with strata.open(tmp_path) as second:
                urls = [entry.url for entry in second.entries]
                read = [each.packet.author_id async for each in second.messages(follow=False)]
        assert urls == [server.url]
        assert read == [one.packet.author_id]

    scenario(test)()
