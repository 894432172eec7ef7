"""Laws of server.lprp.host: what the LPRP host of a node is given, and what the node reports of it."""

from tests.server.build_hosts import OWN, hosts
from waystation.core.ids import encode_id52


def test_lprp_has_the_identity_of_the_node_and_its_settings():
    """Clients are told the node's key and what the operator chose."""
    info = hosts(lprp__leases="closed", lprp__lease_ms="5000")["lprp"].relay.info()

    assert info["public_key"] == OWN.public.hex()
    assert (info["leases"], info["lease_ms"], info["byte_order"]) == ("closed", 5_000, "big")


def test_description_has_what_a_client_must_know():
    """Key, byte order and times are the host's own, beside the port and the address to hand out."""
    host = hosts(lprp__lease_ms="5000")["lprp"]
    address = f"lprp://{encode_id52(OWN.public)}@HOST:4?lease_ms=5000&byte_order=big"

    assert host.describe({"lprp": 4}) == {"url": None, "port": 4, "address": address, **host.relay.info()}


def test_tenants_are_counted():
    """A new host has none."""
    assert hosts()["lprp"].tenants(10) == ([], 0)
