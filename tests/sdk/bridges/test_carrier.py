"""Laws that hold for a carrier over every relay."""

import asyncio

import pytest

from tests.sdk.bsp.build_carrier import A, B, CarrierSession, run
from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.sdk.bridges.carrier import RelayCarrier
from waystation.sdk.bsp.carrier import CarrierFailure
from waystation.sdk.errors import NotCarriedError


class MemoryCarrier(RelayCarrier):
    """Keeps what is sent, and refuses the bundle ``b"bad"``."""

    def __init__(self, on_event=None):
        super().__init__("Memory", LinkTerms("memory", base_ms=1), 4, None, on_event)
        self.sent = []
        self.ends_count = 0

    async def open(self, session):
        """Run until it is closed."""
        self._session = session
        self._begin(self._wait())

    async def _wait(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.ends_count += 1

    async def _send(self, peer, bundle):
        if bundle == b"bad":
            raise LocalError("no relay takes this")
        self.sent.append((peer, bundle))


def test_bundle_of_the_bound_is_sent_and_a_longer_one_refused():
    """A bundle may be as long as the bound; a longer one is the caller's mistake, and none is sent."""

    async def scenario():
        carrier = MemoryCarrier()
        await carrier.carry(B.public, b"1234")
        with pytest.raises(LocalError, match="over Memory has at most 4 bytes, this has 5"):
            await carrier.carry(B.public, b"12345")
        return carrier.sent

    assert run(scenario) == [(B.public, b"1234")]


def test_what_a_relay_cannot_take_counts_as_not_carried():
    """A bundle that the client of the relay refuses is lost for its peer, with the reason."""

    async def scenario():
        with pytest.raises(NotCarriedError, match="no relay takes this") as caught:
            await MemoryCarrier().carry(B.public, b"bad")
        return caught.value.peer

    assert run(scenario) == B.public


def test_closed_carrier_leaves_no_task():
    """Closing ends what runs in the background, once; closing again changes nothing."""

    async def scenario():
        carrier = MemoryCarrier()
        await carrier.open(CarrierSession(A, B))
        await asyncio.sleep(0)
        await carrier.close()
        await carrier.close()
        return carrier.ends_count

    assert run(scenario) == 1


@pytest.mark.parametrize("is_full", [False, True])
def test_bundle_that_our_disk_refuses_is_reported(is_full):
    """A bundle goes to the device; when the disk is full, the failure is an event and nothing raises."""

    async def scenario():
        events, session = [], CarrierSession(A, B)
        carrier = MemoryCarrier(events.append)
        await carrier.open(session)
        session.full = is_full
        was_taken = await carrier._take(CarrierSession(B, A).seal(A.public, b"x"), B.public)
        await carrier.close()
        return was_taken, session.bodies(), events

    failure = CarrierFailure("memory", B.public, "the disk is full")
    assert run(scenario) == ((False, [], [failure]) if is_full else (True, [b"x"], []))
