"""Notes that two devices keep the same over BSP, by a file on a memory stick: no network at all.

Each device has a key, and is given the other's, once; then files go to and fro, in any order, as often as you like:

    python examples/notes.py key laptop
    python examples/notes.py key phone
    python examples/notes.py pair laptop KEY-OF-PHONE
    python examples/notes.py pair phone KEY-OF-LAPTOP
    python examples/notes.py write laptop "buy bread"
    python examples/notes.py export laptop stick/notes.bsp
    python examples/notes.py import phone stick/notes.bsp
    python examples/notes.py read phone
"""

import argparse
import asyncio
import hashlib
from pathlib import Path

import waystation

GROUP = "notes"
CLIENT_ID = hashlib.sha256(b"waystation examples notes 1").digest()
"""The group's identifier is made of it, so that every device that runs this program is in the same group."""


async def run(action: str, home: str, value: str) -> None:
    """Do one thing with the notes of a device."""
    async with waystation.bsp.open(home) as client:
        await client.join(client.home.profile.group(CLIENT_ID, b"", "opaque"), GROUP)
        peers = [peer.key for peer in client.status().peers]
        if action == "key":
            print(client.public_key.id52)
        elif action == "pair":
            await client.share(GROUP, await client.meet(value))
        elif action == "write":
            sent = await client.send(GROUP, value.encode())
            print(sent.sentence)
        elif action == "export":
            for peer in peers:
                exported = await client.export_file(peer, value, replace=True)
                print(f"{exported.messages_count} notes for {peer.id52}")
        elif action == "import":
            imported = await client.import_file(value)
            print(f"{imported.new_count} new notes")
        else:
            for note in client.history(GROUP):
                print((note.body or b"").decode(errors="replace"))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("key", "pair", "write", "export", "import", "read"))
    parser.add_argument("home", type=Path, help="folder of this device")
    parser.add_argument("value", nargs="?", default="", help="a key, a note, or a file")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.action, str(given.home), given.value))
    except waystation.errors.WaystationError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
