"""A voicemail box over LPRP: messages wait at a host, sealed, until their recipient is there.

The owner listens now and then; every message becomes a file, once. Others leave messages with the owner's key:

    python examples/voicemail.py listen box lprp://KEY@host:4810 --folder inbox
    python examples/voicemail.py leave me lprp://KEY@host:4810 OWNERS-KEY "call me back"
"""

import argparse
import asyncio
from pathlib import Path

import waystation


async def listen(home: str, host: str, folder: Path, count: int) -> None:
    """Write messages into files named by sender and id, until there were ``count``; 0 goes on for ever."""
    async with waystation.lprp.open(home, host) as client:
        print(f"write to {client.public_key.id52}", flush=True)
        async for message in client.messages():
            path = folder / f"{message.sender.hex()[:16]}-{message.id.hex()}"
            path.write_bytes(message.data)
            await message.done()  # from here on it never comes again
            print(f"{path}", flush=True)
            count -= 1
            if count == 0:
                return


async def leave(home: str, host: str, recipient: str, text: str) -> bool:
    """Leave a message, with work where the host demands it; return whether the host keeps it."""
    async with waystation.lprp.open_sender(home, host) as client:
        sent = await client.send(waystation.PublicKey.parse(recipient), text)
        print(sent.sentence if sent.ok else f"{sent.sentence}; {sent.advice}")
        return sent.ok


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    listening = actions.add_parser("listen")
    leaving = actions.add_parser("leave")
    for each in (listening, leaving):
        each.add_argument("home", help="folder of this identity")
        each.add_argument("host", help="lprp://KEY@host:port")
    listening.add_argument("--folder", type=Path, default=Path("inbox"))
    listening.add_argument("--count", type=int, default=0, help="end after so many messages")
    leaving.add_argument("recipient", help="key of the owner: hexadecimal, id52 or did:strata")
    leaving.add_argument("text")
    given = parser.parse_args()
    try:
        if given.action == "listen":
            given.folder.mkdir(parents=True, exist_ok=True)
            asyncio.run(listen(given.home, given.host, given.folder, given.count))
        elif not asyncio.run(leave(given.home, given.host, given.recipient, given.text)):
            raise SystemExit(1)
    except waystation.errors.WaystationError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
