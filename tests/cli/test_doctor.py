"""Laws of ``waystation doctor``."""

import datetime
import json
import os
import socket

import pytest
from typer.testing import CliRunner

from tests.server.certificates.build import write_pair
from waystation.cli import app
from waystation.cli.doctor import check_certificates, check_home, check_java, check_ports
from waystation.cli.home.check import check_store
from waystation.cli.machine_checks import Finding
from waystation.core.records import Record
from waystation.pipeline.java import choose_java
from waystation.server.config.load import load_config
from waystation.server.config.settings import Address
from waystation.server.home import Home
from waystation.store.sqlite import SqliteStore

RUNNER = CliRunner()
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
LISTENERS = ("bhumi.tls", "bsp.tls", "lprp.udp", "merk.ws", "strata.ws", "admin.listen")
FREE = [part for name in LISTENERS for part in ("--set", f"{name}=127.0.0.1:0")]
"""Whatever else runs on this machine is in nobody's way."""


@pytest.fixture
def home(tmp_path):
    """A home that is made."""
    home = Home(tmp_path / "home")
    home.ensure(NOW)
    return home


@pytest.fixture
def taken():
    """An address that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Address("127.0.0.1", listener.getsockname()[1])


def _doctor(home, *more):
    return RUNNER.invoke(app, ["doctor", "--home", str(home.path), *more])


def test_healthy_machine_has_no_failure_and_exits_0(home):
    """All lines are good, in text and in JSON."""
    home_now = Home(home.path.parent / "now")
    home_now.ensure()
    result = _doctor(home_now, *FREE, "--json")
    document = json.loads(result.stdout)

    assert [finding for finding in document["findings"] if not finding["good"] and finding["name"] != "java"] == []
    assert {
        *("python", "event loop", "sqlite", "home", "mark", "store", "certificate", "start", "port", "address", "disk"),
        *("clock", "java"),
    } == {finding["name"] for finding in document["findings"]}
    assert result.exit_code == (0 if document["good"] else 1)


def test_a_failure_is_marked_and_exits_1(home):
    """One bad line is enough, and it says what to do."""
    home.key_path.chmod(0o644)
    result = _doctor(home, *FREE)

    assert result.exit_code == 1
    assert any(line.startswith("FAIL  home") and "chmod 600" in line for line in result.stdout.splitlines())


def test_home_that_is_not_made_is_no_failure(tmp_path):
    """A new user is told what to type."""
    finding = check_home(Home(tmp_path / "home"))

    assert finding.good
    assert f"waystation init --home {tmp_path / 'home'}" in finding.says


def test_damaged_key_is_a_failure(home):
    """A key that cannot be used is found before the node starts."""
    home.key_path.write_text("junk")

    assert not check_home(home).good


def test_certificate_of_every_listener_is_looked_at(home, tmp_path):
    """A node's own certificate, and that of the one table that names another, have a finding each."""
    files = write_pair(tmp_path / "own", names=["own.example"])
    named = {"bsp.cert": str(files.cert), "bsp.key": str(files.key)}
    found = [*check_certificates(load_config(None, {}, named), home, NOW)]

    assert [(finding.name, finding.good) for finding in found] == [("certificate", True), ("certificate", False)]
    assert [finding.says.partition(":")[0] for finding in found] == ["bhumi.tls", "bsp.tls"]


def test_remedy_for_an_own_certificate_is_not_init(tmp_path):
    """What ``waystation init`` makes is shown by no listener that has a certificate of its own."""
    files = write_pair(tmp_path / "own", now=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=360))
    flags = ["--set", f"node.cert={files.cert}", "--set", f"node.key={files.key}"]
    result = RUNNER.invoke(app, ["doctor", "--home", str(tmp_path / "home"), *FREE, *flags])
    (line,) = [line for line in result.stdout.splitlines() if "certificate" in line]

    assert line.startswith("FAIL")
    assert "have it renewed where it was issued" in line and "init" not in line


def test_store_of_a_node_is_whole_and_stays_as_it_is(home):
    """Looking writes nothing, beside a node that runs and after it."""
    store = SqliteStore(home.store_path)
    store.commit([Record("bans", b"key", b"value")])
    while_open = check_store(home)
    store.close()
    before = home.store_path.read_bytes()
    closed = check_store(home)

    assert while_open.good and closed.good
    assert home.store_path.read_bytes() == before


def test_garbage_for_a_store_is_a_failure(home):
    """What the node would refuse at its start is said before."""
    home.store_path.write_bytes(b"junk" * 1_000)
    finding = check_store(home)

    assert not finding.good
    assert f"the store {home.store_path} cannot be opened: file is not a database" in finding.says


def test_taken_port_is_a_failure_that_names_the_way_out(home, taken):
    """The line holds the setting to change."""
    (finding,) = check_ports({"bhumi.tls": taken}, home)

    assert not finding.good
    assert f"bhumi.tls {taken}: Address already in use" in finding.says


@pytest.mark.parametrize("name", ["bhumi.tls", "lprp.udp"])
def test_port_of_both_families_is_probed_as_the_node_binds_it(home, name):
    """NODE-DUAL: with "*" one family that is taken is enough to refuse, and the port that is free is free."""
    kind = socket.SOCK_DGRAM if name == "lprp.udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("0.0.0.0", 0))
        if kind == socket.SOCK_STREAM:
            other.listen()
        port = other.getsockname()[1]
        (taken,), (free,) = ([*check_ports({name: Address("*", each)}, home)] for each in (port, 0))

    assert (taken.good, free.good) == (False, True)
    assert f"{name} *:{port}: Address already in use" in taken.says
    assert free.says == f"{name} *:0 is free"


def test_port_taken_by_the_own_node_is_right(home, taken):
    """A running node is healthy."""
    with home.lock():
        (finding,) = check_ports({"bhumi.tls": taken}, home)

    assert finding.good
    assert "the node of this home runs" in finding.says


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((), ["merk.ws 127.0.0.1:0", "strata.ws 127.0.0.1:0"]),
        (("merk.enabled=false",), ["strata.ws 127.0.0.1:0"]),
        (("strata.enabled=false",), ["merk.ws 127.0.0.1:0"]),
        (("merk.ws={free}", "strata.ws={free}"), ["merk.ws {free}"]),
    ],
)
def test_each_port_is_looked_at_once(home, free_port, settings, named):
    """MERK and Strata have a line each, and one line where they share their port."""
    flags = [*FREE, "--set", "merk.ws=127.0.0.1:0", "--set", "strata.ws=127.0.0.1:0"]
    for each in settings:
        flags += ["--set", each.format(free=free_port)]
    findings = json.loads(RUNNER.invoke(app, ["doctor", "--json", "--home", str(home.path), *flags]).output)["findings"]
    ports = [finding["says"] for finding in findings if ".ws" in finding["says"]]

    assert ports == [f"{name.format(free=free_port)} is free" for name in named]


def test_port_of_datagrams_is_looked_at_as_one(home):
    """A program on the same number of TCP is not in the way, one on that of UDP is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        taken.bind(("127.0.0.1", 0))
        addresses = [Address("127.0.0.1", each.getsockname()[1]) for each in (taken, other)]
        (bad,), (good,) = ([*check_ports({"lprp.udp": address}, home)] for address in addresses)

    assert (bad.good, good.good) == (False, True)
    assert f"lprp.udp {addresses[0]}: Address already in use" in bad.says


def test_host_that_is_off_needs_no_port(home):
    """The port of LPRP has a line when it is on, and none when it is not."""
    said = [
        [finding["says"] for finding in json.loads(result.output)["findings"] if "lprp" in finding["says"]]
        for flags in ([], ["--set", "lprp.enabled=false"])
        for result in [RUNNER.invoke(app, ["doctor", "--json", "--home", str(home.path), *FREE, *flags])]
    ]

    assert said == [["lprp.udp 127.0.0.1:0 is free"], []]


def test_ports_of_bsp_are_looked_at_when_it_is_on(home):
    """TLS and plain have a line each."""
    plain = ["--set", "bsp.plain=127.0.0.1:0", "--set", f"bsp.plain_peer={'ab' * 32}"]
    said = [
        [
            finding["says"]
            for finding in json.loads(result.output)["findings"]
            if finding["name"] == "port" and "bsp." in finding["says"]
        ]
        for flags in (plain, ["--set", "bsp.enabled=false"])
        for result in [RUNNER.invoke(app, ["doctor", "--json", "--home", str(home.path), *FREE, *flags])]
    ]

    assert said == [["bsp.tls 127.0.0.1:0 is free", "bsp.plain 127.0.0.1:0 is free"], []]


@pytest.fixture
def free_port():
    """Give an address that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_free_port_and_foreign_address(home):
    """A port that can be bound is good, an address that is not ours is a failure."""
    free, foreign = check_ports({"a": Address("127.0.0.1", 0), "b": Address("192.0.2.1", 0)}, home)

    assert free.good
    assert not foreign.good


def test_java_is_the_one_the_pipeline_would_take():
    """The doctor asks the pipeline's own rule and passes its words on."""
    choice = choose_java(os.environ)

    assert check_java(os.environ, has_spark=True) == Finding("java", good=True, says=f"{choice.version}: {choice.why}")


def test_java_is_not_needed_without_spark():
    """The node never needs a JVM."""
    assert check_java({}, has_spark=False).good


def test_config_that_is_refused_is_a_finding(home):
    """The doctor reports what serve would refuse, in place of ending."""
    result = _doctor(home, *FREE, "--set", "journal.segment_seconds=0", "--json")
    document = json.loads(result.stdout)

    assert result.exit_code == 1
    assert [finding["name"] for finding in document["findings"]] == ["python", "config"]
    assert "journal.segment_seconds" in document["findings"][1]["says"]


def test_half_a_pair_of_tls_files_is_a_failure(home):
    """Serve would refuse it, so the doctor does."""
    home.tls_key_path.unlink()

    assert not check_home(home).good
    assert "needs both cert.pem and key.pem" in check_home(home).says


def test_lock_that_cannot_be_opened_is_reported(home, taken):
    """On a disk that cannot be written the doctor reports, and goes on to the ports."""
    home.lock_path.unlink(missing_ok=True)
    home.lock_path.mkdir()
    (port,) = check_ports({"merk.ws": taken}, home)

    assert not check_home(home).good and "read-only" in check_home(home).says
    assert not port.good


def test_note_is_marked_and_is_no_failure(home):
    """Something worth a look does not change the exit code."""
    home.ensure()
    result = _doctor(home, *FREE)

    assert "note  address" in result.stdout
    assert "every listener is on the loopback address" in result.stdout
