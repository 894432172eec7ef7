"""Clients that come back at once over TLS: ``python -m soak.bhumi.herd PORT CA COUNT``; it prints how that was.

Each waits for the relay's HELLO, tries again when it is closed or gets no answer, and stays until all are there. They
have addresses of their own on loopback, eight each, since a node limits what one address may have.
"""

import asyncio
import json
import ssl
import sys
import time
from typing import Final

EACH: Final = 8
"""Clients of one address."""
ANSWER_S: Final = 30.0
AGAIN_S: Final = 0.1
HELLO_BYTES: Final = 6


async def come_back(port: int, context: ssl.SSLContext, number: int) -> tuple[float, int, asyncio.StreamWriter]:
    """Return how long it took until the relay said HELLO, how many tries that were, and the connection."""
    began_s, tries = time.monotonic(), 0
    place = number // EACH
    address = f"127.1.{place // 250}.{place % 250 + 1}"
    while True:
        tries += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname="localhost", local_addr=(address, 0)
                )
                try:
                    await reader.readexactly(HELLO_BYTES)
                except BaseException:
                    writer.close()
                    raise
                return time.monotonic() - began_s, tries, writer
        except (OSError, EOFError):  # TimeoutError and SSLError are OSErrors
            await asyncio.sleep(AGAIN_S)


async def _herd(port: int, ca: str, count: int) -> None:
    context = ssl.create_default_context(cafile=ca)
    found = await asyncio.gather(*(come_back(port, context, number) for number in range(count)))
    seconds = sorted(took_s for took_s, _, _ in found)
    tries = sum(each for _, each, _ in found)
    print(json.dumps({"all_s": seconds[-1], "half_s": seconds[count // 2], "tries": tries}), flush=True)
    for _, _, writer in found:
        writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(_herd(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
