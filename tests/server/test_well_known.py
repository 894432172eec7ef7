"""Laws of server.well_known: what a node says of itself follows from its configuration."""

import json

import pytest

from waystation.server.config import load_config
from waystation.server.well_known import WellKnown
from waystation.version import __version__

PORTS = {"bhumi": 1, "bsp": 5, "merk": 2, "strata": 3, "lprp": 4}
HOST = {"public_key": "11" * 32, "byte_order": "big", "lease_ms": 3_600_000, "leases": "open"}
INFO_PATH = "/.well-known/waystation.json"
IDENTITY = {"public_key": "00" * 32, "id52": "0" * 52, "did": "did:strata:x"}


def documents(mesh=None, ports=None, **flags):
    """Return the documents of a configuration, ``merk__x="y"`` being merk.x = y."""
    config = load_config(None, {}, {name.replace("__", "."): value for name, value in flags.items()})
    lprp = (lambda: HOST) if config.lprp_listen.enabled else None
    return WellKnown(config, IDENTITY, lambda: PORTS | (ports or {}), mesh, lprp)


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


def test_info_names_what_bhumi_agrees_on():
    """The features of OPTIONS that this relay accepts, as it is set."""
    assert info()["protocols"]["bhumi"]["features"] == ["preimage", "binding", "i_am_ok", "presence", "qa"]
    core = info(bhumi__gossip="false", bhumi__qa="false")["protocols"]["bhumi"]["features"]
    assert core == ["preimage", "binding", "i_am_ok"]


def test_info_says_what_a_client_of_lprp_must_know():
    """Key, byte order and times are the host's own words, beside the port and the address to hand out."""
    address = f"lprp://{'0' * 52}@HOST:4?lease_ms=3600000&byte_order=big"

    assert info()["protocols"]["lprp"] == {"url": None, "port": 4, "address": address, **HOST}


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


def test_bsp_says_where_it_is_and_nothing_about_its_groups():
    """The address to hand out has the node's key; the path of bsp+wss stands there when a port carries it."""
    groups = f'[{{client_id = "{"01" * 32}", descriptor = "aa", name = "tea", share_with = ["{"22" * 32}"]}}]'
    plain, web = info(bsp__groups=groups), json.loads(documents(ports={"bsp_wss": 6}).answer(INFO_PATH).body)

    assert plain["protocols"]["bsp"]["address"] == f"bsp+tls://{'0' * 52}@HOST:5"
    assert (plain["protocols"]["bsp"]["web_port"], plain["protocols"]["bsp"]["paths"]) == (None, [])
    assert (web["protocols"]["bsp"]["web_port"], web["protocols"]["bsp"]["paths"]) == (6, ["/bsp"])
    assert not any(word in json.dumps(plain) for word in ("tea", "22" * 32, "01" * 32))


def test_features_tell_whether_the_node_is_a_mailbox():
    """Without owners it keeps nothing for others, and does not claim to."""
    assert info(bsp__owners="22" * 32)["protocols"]["bsp"]["features"] == ["mailbox"]
    assert info()["protocols"]["bsp"]["features"] == []


def test_features_tell_whether_the_mesh_is_open():
    """A node that keeps to the peers it dials says so by what it does not claim."""
    assert "open_mesh" in info()["protocols"]["merk"]["features"]
    assert "open_mesh" not in info(merk__accept_peers="false")["protocols"]["merk"]["features"]
    assert "mesh" in info(merk__accept_peers="false")["protocols"]["merk"]["features"]


def test_unknown_address_is_null():
    """Without a public address the reader is told none instead of one that only this machine knows."""
    assert {protocol["url"] for protocol in info()["protocols"].values()} == {None}


def test_mesh_is_asked_each_time():
    """The mesh document is what the relay says now; without a relay there is none."""
    seen = iter([{"nodes": 1}, {"nodes": 2}])
    found = documents(lambda: next(seen))

    assert [json.loads(found.answer("/.well-known/merk-mesh.json").body)["nodes"] for _ in range(2)] == [1, 2]
    assert documents().answer("/.well-known/merk-mesh.json") is None
    assert not documents().has("/.well-known/merk-mesh.json")


def test_documents_may_be_read_by_other_sites():
    """Any page may fetch them, nothing keeps them, and they are JSON."""
    found = documents(dict)
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
    assert documents(dict).answer(path) is None
    assert not documents(dict).has(path)
