"""Laws of server.process: what a node makes of the process it runs in."""

import asyncio
import resource

from structlog.testing import capture_logs

from waystation.server.process import loop_factory, on_loop_exception, raise_file_limit


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


def test_what_failed_unawaited_is_said_without_peers_bytes():
    """The message is logged, never the objects; a handshake that failed is no news."""
    loop = asyncio.new_event_loop()
    with capture_logs() as lines:
        on_loop_exception(loop, {"message": "task was never awaited", "future": "secret"})
        on_loop_exception(loop, {"message": "SSL handshake failed on x", "exception": ValueError("no")})
        on_loop_exception(loop, {})
    loop.close()

    said = [(line["event"], line["what"]) for line in lines if line["log_level"] == "error"]
    assert said == [("loop.failed", "task was never awaited"), ("loop.failed", "")]
    assert "secret" not in str(lines)
