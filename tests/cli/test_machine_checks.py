"""Laws of cli.machine_checks: disk, clock and addresses."""

import datetime

import pytest

from tests.server.build_node import configured
from waystation.cli.machine_checks import (
    check_clock,
    check_reachable,
    check_space,
    public_names,
)
from waystation.server.config.settings import Address
from waystation.server.home import Home
from waystation.server.status.disk import retention_bytes

LISTENERS = {"merk.ws": Address("0.0.0.0", 8080), "admin.listen": Address("127.0.0.1", 8081)}
NOW = datetime.datetime.now(datetime.UTC)


def findings(tmp_path, addresses=("10.0.0.7",), listeners=LISTENERS, **settings):
    """Return what is said about addresses."""
    return list(check_reachable(configured(tmp_path, **settings), listeners, addresses))


def test_space_is_compared_with_what_is_kept(tmp_path):
    """More than the disk has is a note that names the settings; room for all of it is good."""
    small = configured(tmp_path, journal__retention_mib="1", journal__archive_retention_mib="1", bsp__enabled="false")
    large = configured(tmp_path, journal__retention_mib="1048576")
    tight = check_space(large, Home(tmp_path / "not" / "made"))

    assert retention_bytes(small).keys() >= {"journal.retention_mib", "journal.archive_retention_mib"}
    assert not retention_bytes(small).keys() & {"bsp.box_mib_max", "store.free_mib_least"}
    assert tight.good and tight.note and "lower journal.retention_mib" in tight.says


def test_wrong_clock_is_a_failure(tmp_path):
    """A clock that cannot be right fails; whether a service keeps it is a remark."""
    wrong = check_clock(Home(tmp_path), datetime.datetime.fromtimestamp(0, datetime.UTC))

    assert not wrong.good and "set the clock" in wrong.says
    assert check_clock(Home(tmp_path), NOW).good


def test_node_behind_a_router_is_told_its_ports(tmp_path):
    """Without a public address somebody has to pass the ports on; the admin port is none of them."""
    (finding,) = findings(tmp_path)

    assert finding.note and "merk.ws 8080" in finding.says and "8081" not in finding.says


def test_public_address_is_good(tmp_path):
    """Nothing is left to do."""
    (finding,) = findings(tmp_path, ["10.0.0.7", "2606:4700::1111"])

    assert finding.good and not finding.note


def test_node_on_loopback_alone_is_a_note(tmp_path):
    """It may be meant so."""
    (finding,) = findings(tmp_path, listeners={"merk.ws": Address("127.0.0.1", 8080)})

    assert finding.note and "only programs on this machine" in finding.says


@pytest.mark.parametrize(
    ("url", "own", "good", "note", "says"),
    [
        ("ws://127.0.0.1:8080/merk", ["127.0.0.1"], True, False, "this machine"),
        ("ws://127.0.0.1:8080/merk", ["10.0.0.7"], True, True, "none of this machine"),
        ("ws://no-such-name.invalid/merk", ["10.0.0.7"], False, False, "is not found"),
    ],
)
def test_public_name_has_to_lead_here(tmp_path, url, own, good, note, says):
    """A name that nobody can find fails; one that leads elsewhere may be that of a proxy."""
    finding = findings(tmp_path, own, merk__public_url=url, merk__ws="127.0.0.1:0")[-1]

    assert (finding.good, finding.note) == (good, note)
    assert finding.says.startswith("merk.public_url") and says in finding.says


def test_names_of_protocols_that_are_off_are_left_alone(tmp_path):
    """Nobody is sent there."""
    config = configured(tmp_path, merk__public_url="ws://127.0.0.1/merk", merk__enabled="false")

    assert public_names(config) == {}
