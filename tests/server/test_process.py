"""Laws of server.process: what a node makes of the process it runs in."""

import asyncio
import resource

from waystation.server.process import loop_factory, raise_file_limit


def test_as_many_files_as_the_machine_lets_it():
    """The soft limit rises to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        raise_file_limit()
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert raised == (hard, hard)


def test_loop_runs():
    """Whatever loop the platform has, it runs a coroutine."""

    async def story():
        return "ran"

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(story()) == "ran"
