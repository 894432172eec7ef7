"""Laws of server.merk.host: what the MERK relay of a node is given, and what the node reports of it."""

from tests.server.build_hosts import OWN, hosts
from waystation.server.merk.host import MESH_PATH


def test_merk_has_the_identity_of_the_node_and_its_settings():
    """Its key is the node's, and it tells the address that the operator gave."""
    mesh = hosts(merk__public_url="wss://relay.example.org/merk")["merk"].status()["mesh"]

    assert (mesh["node"], mesh["address"]) == (OWN.public.hex(), "wss://relay.example.org/merk")


def test_mesh_has_a_public_document():
    """It is what the relay knows at the moment of the request."""
    host = hosts()["merk"]

    assert host.documents()[MESH_PATH]()["node"] == host.status()["mesh"]["node"]


def test_description_tells_whether_the_mesh_is_open():
    """A node that keeps to the peers it dials says so by what it does not claim."""
    closed = hosts(merk__accept_peers="false")["merk"].describe({})["features"]

    assert "open_mesh" in hosts()["merk"].describe({})["features"]
    assert "open_mesh" not in closed
    assert "mesh" in closed


def test_largest_message_leaves_room_for_the_envelope_of_nodes():
    """A frame of the largest size is carried between nodes with what they put around it; originals may bring more."""
    made = []
    host = hosts(merk__max_frame_bytes="1024")["merk"]
    endpoints = host.endpoints(made.append, lambda path: path == "/")

    largest = {path: endpoint.message_bytes_max for path, endpoint in endpoints.items()}
    assert largest == {"/": 1_280, "/merk": 1_280, "/mesh": 104_857_600}
    assert [path for path, endpoint in endpoints.items() if endpoint.has_page] == ["/"]
    assert made == ["", "mesh"]
