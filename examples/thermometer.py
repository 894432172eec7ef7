"""A thermometer that its owner's friends may ask, over Bhumi: end-to-end encrypted, one invite for each friend.

Run it, and give the token that it prints to one friend, who pairs once and asks whenever the thermometer is connected.
A node that `waystation serve` has started has made its own authority, so each command takes `--ca`:

    python examples/thermometer.py serve thermometer tls://127.0.0.1:8443 --ca waystation/tls/ca.pem
    python examples/thermometer.py pair friend tls://127.0.0.1:8443 TOKEN --ca waystation/tls/ca.pem
    python examples/thermometer.py ask friend tls://127.0.0.1:8443 --ca waystation/tls/ca.pem
"""

import argparse
import asyncio
import ssl
import sys
from pathlib import Path

import waystation

SENSOR = Path("/sys/class/thermal/thermal_zone0/temp")


def measure() -> str:
    """Return the temperature of this machine, in degrees Celsius."""
    try:
        return f"{int(SENSOR.read_text()) / 1_000:.1f} °C"
    except (OSError, ValueError):
        return "no sensor here"


def show(event: waystation.bhumi.DeviceEvent) -> None:
    """Print whether the relay has taken the thermometer; a lost connection comes back by itself."""
    if isinstance(event, waystation.bhumi.Listening):
        print(f"connected to {event.relay}", flush=True)
    elif isinstance(event, waystation.bhumi.Disconnected):
        print(f"waiting for the relay: {event.reason}", file=sys.stderr, flush=True)


async def serve(home: str, relay: str, tls: ssl.SSLContext | None) -> None:
    """Answer every request with the temperature, until stopped."""

    async def answer(request: waystation.bhumi.Request) -> str:
        print(f"{request.alias} asks: {request.text}", flush=True)
        return measure()

    async with waystation.bhumi.open(home, relay, tls=tls, on_event=show, keep_trying=True) as client:
        print(client.invite("friend"), flush=True)
        await client.serve(answer)


async def pair(home: str, relay: str, tls: ssl.SSLContext | None, token: str) -> None:
    """Use the token of a thermometer."""
    async with waystation.bhumi.open(home, relay, tls=tls) as client:
        peer = await client.accept(token, alias="thermometer")
        print(f"paired with {peer.identity.id52}")


async def ask(home: str, relay: str, tls: ssl.SSLContext | None) -> None:
    """Print the temperature, or why there is none and what to do."""
    async with waystation.bhumi.open(home, relay, tls=tls) as client:
        reply = await client.send("thermometer", "how warm is it?")
        print(reply.text if reply.ok else f"{reply.sentence}; {reply.advice}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("serve", "pair", "ask"))
    parser.add_argument("home", help="folder of this identity")
    parser.add_argument("relay", help="tls://host:port")
    parser.add_argument("token", nargs="?", default="", help="for pair")
    parser.add_argument("--ca", help="certificate of an authority to trust, for a relay of your own")
    given = parser.parse_args()
    actions = {
        "serve": lambda tls: serve(given.home, given.relay, tls),
        "pair": lambda tls: pair(given.home, given.relay, tls, given.token),
        "ask": lambda tls: ask(given.home, given.relay, tls),
    }
    try:
        asyncio.run(actions[given.action](waystation.tls(given.ca) if given.ca else None))
    except waystation.errors.WaystationError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
