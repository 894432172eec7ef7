"""Laws of protocols.bsp.dials."""

import random

import pytest

from tests.protocols.bsp.build_machine import Bench
from tests.protocols.bsp.build_streams import FRIEND, STRANGER
from waystation.core.effects import Dial
from waystation.core.errors import LocalError
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bsp.device.dials import Dials, Redial, kind_of_url
from waystation.protocols.bsp.stream.machine import PeerDown

URL = "bsp+tls://friend.example:7443"
PLAIN_URL = "bsp+tcp://127.0.0.1:7"
NOW = Instant(9_000_000)


def dials_with(*keys, seed=1):
    dials = Dials(random.Random(seed))
    for key in keys:
        dials.add(key.public, URL, is_connected=False)
    return dials


def waits_of(dials, count):
    """Let every dial fail; return the waits in milliseconds."""
    now, waits = NOW, []
    for _ in range(count):
        list(dials.begin(now))
        dials.again(FRIEND.public, now)
        waits.append((dials.deadline() - now) // 1_000)
        now = dials.deadline()
    return waits


def test_kinds_of_addresses():
    """The scheme says what stands between us and the records."""
    assert [kind_of_url(url) for url in (URL, "bsp+wss://a/b", PLAIN_URL)] == ["tls", "wss", "plain"]


@pytest.mark.parametrize("url", ["", "friend", "https://a", "bsp://a", "tls://a", "BSP+TLS://a"])
def test_other_addresses_are_refused(url):
    """What is none of ours is said so at once."""
    with pytest.raises(LocalError):
        dials_with().add(FRIEND.public, url, is_connected=False)


def test_first_dial_is_due_at_once():
    """A peer is dialled as soon as anybody looks, once."""
    dials = dials_with(FRIEND)

    assert dials.deadline() == Instant(0)
    assert list(dials.begin(NOW)) == [Dial(FRIEND.public.hex(), URL, only_public=False)]
    assert list(dials.begin(NOW)) == []
    assert dials.deadline() is None
    assert dials.began_at(FRIEND.public) == NOW


def test_waits_double_to_a_minute_with_jitter():
    """1 s, 2, 4 ... 60 s, each between half and all of it, for ever."""
    waits = waits_of(dials_with(FRIEND), 12)

    for wait, most in zip(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, *[60_000] * 6], strict=True):
        assert most // 2 <= wait <= most


def test_peer_of_a_node_that_cannot_be_reached_is_dialled_within_6_s():
    """NODE-REDIAL: the waits of a minute are for who answers and ends the connection."""
    dials, now = dials_with(FRIEND), NOW
    for _ in range(12):
        list(dials.begin(now))
        dials.unreachable(FRIEND.public, now)
        assert dials.deadline() <= after_ms(now, 6_000)
        now = dials.deadline()


def test_jitter_comes_from_the_rng():
    """One seed, one sequence; two seeds, two."""
    assert waits_of(dials_with(FRIEND, seed=1), 8) == waits_of(dials_with(FRIEND, seed=1), 8)
    assert waits_of(dials_with(FRIEND, seed=1), 8) != waits_of(dials_with(FRIEND, seed=2), 8)


def test_each_peer_is_dialled_in_its_own_time():
    """Whose dial has failed waits, while somebody new is sought at once."""
    dials = dials_with(FRIEND)
    list(dials.begin(NOW))
    dials.again(FRIEND.public, NOW)

    dials.add(STRANGER.public, URL, is_connected=False)

    assert [dial.name for dial in dials.begin(NOW)] == [STRANGER.public.hex()]
    assert [dial.name for dial in dials.begin(dials.deadline())] == [FRIEND.public.hex()]


@pytest.mark.parametrize(("lasted_ms", "most_ms"), [(4_999, 32_000), (5_000, 1_000)])
def test_connection_that_lasted_starts_the_waits_anew(lasted_ms, most_ms):
    """Half a minute is long enough to forget earlier failures."""
    dials = dials_with(FRIEND)
    waits_of(dials, 5)

    dials.again(FRIEND.public, NOW, lasted_ms=lasted_ms)

    assert after_ms(NOW, most_ms // 2) <= dials.deadline() <= after_ms(NOW, most_ms)


def test_connected_peer_is_not_dialled():
    """However the connection came, there is nothing to dial until it is lost."""
    dials = dials_with(FRIEND)

    dials.connected(FRIEND.public)

    assert (dials.deadline(), list(dials.begin(NOW))) == (None, [])
    dials.again(FRIEND.public, NOW)
    assert dials.deadline() is not None


def test_removed_peer_is_not_dialled():
    """Nothing is left of it, and a late failure changes nothing."""
    dials = dials_with(FRIEND, STRANGER)

    dials.remove(FRIEND.public)
    dials.again(FRIEND.public, NOW)
    dials.connected(FRIEND.public)

    assert [dial.name for dial in dials.begin(NOW)] == [STRANGER.public.hex()]
    assert (len(dials), dials.url_of(FRIEND.public)) == (1, None)


def test_other_address_is_tried_at_once():
    """A new address has no failures behind it; the same one again changes nothing."""
    dials = dials_with(FRIEND)
    waits_of(dials, 5)
    due = dials.deadline()

    dials.add(FRIEND.public, URL, is_connected=False)
    assert dials.deadline() == due
    dials.add(FRIEND.public, PLAIN_URL, is_connected=False)

    assert dials.deadline() == Instant(0)


def test_peer_that_is_here_is_only_noted():
    """An address of somebody connected waits for the end of that connection."""
    dials = dials_with()

    dials.add(FRIEND.public, URL, is_connected=True)

    assert dials.deadline() is None


# At the machine


def test_unreachable_peer_is_dialled_again_and_told():
    """Each failure is an event, and the next dial follows by itself."""
    bench = Bench(dials={FRIEND.public: URL})
    bench.pass_ms(0)

    for _ in range(3):
        bench.machine.upstream_failed(FRIEND.public.hex(), bench.now)
        bench.pass_ms(8_000)

    assert bench.dials == [Dial(FRIEND.public.hex(), URL, only_public=False)] * 4
    assert bench.events == [PeerDown(FRIEND.public, "unreachable")] * 3


def test_lost_connection_is_dialled_again():
    """A connection that we dialled and lost is sought anew within a second."""
    bench = Bench(dials={FRIEND.public: PLAIN_URL})
    bench.pass_ms(0)
    peer = bench.dialled(FRIEND)
    bench.pass_ms(40_000)
    assert len(bench.dials) == 1

    bench.machine.disconnect(peer, bench.now)
    bench.pass_ms(499)
    assert len(bench.dials) == 1
    bench.pass_ms(501)

    assert len(bench.dials) == 2


def test_peer_that_came_to_us_is_dialled_once_it_left():
    """While it is here by its own connection we do not dial; then we do."""
    bench = Bench(dials={FRIEND.public: URL}, plain_peer=FRIEND.public)
    peer = bench.come("plain")
    bench.pass_ms(100_000)
    assert not bench.dials

    bench.machine.disconnect(peer, bench.now)
    bench.pass_ms(1_000)

    assert len(bench.dials) == 1


def test_undialled_peer_that_stands_late_is_closed():
    """A dial that was called off and stands all the same is let go without a word."""
    bench = Bench(dials={FRIEND.public: PLAIN_URL})
    bench.pass_ms(0)
    bench.machine.undial(FRIEND.public)

    peer = bench.dialled(FRIEND)

    assert peer in bench.closes
    assert not bench.sends
    assert not bench.events


def test_retired_machine_dials_nobody():
    """Who is leaving seeks nobody, and asks for no wake to do so."""
    bench = Bench(dials={FRIEND.public: URL})
    bench.machine.retire()

    bench.pass_ms(100_000)

    assert not bench.dials
    assert bench.machine.deadline() is None


def test_device_waits_less_than_a_node():
    """NODE-BACK: the longest wait and the life that ends the waits are the owner's."""
    dials = Dials(random.Random(1), Redial(retry_ms_max=6_000, stable_ms=5_000))
    dials.add(FRIEND.public, URL, is_connected=False)
    waits = waits_of(dials, 10)
    list(dials.begin(dials.deadline()))
    dials.again(FRIEND.public, NOW, lasted_ms=5_000)

    assert max(waits) <= 6_000
    assert dials.deadline() <= after_ms(NOW, 1_000)


def test_hurry_dials_who_is_waited_for():
    """A peer that waits for a minute is dialled now; one that is connected or being dialled is not."""
    dials = dials_with(FRIEND, STRANGER)
    waits_of(dials, 10)
    list(dials.begin(after_ms(NOW, 3_600_000)))
    dials.again(FRIEND.public, NOW)
    dials.hurry(NOW)

    assert [dial.name for dial in dials.begin(NOW)] == [FRIEND.public.hex()]
