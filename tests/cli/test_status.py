"""Laws of cli.status, against a node in a process of its own."""

import json
import os
import signal

import pytest

from tests.cli.build import caller
from tests.server.build import NodeProcess, key_pair
from waystation.cli import status as cli_status
from waystation.cli.node_client import NodeClient
from waystation.cli.status import REDRAW_S, is_well, met_limits, watch
from waystation.core.errors import HostError
from waystation.core.ids import encode_id52

DEVICE = key_pair(3)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = NodeProcess(tmp_path_factory.mktemp("status") / "home", node__name="the club's relay").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def status(capfd):
    """Call ``waystation status WORDS...``."""
    return caller("status", capfd)


def test_limits_of_the_last_six_hours_are_shown():
    """The latest first; one whose peers are not known may have been met at any time, and comes last."""

    def limit(name, *ages_s, times=1):
        return {"name": name, "times": times, "peers": [{"ago_s": age_s} for age_s in ages_s]}

    limits = [
        limit("old", 21_601),
        limit("known", 21_600),
        limit("unknown"),
        limit("new", 30_000, 5),
        limit("unmet", times=0),
    ]

    assert [each["name"] for each in met_limits(limits)] == ["new", "known", "unknown"]


def test_status_shows_who_is_connected(node, status):
    """Name, version, listeners, a device by its identity, a sender only as one of its network, and that all is well."""
    with node.client() as device, node.client():
        device.identify(DEVICE, b"p" * 32)
        code, out, err = status("--home", str(node.home))

    assert (code, err) == (0, "")
    assert out.startswith("the club's relay  waystation ")
    assert encode_id52(DEVICE.public) in out
    assert "without an identity: 1 in 127.0.0.0/24" in out
    assert node.url("merk") in out
    assert out.rstrip().endswith("all is well")


def test_status_for_programs_is_one_object(node, status):
    """It has the whole status, the heaviest connections and the limits that were met."""
    with node.client() as device:
        device.identify(DEVICE, b"p" * 32)
        code, out, _ = status("--home", str(node.home), "--json")
    shown = json.loads(out)

    assert (code, shown["ok"], shown["status"]["trouble"], shown["limits"]) == (0, True, [], [])
    assert [each["id52"] for each in shown["connections"]["connections"]] == [encode_id52(DEVICE.public)]
    assert shown["status"]["connected"]["bhumi"]["identified"] == 1


def test_node_that_stands_still_is_said_within_five_seconds(node, status, monkeypatch):
    """A stopped process takes connections and never answers."""
    within_s = cli_status.ANSWER_S
    monkeypatch.setattr(cli_status, "ANSWER_S", 0.2)
    pid = NodeClient.find(str(node.home)).running.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        code, _, err = status("--home", str(node.home))
    finally:
        os.kill(pid, signal.SIGCONT)

    assert code == 1 and "does not answer at" in err and "it took too long" in err
    assert within_s < 5


def test_without_a_node_a_sentence_says_so(tmp_path, status):
    """Nobody to ask is worth attention: exit 1, and a way out."""
    code, out, err = status("--home", str(tmp_path))

    assert (code, out) == (1, "")
    assert "no node runs on" in err and "waystation serve" in err


def test_watching_draws_until_it_is_ended():
    """Every two seconds; a node that is gone ends it with its sentence."""
    drawn, pauses = [], []

    def draw():
        drawn.append(1)
        if len(drawn) > 2:
            raise HostError("no node runs")

    with pytest.raises(HostError, match="no node runs"):
        watch(draw, pauses.append)

    assert pauses == [REDRAW_S] * 2


def test_limits_met_come_latest_first():
    """Those that nobody met, or only long ago, are left out."""

    def limit(name, times, *ago):
        return {"name": name, "times": times, "peers": [{"ago_s": each} for each in ago]}

    limits = [
        limit("never", 0),
        limit("once", 3, 500, 90),
        limit("nameless", 2),
        limit("old", 9, 90_000),
        limit("now", 1, 2),
    ]

    assert [each["name"] for each in met_limits(limits)] == ["now", "once", "nameless"]


def test_trouble_is_what_needs_attention():
    """The exit code follows from the node's own sentences."""
    assert is_well({"trouble": []})
    assert not is_well({"trouble": ["the node is draining"]})
