"""Laws of sending.owner: who is dead, however it died, is seen to be so, and who lives is left alone."""

import asyncio
import signal
import subprocess
import sys

from waystation.sdk.bhumi.sending.owner import is_alive, owned

_HOLDER = """
import asyncio, pathlib, sys
from waystation.sdk.bhumi.sending.owner import owned

async def main():
    async with owned(pathlib.Path(sys.argv[1])) as name:
        print(name, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_owner_lives_as_long_as_its_block(tmp_path):
    """Inside the block it is alive for everybody, in this process too; after it, and with no name, it is not."""

    async def scenario():
        async with owned(tmp_path) as name:
            inside = is_alive(tmp_path, name)
        return inside, is_alive(tmp_path, name), is_alive(tmp_path, "")

    assert asyncio.run(scenario()) == (True, False, False)


def test_killed_process_is_dead_at_once(tmp_path):
    """After kill -9 the file is left and its owner is not alive; the next sender sweeps it away."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    name = holder.stdout.readline().strip()
    before = is_alive(tmp_path, name)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    after = is_alive(tmp_path, name)

    async def scenario():
        left = [path.name for path in (tmp_path / "sending").iterdir()]
        async with owned(tmp_path) as own:
            return left, [path.name for path in (tmp_path / "sending").iterdir()] == [own]

    assert (before, after) == (True, False)
    assert asyncio.run(scenario()) == ([name], True)


def test_two_owners_live_side_by_side(tmp_path):
    """A second owner of a home does not disturb the first."""

    async def scenario():
        async with owned(tmp_path) as one, owned(tmp_path) as two:
            return one != two, is_alive(tmp_path, one), is_alive(tmp_path, two)

    assert asyncio.run(scenario()) == (True, True, True)
