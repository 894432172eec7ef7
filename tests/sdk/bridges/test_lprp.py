"""Bundles over LPRP, between real tenants and the node's own host machine, through real UDP ports."""

import asyncio
import contextlib

import pytest

from tests.sdk.bsp.build_carrier import FULL, STRANGER, A, B, CarrierSession, run
from tests.sdk.lprp.build import NOBODY, QUICK, STUBBORN, Events, HostServer, LossyNetwork, until
from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX
from waystation.sdk.bridges.lprp import LPRP_BUNDLE_BYTES_MAX, BspOverLprp
from waystation.sdk.bsp.carrier import CarrierFailure
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.errors import HomeBusyError, NotCarriedError, RelayUnreachableError
from waystation.sdk.lprp import ClientSettings, LeaseGranted, LprpTenant, WhitelistAgreed, Working

HASTY = ClientSettings(retry_ms=10, tries=2, work_first_bits=4)


@contextlib.asynccontextmanager
async def carrier(tmp_path, host, key_pair, *peers, leased=True, **options):
    """Give an open carrier of one device, with a lease, and its session."""
    events, session = Events(), options.pop("session", None) or CarrierSession(key_pair, *peers)
    home = tmp_path / key_pair.public.hex()[:8]
    options.setdefault("settings", QUICK)
    carrying = BspOverLprp(home, host, key_pair=key_pair, on_event=events, again_first_s=0.02, look_s=0.02, **options)
    try:
        await carrying.open(session)
        if leased:
            await events.until(LeaseGranted)
        yield carrying, session, events
    finally:
        await carrying.close()


async def be_tenant(tmp_path, server, key_pair, *peers):
    """Take a lease for a device, put its peers on the whitelist, and leave."""
    async with carrier(tmp_path, server.host, key_pair, *peers) as (_, _, events):
        if peers:
            await events.until(WhitelistAgreed)


async def quiet(seconds):
    """Let some time pass in which nothing should happen."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def test_left_for_somebody_who_is_away(tmp_path):
    """A and B are never there together: what A leaves, the longest message too, B has when it comes; once, in order."""

    async def scenario():
        async with HostServer() as server:
            await be_tenant(tmp_path, server, B, A)
            async with carrier(tmp_path, server.host, A, B) as (a, session, events):
                works = len(events.of_type(Working))  # for the lease
                await a.carry(B.public, session.seal(B.public, b"small"))
                await a.carry(B.public, session.seal(B.public, FULL))
                works -= len(events.of_type(Working))
            async with carrier(tmp_path, server.host, B, A, leased=False) as (_, session, _):
                await session.until_taken(2)
                await until(lambda: not server.queue(B.public))
            async with carrier(tmp_path, server.host, B, A, leased=False) as (_, again, _):
                await quiet(0.1)
            return session.taken, works, again.taken, b"".join(server.heard)

    taken, works, again, heard = run(scenario)

    assert sorted(taken) == sorted([(A.public, b"small"), (A.public, FULL)])
    assert works == 0
    assert again == []
    assert FULL[:64] not in heard
    assert b"BSPF" not in heard


def test_peers_need_no_work_and_strangers_do(tmp_path):
    """Whom the device knows stands on the host's whitelist: its bundles cost no search, those of others do."""

    async def scenario():
        async with HostServer() as server, carrier(tmp_path, server.host, B, A) as (b, session, events):
            await events.until(WhitelistAgreed)
            async with carrier(tmp_path, server.host, STRANGER, B) as (other, other_desk, other_events):
                works = len(other_events.of_type(Working))  # for the lease
                await other.carry(B.public, other_desk.seal(B.public, b"x"))
                works = len(other_events.of_type(Working)) - works
            await session.until(lambda each: each.refused_count)
            return b.tenant.whitelist(), works, session.taken

    whitelist, works, taken = run(scenario)

    assert whitelist == {A.public}
    assert works > 0
    assert taken == []


def test_peer_that_is_met_later(tmp_path):
    """What somebody sent before it was met is taken then, and its next bundle costs it no work."""

    async def scenario():
        async with (
            HostServer() as server,
            carrier(tmp_path, server.host, B) as (_, b_desk, b_events),
            carrier(tmp_path, server.host, A, B) as (a, a_desk, a_events),
        ):
            await a.carry(B.public, a_desk.seal(B.public, b"before"))
            await b_desk.until(lambda each: each.refused_count)
            works = len(a_events.of_type(Working))
            b_desk.known.append(A.public)
            await b_desk.until_taken()
            await b_events.until(WhitelistAgreed)
            await a.carry(B.public, a_desk.seal(B.public, b"after"))
            works -= len(a_events.of_type(Working))
            return await b_desk.until_taken(2), works, server.tenant(B.public)["whitelist"]

    assert run(scenario) == ([b"before", b"after"], 0, 1)


def test_early_bundle_survives_a_full_disk(tmp_path):
    """What was sent too early and meets a full disk is handed in until it is taken."""

    async def scenario():
        async with (
            HostServer() as server,
            carrier(tmp_path, server.host, B) as (_, b_desk, b_events),
            carrier(tmp_path, server.host, A, B) as (a, a_desk, _),
        ):
            await a.carry(B.public, a_desk.seal(B.public, b"x"))
            await b_desk.until(lambda each: each.refused_count)
            b_desk.full = True
            b_desk.known.append(A.public)
            (failure,) = await b_events.until(CarrierFailure)
            b_desk.full = False
            return await b_desk.until_taken(), failure.peer

    assert run(scenario) == ([b"x"], A.public)


def test_more_peers_than_a_whitelist_holds(tmp_path):
    """As many as fit are on it; the others are not, and keep nobody off it."""
    crowd = [KeyPair.from_seed(number.to_bytes(32)) for number in range(WHITELIST_KEYS_MAX + 10)]

    async def scenario():
        async with HostServer() as server, carrier(tmp_path, server.host, A, *crowd) as (a, _, _):
            await until(lambda: server.tenant(A.public)["whitelist"] == WHITELIST_KEYS_MAX)
            return len(a.tenant.whitelist())

    assert run(scenario) == WHITELIST_KEYS_MAX


def test_peer_without_a_lease_is_told(tmp_path):
    """Nothing can be left for somebody who is no tenant of the host."""

    async def scenario():
        async with HostServer() as server, carrier(tmp_path, server.host, A, B) as (a, session, _):
            with pytest.raises(NotCarriedError, match="no lease at this host") as raised:
                await a.carry(B.public, session.seal(B.public, b"x"))
            return raised.value.peer

    assert run(scenario) == B.public


def test_silent_host_is_told(tmp_path):
    """Opening waits for nobody; a bundle that nobody has answered counts as lost."""

    async def scenario():
        async with carrier(tmp_path, NOBODY, A, B, leased=False, settings=HASTY) as (a, session, _):
            with pytest.raises(RelayUnreachableError, match="nobody can say"):
                await a.carry(B.public, session.seal(B.public, b"x"))

    run(scenario)


def test_host_that_comes_back_is_asked_again(tmp_path):
    """A whitelist that the host did not take while it was away is brought to it when it is back."""
    server = HostServer()

    async def scenario():
        async with server:
            await be_tenant(tmp_path, server, B)
            host = server.host
        async with carrier(tmp_path, host, B, A, leased=False, settings=HASTY) as (_, _, events):
            await events.until(CarrierFailure)
            async with server:
                await events.until(WhitelistAgreed)
                return server.tenant(B.public)["whitelist"]

    assert run(scenario) == 1


def test_full_disk_leaves_the_bundle_in_the_inbox(tmp_path):
    """A bundle that our disk did not take comes again after a pause, and at the next start until it is taken."""

    async def scenario():
        async with HostServer() as server:
            await be_tenant(tmp_path, server, B, A)
            async with carrier(tmp_path, server.host, A, B) as (a, a_desk, _):
                await a.carry(B.public, a_desk.seal(B.public, b"x"))
            session = CarrierSession(B, A)
            session.full = True
            async with carrier(tmp_path, server.host, B, session=session, leased=False) as (_, _, events):
                failures = await events.until(CarrierFailure, count=2)
            session.full = False
            async with carrier(tmp_path, server.host, B, session=session, leased=False) as (b, _, _):
                await session.until_taken()
                await until(lambda: not b.tenant.status().waiting_count)
            return {failure.reason for failure in failures}, session.bodies()

    assert run(scenario) == ({"the disk is full"}, [b"x"])


def test_refused_bundle_is_done(tmp_path):
    """What the device refuses is not kept for ever."""

    async def scenario():
        async with HostServer() as server, carrier(tmp_path, server.host, B) as (b, b_desk, _):
            async with carrier(tmp_path, server.host, A, B) as (a, a_desk, _):
                await a.carry(B.public, a_desk.seal(B.public, b"x"))
            await b_desk.until(lambda each: each.refused_count)
            await until(lambda: not b.tenant.status().waiting_count)
            return b_desk.taken

    assert run(scenario) == []


def test_other_messages_are_handed_on(tmp_path):
    """Texts, and packets that nobody has sealed, are the application's."""
    others = []

    async def scenario():
        async with (
            HostServer() as server,
            carrier(tmp_path, server.host, B, on_message=others.append) as (b, _, _),
            LprpTenant(tmp_path / "other", server.host, settings=QUICK) as other,
        ):
            await other.send(b.tenant.public_key, "hello")
            await other.send(b.tenant.public_key, b"BSPF unsealed", seal=False)
            await until(lambda: len(others) == 2)
            return {message.data for message in others}

    assert run(scenario) == {b"hello", b"BSPF unsealed"}


def test_bad_network_loses_and_doubles_nothing(tmp_path):
    """With loss, duplication and reordering both ways each bundle comes once."""
    bodies = [b"%d" % number * 100 for number in range(10)]

    async def scenario():
        async with (
            HostServer(retry_ms=20, retries=20) as server,
            LossyNetwork(server.host, seed=5) as way,
            carrier(tmp_path, way.host, B, A, settings=STUBBORN) as (_, b_desk, b_events),
            carrier(tmp_path, way.host, A, B, settings=STUBBORN) as (a, a_desk, _),
        ):
            await b_events.until(WhitelistAgreed)
            for body in bodies:
                await a.carry(B.public, a_desk.seal(B.public, body))
            await b_desk.until_taken(len(bodies))
            await until(lambda: not server.queue(B.public))
            return b_desk.bodies(), way.lost

    came, lost = run(scenario)

    assert sorted(came) == sorted(bodies)
    assert lost > 0


def test_peer_with_another_key_at_the_host(tmp_path):
    """A mapped peer is written to, and let through, by its key at the host."""

    async def scenario():
        async with HostServer() as server:
            b, b_desk = BspOverLprp(tmp_path / "b", server.host, settings=QUICK), CarrierSession(B, A)
            await b.open(b_desk)
            known = Identities({B.public: b.tenant.public_key})
            async with carrier(tmp_path, server.host, A, B, identities=known) as (a, a_desk, _):
                await until(lambda: b.tenant.status().lease_until_ms)
                await a.carry(B.public, a_desk.seal(B.public, b"x"))
                bodies, is_mapped = await b_desk.until_taken(), a.tenant.whitelist() == {b.tenant.public_key}
            await b.close()
            return bodies, is_mapped

    assert run(scenario) == ([b"x"], True)


def test_two_carriers_cannot_share_a_folder(tmp_path):
    """The second is told, and leaves the first alone; closing it twice does no harm."""

    async def scenario():
        async with HostServer() as server, carrier(tmp_path, server.host, A, B) as (a, _, _):
            second = BspOverLprp(tmp_path / A.public.hex()[:8], server.host, settings=QUICK)
            with pytest.raises(HomeBusyError):
                await second.open(CarrierSession(A, B))
            await second.close()
            await second.close()
            return a.tenant.public_key

    assert run(scenario) == A.public


def test_folder_of_another_key_is_refused(tmp_path):
    """A folder that has an identity is not given the device's."""

    async def scenario():
        async with HostServer() as server:
            async with LprpTenant(tmp_path / "home", server.host, settings=QUICK):
                pass
            carrying = BspOverLprp(tmp_path / "home", server.host, key_pair=A, settings=QUICK)
            with pytest.raises(LocalError, match="another key"):
                await carrying.open(CarrierSession(A, B))
            await carrying.close()

    run(scenario)


def test_bundle_beyond_the_bound_is_refused(tmp_path):
    """The caller has asked for less; what is left of a mailbox is for others."""

    async def scenario():
        async with carrier(tmp_path, NOBODY, A, B, leased=False) as (a, _, _):
            with pytest.raises(LocalError, match="37888"):
                await a.carry(B.public, bytes(LPRP_BUNDLE_BYTES_MAX + 1))

    run(scenario)


def test_no_key_is_no_peer(tmp_path):
    """Bytes that nothing can be sealed for are refused as the carrier refuses everything."""
    junk = b"\0" * 32

    async def scenario():
        async with HostServer() as server, carrier(tmp_path, server.host, A, leased=False) as (a, session, _):
            with pytest.raises(NotCarriedError):
                await a.carry(junk, session.seal(B.public, b"x"))

    run(scenario)
