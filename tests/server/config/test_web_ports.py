"""Laws of server.config.web_ports: which web ports a configuration has, and which protocols share one."""

import pytest

from waystation.core.errors import ConfigError
from waystation.server.config.load import load_config
from waystation.server.config.web_ports import carried_paths, shared_web_ports

KEY = "ab" * 32


def tables(flags):
    """Return the tables of each web port."""
    return [[port.table for port in group] for group in shared_web_ports(load_config(None, {}, flags))]


def carriers(flags):
    """Return the tables whose web ports carry bsp+wss."""
    config = load_config(None, {}, flags)
    ports = [port for group in shared_web_ports(config) for port in group]
    return [port.table for port in ports if carried_paths(config, port)]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, [["merk", "strata"]]),
        ({"merk.ws": "127.0.0.1:9000", "strata.ws": "127.0.0.1:9000"}, [["merk", "strata"]]),
        ({"merk.ws": "127.0.0.1:9000"}, [["merk"], ["strata"]]),
        ({"merk.ws": "127.0.0.1:0", "strata.ws": "127.0.0.1:0"}, [["merk"], ["strata"]]),
        ({"merk.ws": "", "strata.ws": ""}, []),
        ({"merk.enabled": "false"}, [["strata"]]),
        ({"strata.enabled": "false"}, [["merk"]]),
    ],
)
def test_same_address_is_shared(flags, expected):
    """MERK and Strata share a port when both are on and name the same one; a free port is one for each."""
    assert tables(flags) == expected


@pytest.mark.parametrize("other", ["0.0.0.0:8080", "127.0.0.1:8080", "[::]:8080"])
def test_every_address_of_a_port_leaves_none_to_another(other):
    """NODE-DUAL: the system refuses such a second listener, so the sentence comes first and names both settings."""
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, {"merk.ws": other})

    says = f"merk.ws = {other} and strata.ws = *:8080 are two addresses of one port; write the same in both, such as "
    assert says in str(caught.value)
    assert tables({"merk.ws": other, "strata.ws": other}) == [["merk", "strata"]]
    assert tables({"merk.ws": other, "strata.ws": "*:8082"}) == [["merk"], ["strata"]]
    assert tables({"merk.ws": "*:0", "strata.ws": "127.0.0.1:0"}) == [["merk"], ["strata"]]


@pytest.mark.parametrize(
    "flags",
    [
        {"strata.path": "/mesh", "merk.ws": "127.0.0.1:9000"},
        {"strata.tls": "true", "merk.ws": ""},
        {"strata.tls": "true", "merk.enabled": "false"},
        {"strata.tls": "true", "merk.tls": "true"},
        {"merk.mesh_path": "", "strata.path": "/mesh"},
        {"merk.peers": "ws://10.0.0.1:8080/merk,wss://a.example.org", "merk.public_url": f"ws://{'a' * 250}"},
    ],
)
def test_what_does_not_meet_need_not_agree(flags):
    """Paths and TLS settings of two ports are two things; addresses of peers may be private."""
    assert load_config(None, {}, flags).origins.keys() == flags.keys()


def test_sites_that_carry_bsp_are_those_whose_certificate_we_know():
    """Ports of MERK and Strata count when they speak TLS, or when somebody else's certificate was named."""
    tls = {"merk.tls": "true", "strata.tls": "true"}

    assert carriers({}) == []
    assert carriers(tls) == ["merk", "strata"]
    assert carriers(tls | {"strata.ws": ""}) == ["merk"]
    assert carriers(tls | {"bsp.path": ""}) == []
    assert carriers(tls | {"bsp.enabled": "false"}) == []
    assert carriers({"bsp.terminator_certificate": KEY}) == ["merk", "strata"]


@pytest.mark.parametrize("name", ["bsp.path", "strata.path", "merk.paths", "merk.mesh_path"])
def test_path_of_bsp_is_nobody_elses_on_its_port(name):
    """Two protocols on one path of one port cannot be told apart; without such a port the names may be equal."""
    chosen = {name: "/merk" if name == "bsp.path" else "/bsp"}
    with pytest.raises(ConfigError, match="whose port carries bsp\\+wss"):
        load_config(None, {}, chosen | {"merk.tls": "true", "strata.tls": "true"})

    assert load_config(None, {}, chosen)
