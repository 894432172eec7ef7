"""Laws of transport.udp, over real sockets."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.transport.datagrams.build_udp import BURST, HAS_IPV6, HOSTS, Heard, address_of, full_pair, port, turns
from waystation.core.errors import HostError
from waystation.transport.datagrams.send_queue import WAITING_MAX, SendQueue
from waystation.transport.datagrams.udp import DATAGRAM_BYTES_MAX, DATAGRAMS_PER_LOOK, UdpCounts, UdpSocket

SMALL = bytes(144)


@pytest.mark.parametrize("host", HOSTS)
def test_datagrams_go_both_ways(host):
    """What one port sends the other hears, whole and in order, from the address that answers reach."""

    async def story():
        async with port(host) as (one, heard_by_one), port(host) as (other, heard_by_other):
            one.send([(b"a", address_of(other)), (b"", address_of(other)), (b"c" * 508, address_of(other))])
            there = await heard_by_other.until(3)
            senders = {sender for _, sender in heard_by_other.datagrams}
            other.send([(b"back", sender) for sender in senders])
            back = await heard_by_one.until(1)
            return there, senders == {address_of(one)}, back

    assert asyncio.run(story()) == ([b"a", b"", b"c" * 508], True, [b"back"])


def test_one_port_for_both_families():
    """Bound to "::" it hears IPv4 under its plain address and answers it there; without IPv6 there is no such port."""

    async def story():
        async with port("::") as (both, heard), port("127.0.0.1") as (four, by_four), port("::1") as (six, by_six):
            four.send([(b"four", ("127.0.0.1", both.port))])
            six.send([(b"six", ("::1", both.port))])
            await heard.until(2)
            both.send([(b"to " + data, sender) for data, sender in heard.datagrams])
            return (
                sorted(sender == address_of(four if data == b"four" else six) for data, sender in heard.datagrams),
                await by_four.until(1),
                await by_six.until(1),
            )

    if not HAS_IPV6:
        with pytest.raises(HostError, match="cannot listen"):
            asyncio.run(story())
        return

    assert asyncio.run(story()) == ([True, True], [b"to four"], [b"to six"])


EVERY = ["*", "::", "0.0.0.0"]
OURS = ["127.0.0.1", "127.0.0.2", "127.3.2.1", "::1"]


@pytest.mark.parametrize("asked", OURS)
@pytest.mark.parametrize("host", EVERY)
def test_answer_leaves_from_the_address_that_was_asked(host, asked):
    """NODE-PKTINFO: on every address of this machine, each answer comes from the one its question went to.

    The asking socket is connected, so it drops an answer from elsewhere; another one sees the source itself.
    """

    async def story():
        async with port(host) as (here, heard):
            with dialled(asked, here.port) as connected, free(asked) as unconnected:
                connected.send(b"connected")
                unconnected.sendto(b"free", (asked, here.port))
                await heard.until(2)
                here.send([(b"to " + data, address) for data, address in heard.datagrams])
                sources = {address[0] for _, address in heard.datagrams}
                data, source = unconnected.recvfrom(100)
                return connected.recv(100), data, source[0], sources

    if ":" in asked and (host == "0.0.0.0" or not HAS_IPV6):
        return
    assert asyncio.run(story()) == (b"to connected", b"to free", asked, {"::1" if ":" in asked else "127.0.0.1"})


@pytest.mark.parametrize("host", EVERY)
def test_plain_address_leaves_by_routing(host):
    """NODE-PKTINFO: an equal pair that no datagram brought, as one from the store, reaches its place too."""

    async def story():
        async with port(host) as (here, heard):
            with free("127.0.0.1") as asking:
                asking.sendto(b"ask", ("127.0.0.2", here.port))
                await heard.until(1)
                address = heard.datagrams[0][1]
                here.send([(b"answer", tuple(address)), (b"again", address)])
                sources = [asking.recvfrom(100)[1][0] for _ in range(2)]
                return sources, address == asking.getsockname(), {address: 1}[asking.getsockname()]

    assert asyncio.run(story()) == (["127.0.0.1", "127.0.0.2"], True, 1)


def test_addresses_that_were_asked_are_remembered_within_a_bound():
    """Whoever asks at 3,000 addresses of ours costs the memory of 1,024, and is answered from each."""

    async def story():
        async with port("0.0.0.0") as (here, heard):
            with free("127.0.0.1") as asking:
                for number in range(3_000):
                    asked = f"127.0.{number >> 8}.{number & 255 or 1}"
                    asking.sendto(b"ask", (asked, here.port))
                    await heard.until(number + 1)
                    here.send([(b"answer", heard.datagrams[-1][1])])
                    assert asking.recvfrom(100)[1][0] == asked
            return len(here._ways)

    assert 0 < asyncio.run(story()) <= 1_024


def test_every_address_is_shown_as_one_that_scripts_can_dial():
    """NODE-DUAL: "*" is heard on both families and shown as 0.0.0.0; a second port of the same number is refused."""

    async def story():
        async with port("*") as (here, heard):
            for asked in OURS if HAS_IPV6 else OURS[:-1]:
                with free(asked) as asking:
                    asking.sendto(b"ask", (asked, here.port))
            await heard.until(len(OURS) if HAS_IPV6 else len(OURS) - 1)
            with pytest.raises(HostError, match="the port is taken"):
                await UdpSocket(Heard()).open("0.0.0.0", here.port)
            return here.host

    assert asyncio.run(story()) == "0.0.0.0"


def dialled(host, number):
    """Return a socket that hears this place alone."""
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    opened.settimeout(5)
    opened.connect((host, number))
    return opened


def free(host):
    """Return a socket that hears everybody, over the family of ``host``."""
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    opened.settimeout(5)
    opened.bind(("::1" if ":" in host else "127.0.0.1", 0))
    return opened


def link_local():
    """Return an address of this machine that only holds on one link, with the link's number; None without one."""
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        digits, index, _bits, scope, *_ = line.split()
        if scope == "20":
            return ":".join(digits[at : at + 4] for at in range(0, 32, 4)), int(index, 16)
    return None


def test_zone_of_a_link_comes_back():
    """An answer to an address of one link leaves on that link, if this machine has such an address."""
    found = link_local()

    async def story(host, index):
        async with port("::") as (here, heard):
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:
                other.settimeout(5)
                other.bind((host, 0, 0, index))
                other.sendto(b"ask", (host, here.port, 0, index))
                await heard.until(1)
                sender = heard.datagrams[0][1][0]
                here.send([(b"answer", heard.datagrams[0][1])])
                return other.recv(100), sender.endswith(f"%{index}")

    assert found is None or asyncio.run(story(*found)) == (b"answer", True)


def test_burst_is_heard_whole_in_bounded_looks():
    """5,000 datagrams at once arrive, none lost, in order, and no look takes more than its share."""

    async def story():
        async with port() as (here, heard), port() as (there, _):
            for start in range(0, 5_000, BURST):
                there.send([(b"%d" % number, address_of(here)) for number in range(start, start + BURST)])
                await heard.until(start + BURST)
            return await heard.until(5_000), heard.looks, here.counts(), there.counts().sent

    said, looks, counts, sent = asyncio.run(story())

    assert said == [b"%d" % number for number in range(5_000)]
    assert max(looks) == min(BURST, DATAGRAMS_PER_LOOK)
    assert (counts.received, sent) == (5_000, 5_000)


def test_flood_leaves_the_loop_to_others():
    """Between two looks the loop turns, so that other peers have theirs."""

    async def story():
        async with port() as (here, heard), port() as (there, _):
            there.send([(SMALL, address_of(here))] * (3 * DATAGRAMS_PER_LOOK))
            turned = 0
            while len(heard.datagrams) < 3 * DATAGRAMS_PER_LOOK:
                turned += 1
                await asyncio.sleep(0)
            return turned

    assert asyncio.run(story()) >= 3


@pytest.mark.parametrize(
    ("sent_bytes", "heard_bytes"), [(2_000, 2_000), (DATAGRAM_BYTES_MAX + 1, DATAGRAM_BYTES_MAX), (60_000, 2_048)]
)
def test_oversized_datagram_is_cut_and_stays_too_long(sent_bytes, heard_bytes):
    """Its length still tells that it is longer than any that may come, and the one behind it is heard."""

    async def story():
        async with port() as (here, heard), port() as (there, _):
            there.send([(bytes(sent_bytes), address_of(here)), (b"next", address_of(here))])
            return [len(data) for data in await heard.until(2)]

    assert asyncio.run(story()) == [heard_bytes, 4]


def test_port_unreachable_disturbs_nobody():
    """Complaints of hosts where nobody listens neither raise nor hide what others say."""

    async def story():
        async with port() as (here, heard), port() as (there, _):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
                gone.bind(("127.0.0.1", 0))
                nobody = gone.getsockname()
            for _ in range(20):
                here.send([(SMALL, nobody)])
                await asyncio.sleep(0)
            there.send([(b"still here?", address_of(here))])
            here.send([(b"yes", address_of(there))])
            return await heard.until(1), here.counts()

    said, counts = asyncio.run(story())

    assert said == [b"still here?"]
    assert (counts.sent, counts.received) == (21, 1)


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 0), ("255.255.255.255", 9), ("::1", 9)], ids=["port 0", "broadcast", "other family"]
)
def test_impossible_destination_is_counted(address):
    """An address that the kernel refuses costs that datagram alone."""

    async def story():
        async with port() as (here, _), port() as (there, heard):
            here.send([(b"a", address_of(there)), (b"lost", address), (b"b", address_of(there))])
            return await heard.until(2), here.counts()

    assert asyncio.run(story()) == ([b"a", b"b"], UdpCounts(received=0, sent=2, waiting=0, dropped=0, failed=1))


def test_too_long_to_send_is_counted():
    """A datagram larger than UDP can carry fails alone."""

    async def story():
        async with port() as (here, _), port() as (there, heard):
            here.send([(bytes(70_000), address_of(there)), (b"b", address_of(there))])
            return await heard.until(1), here.counts().failed

    assert asyncio.run(story()) == ([b"b"], 1)


class FullSocket(UdpSocket):
    """A port whose kernel buffer is full from the start."""

    def _queue(self, carrier):
        self.near, self.far, _ = full_pair()
        return SendQueue(self.near, lambda datagram: self.near.send(datagram[0]))

    def close(self):
        super().close()
        self.near.close()
        self.far.close()


def test_full_kernel_buffer_queues_within_a_bound():
    """What the kernel has no room for waits, what the queue has no room for is dropped and counted."""

    async def story():
        async with port(kind=FullSocket) as (here, _):
            here.send([(SMALL, ("192.0.2.1", 9))] * (WAITING_MAX + 7))
            return here.counts()

    assert asyncio.run(story()) == UdpCounts(received=0, sent=0, waiting=WAITING_MAX, dropped=7, failed=0)


def test_queue_leaves_when_there_is_room():
    """The loop sends what waited as soon as the kernel takes it."""

    async def story():
        async with port(kind=FullSocket) as (here, _):
            here.send([(b"late", ("192.0.2.1", 9))])
            said = []
            while b"late" not in said:
                said.append(await asyncio.get_running_loop().sock_recv(here.far, 100))
            return here.counts()

    assert asyncio.run(story()) == UdpCounts(received=0, sent=1, waiting=0, dropped=0, failed=0)


def test_taken_port_is_named():
    """A second node on the port is told so, with the exit code of ports; nobody shares one silently."""

    async def story():
        async with port() as (here, _):
            await UdpSocket(Heard()).open("127.0.0.1", here.port)

    with pytest.raises(HostError, match=r"cannot listen on 127\.0\.0\.1:\d+: the port is taken") as caught:
        asyncio.run(story())

    assert caught.value.exit_code == 4


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_address_that_is_not_ours_is_refused(host):
    """An address of another machine, or a name of nobody, is a sentence and not a traceback."""
    with pytest.raises(HostError, match=f"cannot listen on {host}:0"):
        asyncio.run(UdpSocket(Heard()).open(host, 0))


def test_closed_port_is_silent():
    """After the end nothing is heard or sent, closing again does nothing, and the counts can still be read."""

    async def story():
        async with port() as (here, heard), port() as (there, _):
            there.send([(b"before", address_of(here))])
            await heard.until(1)
            address = address_of(here)
            here.close()
            here.close()
            there.send([(b"after", address)])
            here.send([(b"never", address_of(there))])
            await asyncio.sleep(0)
            return heard.datagrams[1:], here.counts()

    assert asyncio.run(story()) == ([], UdpCounts(received=1, sent=0, waiting=0, dropped=0, failed=0))


def test_port_that_was_never_open():
    """Before it is bound a port has seen nothing and sends nothing."""
    here = UdpSocket(Heard())
    here.send([(b"x", ("127.0.0.1", 9))])
    here.close()

    assert here.counts() == UdpCounts(0, 0, 0, 0, 0)


def test_end_inside_a_look_is_fine():
    """Whoever closes the port while it is told of datagrams is not told of more."""

    async def story():
        heard = []

        def close_at_once(datagrams):
            heard.append(len(datagrams))
            here.close()

        here = UdpSocket(close_at_once)
        await here.open("127.0.0.1", 0)
        async with port() as (there, _):
            there.send([(SMALL, address_of(here))] * 600)
            await turns(lambda: heard)
            await asyncio.sleep(0)
        return heard

    assert asyncio.run(story()) == [DATAGRAMS_PER_LOOK]
