"""BSP groups over a MERK relay that cannot read them: two devices that are never at the same address.

Each device has a key, and is given the other's. Both name a relay; what one writes the other prints:

    python examples/bridge.py key laptop
    python examples/bridge.py key phone
    python examples/bridge.py listen phone wss://relay.example/merk KEY-OF-LAPTOP        # in a second terminal
    python examples/bridge.py write laptop wss://relay.example/merk KEY-OF-PHONE "hello"
"""

import argparse
import asyncio
import hashlib
import sys

import waystation

GROUP = "bridge"
CLIENT_ID = hashlib.sha256(b"waystation examples bridge 1").digest()


def show(event: object) -> None:
    """Print a failed connection; the next one is tried by itself."""
    if isinstance(event, waystation.merk.Disconnected):
        print(f"waiting for the relay: {event.reason}", file=sys.stderr, flush=True)


async def run(action: str, home: str, relay: str, peer: str, text: str) -> None:
    """Write one message and wait until the peer holds it, or print what the peer writes until stopped."""
    async with waystation.bsp.open(home) as client:
        if action == "key":
            print(client.public_key.id52)
            return
        await client.join(client.home.profile.group(CLIENT_ID, b"", "opaque"), GROUP)
        await client.share(GROUP, await client.meet(peer))
        keys = waystation.bridges.merk_keys_of(client.home.key_pair)
        await client.attach(waystation.bridges.BspOverMerk(relay, keys=keys, on_event=show))
        if action == "write":
            sent = await client.send(GROUP, text.encode())
            print((await sent.settled()).sentence)
            return
        print("listening", flush=True)
        async for message in client.messages(GROUP):
            print((message.body or b"").decode(errors="replace"), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("key", "listen", "write"))
    parser.add_argument("home", help="folder of this device")
    parser.add_argument("relay", nargs="?", default="", help="wss://host/merk")
    parser.add_argument("peer", nargs="?", default="", help="key of the other device")
    parser.add_argument("text", nargs="?", default="", help="for write")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.action, given.home, given.relay, given.peer, given.text))
    except waystation.errors.WaystationError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
