"""Gives all tests of Spark to one process, and says in the report what was not tried because the machine lacks it.

A loop that is closed with sockets left is an error of the test that left them, not of the one that runs when they are
collected.
"""

import gc
import warnings
from asyncio.selector_events import BaseSelectorEventLoop
from functools import cached_property

import pytest
import structlog
from xdist.scheduler import LoadFileScheduling

from waystation.cli import GC_THRESHOLDS
from waystation.cli.mcu.package import micropython
from waystation.cli.mcu.run import MICROPYTHON_MISSING


class OneSpark(LoadFileScheduling):
    """Keeps a file whole, and the files with tests of Spark together: one JVM starts, and grows warm."""

    @cached_property
    def _on_spark(self) -> frozenset[str]:
        root = self.config.rootpath
        paths = (root / "tests" / "pipeline").rglob("test_*.py")
        return frozenset(path.relative_to(root).as_posix() for path in paths if "mark.spark" in path.read_text())

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test; a group goes to one process."""
        path = super()._split_scope(nodeid)
        return "spark" if path in self._on_spark else path


def pytest_configure():
    """Collect garbage as rarely as the node does; at the end pytest collects all, and shows what was left open."""
    gc.set_threshold(*GC_THRESHOLDS)


def pytest_collection_finish():
    """Leave the 20,000 tests, which stay until the end, out of every later collection."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Take this scheduler where files are to be kept whole."""
    return OneSpark(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Undo what a test did to the logs of its process, such as the reload of a node: the next one captures them."""
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="session")
def _no_socket_is_left():
    """Warn, which is an error, when a loop closes while it still watches a socket besides its own."""
    close = BaseSelectorEventLoop.close

    def close_and_tell(loop):
        watched = () if loop.is_closed() else tuple(loop._selector.get_map().values())
        left = [key.data for key in watched if key.fileobj != loop._ssock.fileno()]
        close(loop)
        if left:
            warnings.warn(f"the loop was closed while it watched {left}", ResourceWarning, stacklevel=2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseSelectorEventLoop, "close", close_and_tell)
        yield


def pytest_collection_modifyitems(config, items):
    """Leave out what needs MicroPython where there is none."""
    if micropython() is not None:
        return
    lacking = [item for item in items if item.get_closest_marker("micropython")]
    items[:] = [item for item in items if not item.get_closest_marker("micropython")]
    config.hook.pytest_deselected(items=lacking)


def pytest_terminal_summary(terminalreporter):
    """Say so plainly."""
    if micropython() is None:
        terminalreporter.write_line(
            f"LEFT OUT: the tests in MicroPython (marked micropython); what runs in both ran in CPython only: "
            f"{MICROPYTHON_MISSING}",
            yellow=True,
        )
