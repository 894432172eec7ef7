"""Homes of BSP devices that know each other, and a device that runs in a process of its own."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from waystation.protocols.bsp.device.groups import Group
from waystation.sdk.bsp import BspHome, Visibility

NAMES = ("alice", "bob")
CLIENT_ID = bytes(range(32))


def make_homes(folder: Path, format_name: str = "deps_v1") -> Group:
    """Make the homes of alice and bob, who share the group ``talk``, and return it."""
    homes = [BspHome(folder / name, rng=random.Random(number)) for number, name in enumerate(NAMES)]
    group = homes[0].profile.group(CLIENT_ID, b"", format_name)
    for home, other, name in zip(homes, reversed(homes), reversed(NAMES), strict=True):
        share = home.put_share(group.group_id, other.key, Visibility.SHARED)
        home.commit([home.put_group("talk", group), home.put_peer(name, other.key), share])
    for home in homes:
        home.close()
    return group


def key_of(path: Path) -> str:
    """Return the key of a home in hexadecimal digits."""
    home = BspHome(path, makes=False)
    home.close()
    return home.key.hex()


class Running:
    """``waystation bsp ...`` in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        """Start it in a folder."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "waystation", "bsp", *words]
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ, cwd=folder
        )

    def told(self) -> str:
        """Return the next line of stderr."""
        return self.process.stderr.readline()

    def line(self) -> dict:
        """Return the next line of stdout, which is JSON."""
        return json.loads(self.process.stdout.readline())

    def event(self, name: str) -> dict:
        """Return the next line of stdout of one kind."""
        while True:
            found = self.line()
            if found["event"] == name:
                return found

    def type(self, text: str) -> None:
        """Type a line."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self, number: int | None = None) -> int:
        """Send a signal, or end stdin; return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate(timeout=20)
        return self.process.returncode
