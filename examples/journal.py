"""A public journal over Strata: signed entries at relays, and a reader that goes on where it was.

    python examples/journal.py write me wss://relay.example/strata "a fine day"
    python examples/journal.py read friend wss://relay.example/strata --author did:strata:z6Mk...

Strata is not metadata-private: the program says so before anything else.
"""

import argparse
import asyncio
import sys

import waystation


async def write(home: str, relay: str, text: str) -> bool:
    """Publish one entry; return whether a relay has stored it."""
    async with waystation.strata.open(home, relay) as client:
        sent = await client.send({"type": "POST", "text": text})
        print(f"{client.public_key.did}: {sent.sentence}")
        return sent.ok


async def read(home: str, relay: str, author: str | None) -> None:
    """Print the entries that were not printed before, the oldest first; each choice of author has its own place."""
    filters = waystation.strata.Filters(authors=(author,) if author else (), types=("POST",))
    async with waystation.strata.open(home, relay) as client:
        async for delivery in client.messages(filters, follow=False, resume=author or "everybody"):
            text = delivery.packet.body["content"].get("text", "(no text)")
            print(f"{delivery.packet.author_id}: {text}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "read"))
    parser.add_argument("home", help="folder of this identity")
    parser.add_argument("relay", help="wss://host/strata")
    parser.add_argument("text", nargs="?", default="", help="for write")
    parser.add_argument("--author", help="for read: only entries of this DID")
    given = parser.parse_args()
    print(waystation.strata.METADATA_NOTICE, file=sys.stderr)
    try:
        if given.action == "read":
            asyncio.run(read(given.home, given.relay, given.author))
        elif not asyncio.run(write(given.home, given.relay, given.text)):
            raise SystemExit(1)
    except waystation.errors.WaystationError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
