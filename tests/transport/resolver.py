"""A resolver for tests: the name "localhost" has both families, whatever the hosts file of the machine says."""

import asyncio
import contextlib
import socket

BOTH = ("::1", "127.0.0.1")


@contextlib.contextmanager
def resolving(places=BOTH):
    """Let this loop resolve "localhost" to these addresses, in this order; other names as ever."""
    loop = asyncio.get_running_loop()
    ask = loop.getaddrinfo

    async def answer(host, port, **options):
        if host != "localhost":
            return await ask(host, port, **options)
        return [found for place in places for found in await ask(place, port, **options)]

    loop.getaddrinfo = answer
    try:
        yield
    finally:
        loop.getaddrinfo = ask


def free_port():
    """Return a TCP port where nobody listens, of both families."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as probe:
        return probe.getsockname()[1]
