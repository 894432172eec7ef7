import asyncio
import subprocess
import sys

import pytest

from waystation.core.errors import HostError
from waystation.sdk.errors import HomeBusyError
from waystation.sdk.home_lock import hold, is_held


def test_one_at_a_time(tmp_path):
    """While one holds the lock another is told so; afterwards it is free."""

    async def scenario():
        path = tmp_path / "lock"
        async with hold(path, "busy here", 0):
            with pytest.raises(HomeBusyError, match="busy here"):
                async with hold(path, "busy here", 0):
                    pass
        async with hold(path, "busy here", 0):
            return path.exists()

    assert asyncio.run(scenario())


def test_looking_tells_whether_somebody_holds_it(tmp_path):
    """A lock is held inside the block and free behind it; what was never made is held by nobody."""

    async def scenario():
        path = tmp_path / "lock"
        seen = [is_held(path)]
        async with hold(path, "busy", 0):
            seen.append(is_held(path))
        async with hold(path, "busy", 0):
            pass
        return [*seen, is_held(path)]

    assert asyncio.run(scenario()) == [False, True, False]


def test_waits_for_its_turn(tmp_path):
    """A lock that becomes free in time is taken."""

    async def scenario():
        path, order = tmp_path / "lock", []

        async def second():
            async with hold(path, "busy", 5):
                order.append("second")

        async with hold(path, "busy", 0):
            waiting = asyncio.create_task(second())
            await asyncio.wait([waiting], timeout=0.01)
            order.append("first")
        await waiting
        return order

    assert asyncio.run(scenario()) == ["first", "second"]


def test_a_dead_holder_lets_go(tmp_path):
    """The kernel frees the lock of a process that is killed."""
    path = tmp_path / "lock"
    program = (
        "import asyncio, os, pathlib, sys\nfrom waystation.sdk.home_lock import hold\n"
        "async def main():\n    async with hold(pathlib.Path(sys.argv[1]), 'busy', 0):\n"
        "        os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)

    async def scenario():
        async with hold(path, "busy", 0):
            return True

    assert ended.returncode == -9
    assert asyncio.run(scenario())


def test_impossible_path(tmp_path):
    """A lock that cannot be made is an error of the host."""

    async def scenario():
        async with hold(tmp_path / "nowhere" / "lock", "busy", 0):
            pass

    with pytest.raises(HostError, match="nowhere"):
        asyncio.run(scenario())


def test_lock_that_cannot_be_looked_at_is_told(tmp_path):
    """A folder in the lock's place is no answer."""
    with pytest.raises(HostError, match="cannot use"):
        is_held(tmp_path)
