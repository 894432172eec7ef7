"""Laws of server.logs."""

import contextlib
import datetime
import errno
import io
import json
import logging
from pathlib import Path

import pytest
import structlog

from waystation.core.ids import encode_id52
from waystation.server.logs import configure_logs, short_peer


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _restore():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_json_line_has_time_level_event_first_and_all_keys():
    """One line, one object; time is RFC 3339 in UTC."""
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    structlog.get_logger().info("peer.opened", proto="bhumi", peer="abc")
    line = json.loads(stream.getvalue())

    assert list(line) == ["ts", "level", "event", "proto", "peer"]
    assert [line[key] for key in ("level", "event", "proto", "peer")] == ["info", "peer.opened", "bhumi", "abc"]
    assert datetime.datetime.fromisoformat(line["ts"]).utcoffset() == datetime.timedelta(0)


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (_Terminal(), False)], ids=["pipe", "terminal"])
def test_auto_writes_for_whoever_reads(stream, is_json):
    """People at a terminal get plain lines, programs get JSON."""
    configure_logs("auto", "info", stream)
    structlog.get_logger().info("node.ready", port=1)

    assert stream.getvalue().startswith("{") is is_json
    assert "node.ready" in stream.getvalue()


def test_console_without_a_terminal_has_no_colours():
    """A file that people read holds no escape codes."""
    stream = io.StringIO()
    configure_logs("console", "info", stream)
    structlog.get_logger().warning("disk.slow", ms=3)

    assert "disk.slow" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_level_hides_what_is_below_it():
    """Only the level asked for and above is written."""
    stream = io.StringIO()
    configure_logs("json", "warning", stream)
    logger = structlog.get_logger()
    logger.info("small")
    logger.warning("large")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["large"]


def test_new_level_reaches_a_logger_that_exists():
    """A reload changes what module-level loggers write."""
    stream = io.StringIO()
    configure_logs("json", "warning", stream)
    logger = structlog.get_logger()
    logger.info("before")
    configure_logs("json", "info", stream)
    logger.info("after")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["after"]


def test_other_libraries_write_the_same_lines():
    """A warning from the standard library's logging is a JSON line too, and once only."""
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    configure_logs("json", "info", stream)
    logging.getLogger("some.library").warning("odd %s", "thing")
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert (line["level"], line["event"]) == ("warning", "odd thing")


def test_error_carries_its_traceback():
    """What the outermost loop logs can be traced."""
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    try:
        raise ValueError("inside")
    except ValueError:
        structlog.get_logger().exception("loop.failed")

    assert "ValueError: inside" in json.loads(stream.getvalue())["exception"]


def test_stdout_stays_empty(capsys):
    """Logs never mix with what a program reads from us."""
    configure_logs("auto", "info")
    structlog.get_logger().info("node.ready")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "node.ready" in captured.err


def test_peer_is_shortened_one_way():
    """Eight characters of the id52."""
    assert short_peer(bytes(range(32))) == encode_id52(bytes(range(32)))[:8]


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("logger", [structlog.get_logger(), logging.getLogger("some.library")], ids=["ours", "theirs"])
def test_traceback_never_shows_a_local(log_format, logger):
    """What a failing function held - a payload, a preimage, a key - is in no line, in either format."""
    stream = io.StringIO()
    configure_logs(log_format, "info", stream)

    def fail(payload):
        return payload[len(payload)]

    try:
        fail(bytes(range(97, 123)))
    except IndexError:
        logger.exception("engine.failed")

    assert "IndexError: index out of range" in stream.getvalue()
    assert "abcdefgh" not in stream.getvalue()


def test_debug_log_has_no_line_of_a_library():
    """Below a warning other libraries speak of their sockets, which tells an operator nothing."""
    stream = io.StringIO()
    configure_logs("json", "debug", stream)
    logging.getLogger("aiofastnet").debug("[fd=29 SSLTransport_Socket server #0]: KTLS SEND: disabled")
    logging.getLogger("asyncio").info("a remark")
    logging.getLogger("asyncio").warning("a warning")
    structlog.get_logger().debug("peer.connected")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["a warning", "peer.connected"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_log_that_cannot_be_written_raises_nothing(log_format):
    """A full disk that has the log costs lines, never whoever says them: the store's faults are said just then."""
    reached = False
    # What the file itself keeps for later fails once more when it is closed.
    with contextlib.suppress(OSError), Path("/dev/full").open("w", encoding="utf-8", buffering=1) as stream:
        configure_logs(log_format, "info", stream)
        structlog.get_logger().error("store.failed", kind="full")
        logging.getLogger("other").error("said by a library")
        reached = True

    assert reached


def test_log_goes_on_when_it_can_be_written_again():
    """Lines are written again as soon as the stream takes them."""

    class Stream(io.StringIO):
        is_full = True

        def write(self, text):
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    stream = Stream()
    configure_logs("json", "info", stream)
    structlog.get_logger().error("store.failed")
    stream.is_full = False
    structlog.get_logger().error("store.recovered")

    assert "store.recovered" in stream.getvalue()
