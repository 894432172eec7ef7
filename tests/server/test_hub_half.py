"""Laws of server.hub about connections whose other side has ended its half."""

import asyncio

from tests.server.build import Echo, Rig, eventually
from waystation.core.effects import Close, Send
from waystation.protocols.bhumi.messages import Status


class Patient(Echo):
    """An echo that goes on writing behind the other side's end, until it has said goodbye."""

    def half_closed(self, peer, now):
        self.calls.append(("half_closed", peer))
        self.outbox.append(Send(peer, b"goodbye\n"))

    def bid(self, peer):
        """Say the last word and close."""
        self.outbox += [Send(peer, b"last\n"), Close(peer, Status.GONE)]
        del self._partial[peer]


class Clumsy(Echo):
    """A relay with a bug where the other side ends its half."""

    def half_closed(self, peer, now):
        raise RuntimeError("a bug of ours")


def test_relay_that_hears_of_the_end_goes_on_writing():
    """What it says afterwards arrives, in a later turn too, and only its own Close ends the connection."""

    async def story():
        relay = Patient(durable=False)
        async with Rig("echo", relay) as rig:
            reader, writer = await rig.dial()
            writer.write(b"hello\n")
            writer.write_eof()
            heard = await reader.readexactly(len(b"hello\ngoodbye\n"))
            relay.bid(relay.peers[0])
            rig.hub.plan_turn()
            rest = await reader.read()
            return heard, rest, relay.calls, relay.peers

    heard, rest, calls, (peer,) = asyncio.run(story())

    assert (heard, rest) == (b"hello\ngoodbye\n", b"last\n")
    assert ("half_closed", peer) in calls
    assert ("disconnect", peer) not in calls


def test_relay_that_does_not_hear_of_it_loses_the_peer():
    """The connection ends with the other side's half, as it always did for relays that have nothing to finish."""

    async def story():
        relay = Echo(durable=False)
        async with Rig("echo", relay) as rig:
            reader, writer = await rig.dial()
            await eventually(lambda: relay.peers)
            writer.write_eof()
            rest = await reader.read()
            await eventually(lambda: ("disconnect", relay.peers[0]) in relay.calls)
            return rest

    assert asyncio.run(story()) == b""


def test_bug_behind_an_end_costs_one_peer():
    """A relay that raises loses the connection in question, and the others go on."""

    async def story():
        relay = Clumsy(durable=False)
        async with Rig("echo", relay) as rig:
            (reader, writer), (other_reader, other_writer) = await rig.dial(), await rig.dial()
            await eventually(lambda: len(relay.peers) == 2)
            writer.write_eof()
            rest = await reader.read()
            other_writer.write(b"still here\n")
            return rest, await other_reader.readline()

    assert asyncio.run(story()) == (b"", b"still here\n")
