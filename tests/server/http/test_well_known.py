"""Laws of server.well_known: what a node says of itself follows from its configuration."""

import json

import pytest

from tests.server.build_hosts import OWN, hosts
from waystation.server.http.well_known import WellKnown
from waystation.version import __version__

PORTS = {"bhumi": 1, "bsp": 5, "merk": 2, "strata": 3, "lprp": 4}
MESH_PATH = "/.well-known/merk-mesh.json"
IDENTITY = {"public_key": "00" * 32, "id52": "0" * 52, "did": "did:strata:x"}


def documents(ports=None, **flags):
    """Return the documents of a configuration, ``merk__x="y"`` being merk.x = y."""
    return WellKnown(flags.pop("node__name", "waystation"), IDENTITY, lambda: PORTS | (ports or {}), hosts(**flags))


def info(**flags):
    """Return the information document as a reader parses it."""
    return json.loads(documents(**flags).answer("/.well-known/waystation.json").body)


def test_info_names_the_node():
    """Name, identity and software are those of the node."""
    document = info(node__name="harbour")

    assert document["name"] == "harbour"
    assert document["node"] == IDENTITY
    assert document["software"] == {"name": "waystation", "version": __version__}


def test_info_has_the_protocols_that_are_on():
    """What is switched off is not offered."""
    assert list(info()["protocols"]) == ["bhumi", "bsp", "lprp", "merk", "strata"]
    off = {f"{name}__enabled": "false" for name in ("bhumi", "bsp", "lprp", "merk")}
    assert list(info(**off)["protocols"]) == ["strata"]


@pytest.mark.parametrize(
    ("protocol", "place", "setting", "value"),
    [
        ("merk", ("limits", "max_frame_bytes"), "merk__max_frame_bytes", 4_096),
        ("merk", ("url",), "merk__public_url", "wss://relay.example.org/merk"),
        ("merk", ("paths",), "merk__paths", ["/a", "/b"]),
        ("strata", ("limits", "max_packet_bytes"), "strata__max_packet_bytes", 65_536),
        ("strata", ("limits", "max_age_s"), "strata__max_age_s", 3_600),
        ("strata", ("url",), "strata__public_url", "wss://relay.example.org/strata"),
        ("strata", ("paths",), "strata__path", ["/s"]),
        ("bsp", ("limits", "profile"), "bsp__profile", "briar"),
        ("bhumi", ("limits", "max_payload_bytes"), "bhumi__max_payload_bytes", 1_024),
        ("bhumi", ("limits", "ack_timeout_ms"), "bhumi__ack_timeout_ms", 50),
        ("bhumi", ("url",), "bhumi__advertise", "tls://relay.example:8443"),
    ],
)
def test_info_follows_the_configuration(protocol, place, setting, value):
    """Each number and address is the one in force, not one that was written down beside it."""
    given = ",".join(value) if isinstance(value, list) else str(value)
    found, default = info(**{setting: given})["protocols"][protocol], info()["protocols"][protocol]
    for name in place:
        found, default = found[name], default[name]

    assert found == value
    assert default != value


def test_ports_are_those_that_are_bound():
    """A port that the configuration leaves to chance is told as it fell."""
    assert {name: protocol["port"] for name, protocol in info()["protocols"].items()} == PORTS


def test_unknown_address_is_null():
    """Without a public address the reader is told none instead of one that only this machine knows."""
    assert {protocol["url"] for protocol in info()["protocols"].values()} == {None}


def test_documents_of_protocols_are_made_each_time():
    """The mesh document is what the relay knows now; without a relay there is none."""
    off = documents(merk__enabled="false")

    assert json.loads(documents().answer(MESH_PATH).body)["node"] == OWN.public.hex()
    assert off.answer(MESH_PATH) is None
    assert not off.has(MESH_PATH)


def test_documents_may_be_read_by_other_sites():
    """Any page may fetch them, nothing keeps them, and they are JSON."""
    found = documents()
    for path in ("/.well-known/waystation.json", "/.well-known/merk-mesh.json"):
        headers = dict(found.answer(path).headers)

        assert found.has(path)
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/", "/.well-known/", "/.well-known/waystation.json/", "/.well-known/strata-relay.json"]
)
def test_other_paths_are_not_ours(path):
    """Nothing else is answered."""
    assert documents().answer(path) is None
    assert not documents().has(path)
