"""Multicast for tests: whether this machine has it, a service type of their own, and whatever a stranger may say."""

import asyncio
import contextlib
import os
import select
import socket
import sys

from zeroconf import DNSAddress, DNSOutgoing, DNSPointer, DNSService, DNSText

from waystation.core.ids import encode_id52
from waystation.transport.datagrams.mdns import Mdns, lan_interfaces

GROUP = "224.0.0.251"
PORT = 5353  # of mDNS; there is no other
SERVICE = f"_bhumi-{os.getpid()}._tcp.local."  # others may look for the real one on this machine at the same time
WITHIN_S = 60
LOOPBACK = lan_interfaces("127.0.0.1")
_RESPONSE = 0x8400
_FLUSH = 0x8001
_PROBE_S = 2.0
_CHILD = """
import asyncio, sys
from waystation.core.ids import decode_id52
from waystation.transport.datagrams.mdns import Mdns, lan_interfaces

async def announce():
    mdns = Mdns(lambda _: None, lambda _: None, lan_interfaces("127.0.0.1"), service=sys.argv[1])
    await mdns.open()
    await mdns.announce(decode_id52(sys.argv[2]), "tls", "127.0.0.1", int(sys.argv[3]), ttl_s=int(sys.argv[4]))
    print("announced", flush=True)
    await asyncio.Event().wait()

asyncio.run(announce())
"""


def _hears_itself():
    """Return whether a datagram to the group reaches this machine over loopback."""
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
        ):
            ear.bind(("", 0))
            ear.setsockopt(
                socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
            )
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            mouth.sendto(b"?", (GROUP, ear.getsockname()[1]))
            return bool(select.select([ear], [], [], _PROBE_S)[0])
    except OSError:
        return False


HAS_MULTICAST = _hears_itself()
"""Where it is false the network is silent: a test then proves that nothing is found and nothing breaks."""


class Watch:
    """An open port, and everything it told, until the block ends."""

    def __init__(self, service=SERVICE):
        self.told = []
        """("found" or "gone", LanRelay)."""
        self._changed = asyncio.Event()
        self.mdns = Mdns(self._note("found"), self._note("gone"), LOOPBACK, service=service)

    def _note(self, what):
        def note(relay):
            self.told.append((what, relay))
            self._changed.set()

        return note

    async def __aenter__(self):
        await self.mdns.open()
        return self

    async def __aexit__(self, *_):
        await self.mdns.close()

    def live(self):
        """Return the addresses that were found and are not gone, by relay."""
        live = {}
        for what, relay in self.told:
            if what == "found":
                live[relay.relay_id] = relay.address
            elif live.get(relay.relay_id) == relay.address:
                del live[relay.relay_id]
        return live

    async def until(self, holds):
        """Wait until something holds."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.05)


async def announcing_process(relay_id, port, ttl_s):
    """Return a process that announces a relay and can be killed without a goodbye; it has announced by then."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CHILD, SERVICE, encode_id52(relay_id), str(port), str(ttl_s)),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WITHIN_S):
        assert await process.stdout.readline() == b"announced\n"
    return process


def say(*services):
    """Send a response for each of these services to the group, each as a dictionary for ``records``."""
    for service in services:
        say_records(records(**service))


def say_records(spoken, spoil=lambda packet: packet):
    """Send one response with these records to the group; ``spoil`` may alter its bytes."""
    response = DNSOutgoing(_RESPONSE)
    for record in spoken:
        response.add_answer_at_time(record, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for packet in response.packets():
            mouth.sendto(spoil(packet), (GROUP, PORT))


def records(name, text=None, port=4444, host="127.0.0.1", ttl_s=120, relay_id=None):
    """Return what a service with this first label is made of; ``text`` are items of TXT, or made from ``relay_id``."""
    items = [b"id=" + encode_id52(relay_id).encode(), b"v=1"] if text is None else text
    full, server = f"{name}.{SERVICE}", f"{name}.local."
    blob = b"".join(bytes([len(item)]) + item for item in items)
    return [
        DNSPointer(SERVICE, 12, 1, ttl_s, full),
        DNSService(full, 33, _FLUSH, ttl_s, 0, 0, port, server),
        DNSText(full, 16, _FLUSH, ttl_s, blob),
        DNSAddress(server, 1, _FLUSH, ttl_s, socket.inet_aton(host)),
    ]
