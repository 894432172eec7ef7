"""A whole node as a BSP peer: ``waystation serve`` in a process, and peers written from the specification."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request

import pytest
from websockets.sync.client import connect

from tests.server.bsp.stand_in import (
    ACK,
    MESSAGE,
    OFFER,
    REQUEST,
    StandIn,
    any_certificate,
    group_id_of,
    message,
    message_id_of,
    named,
    proof_bytes,
    record,
)
from tests.server.build import NodeProcess, run_serve, until
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bsp.device.orders import AddMessage, Join, queue_order
from waystation.server.home import Home
from waystation.store.sqlite import SqliteStore

ALICE, BOB, CAROL, STRANGER = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))
CLIENT_ID, DESCRIPTOR = b"c" * 32, b"tea"
GROUP = group_id_of(CLIENT_ID, DESCRIPTOR)
SECRET_GROUP = group_id_of(CLIENT_ID, b"not for Carol")
NOW_MS = 1_700_000_000_000
CLOSED_S = 8.0
"""The pages say 2 or 3 s, and a busy machine takes its time; a connection that lingers is cut after 10 s."""


def table(descriptor, *keys, name=""):
    """Return one group as the configuration has it."""
    shared = ", ".join(f'"{pair.public.hex()}"' for pair in keys)
    return f'{{client_id="{CLIENT_ID.hex()}", descriptor="{descriptor.hex()}", name="{name}", share_with=[{shared}]}}'


def bsp_node(home, **settings):
    """Describe a node that shares a group with Alice and Bob, knows Carol, and takes Bob's bare records."""
    chosen = {
        "bsp__mode": "interactive",
        "bsp__plain": "127.0.0.1:0",
        "bsp__plain_peer": BOB.public.hex(),
        "bsp__groups": f"[{table(DESCRIPTOR, ALICE, BOB, name='tea')}]",
        "bsp__peers": f'[{{key="{CAROL.public.hex()}", name="carol"}}]',
        "bhumi__enabled": "false",
        "lprp__enabled": "false",
        "strata__enabled": "false",
        "merk__enabled": "false",
    }
    return NodeProcess(home, **(chosen | settings))


def key_of(node):
    """Return the node's public key."""
    return bytes.fromhex(node.ready["node"]["public_key"])


def joined(node, pair):
    """Return a connection of a peer that the node has accepted."""
    peer = StandIn(node.url("bsp"))
    assert peer.shake_hands(pair, key_of(node)) == 0
    return peer


def seen(node):
    """Return what the admin port tells of the device."""
    status, view = node.ask("GET", "/admin/v1/bsp")
    assert status == 200
    return view


def link_of(node, pair):
    """Return how a peer is connected, as the admin port tells."""
    return next(peer["link"] for peer in seen(node)["peers"] if peer["key"] == pair.public.hex())


def ordered(node, *orders):
    """Leave orders in the store of a node, as another program does."""
    store = SqliteStore(node.home / "store.sqlite")
    store.commit([queue_order(order, NOW_MS + number) for number, order in enumerate(orders)])
    store.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the laws that leave it running; each uses bodies of its own."""
    running = bsp_node(tmp_path_factory.mktemp("bsp") / "home").start()
    yield running
    assert running.stop() == 0
    assert "engine.failed" not in running.log()


@pytest.fixture
def own_node(tmp_path):
    """A node that the test may end as it likes."""
    running = bsp_node(tmp_path / "home").start()
    yield running
    if running.process.poll() is None:
        running.kill()


def test_message_goes_from_one_peer_to_another(node):
    """Alice's message is acknowledged, then offered to Bob, sent when he asks, and quiet once he has acknowledged."""
    body = b"from Alice to Bob"
    message_id = message_id_of(GROUP, 7, body)
    with joined(node, ALICE) as alice, joined(node, BOB) as bob:
        alice.say(message(GROUP, 7, body))
        alice.until(ACK, message_id)
        bob.until(OFFER, message_id)
        bob.say(record(REQUEST, message_id))
        sent = bob.record()
        bob.say(record(ACK, message_id))
        until(lambda: all(peer["owed"] == 0 for peer in seen(node)["peers"]), "what is owed")

    assert sent == (MESSAGE, GROUP + (7).to_bytes(8, "big") + body)


@pytest.mark.parametrize("alpn", [("bsp/1",), ("h2", "bsp/1"), (), ("h2",)])
def test_listener_speaks_tls_13_and_names_the_protocol(node, alpn):
    """Who names ``bsp/1`` gets that name; who names nothing, or something else, is served as well."""
    with StandIn(node.url("bsp"), alpn=alpn) as peer:
        agreed = peer.socket.selected_alpn_protocol()
        version = peer.socket.version()
        status = peer.shake_hands(CAROL, key_of(node))

    assert (agreed, version, status) == ("bsp/1" if "bsp/1" in alpn else None, "TLSv1.3", 0)


def test_tls_12_is_refused(node):
    """bsp+tls is 1.3 only (specs/bsp.md 5)."""
    old = any_certificate()
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(OSError, match=r"(?i)alert|protocol|reset|EOF"):
        StandIn(node.url("bsp"), old)


def test_key_that_is_in_no_table_is_told_so_and_closed(node):
    """Its signature is good, so it gets the node's own proof with status 1, and nothing else."""
    with StandIn(node.url("bsp")) as peer:
        status = peer.shake_hands(STRANGER, key_of(node))
        said, _ = peer.end()

    assert (status, said) == (1, b"")


@pytest.mark.parametrize("certificate", [b"\0" * 32, b"m" * 32])
def test_proof_over_another_certificate_is_refused(node, certificate):
    """Somebody between us, who shows a certificate of their own, cannot pass our proof on."""
    with StandIn(node.url("bsp")) as peer, pytest.raises(ConnectionError):
        peer.shake_hands(ALICE, key_of(node), certificate=certificate)


def test_what_is_no_handshake_is_closed(node):
    """A request of HTTP gets the hello that everybody gets, and the end."""
    with StandIn(node.url("bsp")) as peer:
        hello = peer.exactly(72)
        peer.say(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
        said, took_s = peer.end()

    assert (hello[:4], said) == (b"BSPH", b"")
    assert took_s < CLOSED_S


def test_newest_connection_of_a_peer_wins(node):
    """The older one is closed, and what comes for the peer goes out on the newer only."""
    body = b"for the newer one"
    message_id = message_id_of(GROUP, 8, body)
    with joined(node, ALICE) as older, joined(node, ALICE) as newer, joined(node, BOB) as bob:
        said, _ = older.end()
        bob.say(message(GROUP, 8, body))
        bob.until(ACK, message_id)
        before = newer.until(OFFER, message_id)

    assert said == b""
    assert not [payload for _, payload in before if message_id in payload]


def test_oversize_message_closes_on_its_header(node):
    """The header alone is enough; what stood before it is kept and acknowledged."""
    message_id = message_id_of(GROUP, 9, b"before")
    with joined(node, ALICE) as alice:
        alice.say(message(GROUP, 9, b"before"), b"\x01\x01" + (32_809).to_bytes(2, "big"))
        said, took_s = alice.end()

    assert record(ACK, message_id) in said
    assert took_s < CLOSED_S


def test_group_that_is_not_shared_is_silence(node):
    """Carol's messages of such a group are not taken, and what she offers is unknown (bsp 11.4)."""
    before = seen(node)["groups"][0]["messages"]
    with joined(node, CAROL) as carol:
        carol.say(message(GROUP, 10, b"from Carol"), message(SECRET_GROUP, 10, b"?"), record(OFFER, b"o" * 32))
        asked = carol.record()
        carol.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            carol.record()

    assert asked == (REQUEST, b"o" * 32)
    assert seen(node)["groups"][0]["messages"] == before


def test_plain_listener_takes_bare_records_and_finishes_behind_a_half_close(node):
    """Bob's records come without any handshake; after his end he still gets his answer, then ours within 3 s."""
    message_id = message_id_of(GROUP, 11, b"bare")
    with StandIn(node.url("bsp_plain")) as bob:
        bob.say(message(GROUP, 11, b"bare"))
        bob.socket.shutdown(socket.SHUT_WR)
        said, took_s = bob.end()

    assert record(ACK, message_id) in said
    assert took_s < CLOSED_S


def test_half_close_over_tls_lets_what_is_ready_leave(node):
    """TLS says its end by close_notify, behind which our side is over, too; the node is unharmed."""
    with joined(node, ALICE) as alice:
        until(lambda: link_of(node, ALICE) == "tls", "the connection")
        alice.socket.settimeout(2)
        with contextlib.suppress(OSError):  # what the node has said meanwhile
            alice.socket.unwrap()
        until(lambda: link_of(node, ALICE) is None, "the end")


def test_order_of_another_program_is_offered_within_two_seconds(node):
    """A message that was left in the store of a running node is taken up, offered and sent (bsp 11.1)."""
    body = b"left by a command"
    message_id = message_id_of(GROUP, 12, body)
    with joined(node, BOB) as bob:
        began = time.monotonic()
        ordered(node, AddMessage(GROUP, 12, body))
        bob.until(OFFER, message_id)
        took_s = time.monotonic() - began
        bob.say(record(REQUEST, message_id))
        bob.until(MESSAGE, message_id)

    assert took_s < CLOSED_S


def test_order_that_a_node_does_not_take_is_told(node):
    """Groups come from the configuration: the order is gone, and the admin port says why it was turned down."""
    ordered(node, Join(CLIENT_ID, b"another", "opaque", ""), AddMessage(b"x" * 32, 1, b"nowhere"))
    until(lambda: len(seen(node)["orders_refused"]) == 2, "the refusals")
    store = SqliteStore(node.home / "store.sqlite")
    until(lambda: not list(store.scan("bsp_orders")), "the end of the orders")
    store.close()

    assert [each["order"] for each in seen(node)["orders_refused"]] == ["Join", "AddMessage"]
    assert len(seen(node)["groups"]) == 1


def test_admin_shows_groups_and_peers(node):
    """Names, links and counts stand there; the same numbers are metrics."""
    with joined(node, CAROL):
        until(lambda: link_of(node, CAROL) == "tls", "the connection")
        view = seen(node)
        metrics = node.ask("GET", "/metrics")[1]
    (group,) = view["groups"]
    until(lambda: link_of(node, CAROL) is None, "the end")

    assert (group["group_id"], group["name"], group["format"]) == (GROUP.hex(), "tea", "opaque")
    assert group["shared_with"] == {ALICE.public.hex(): "shared", BOB.public.hex(): "shared"}
    assert [peer["name"] for peer in view["peers"]] == ["carol", "", ""]
    assert f'waystation_size{{protocol="bsp",thing="messages"}} {group["messages"]}.0' in metrics
    assert node.ask("GET", "/admin/v1/status")[1]["sizes"]["bsp"]["groups"] == 1


def test_node_that_has_no_device_says_so(tmp_path):
    """A switched-off protocol has no listener and no view."""
    node = bsp_node(tmp_path / "home", bsp__enabled="false").start()
    status, answer = node.ask("GET", "/admin/v1/bsp")
    code = node.stop()

    assert (status, answer["error"], code) == (404, "[bsp] is not enabled", 0)
    assert not {"bsp", "bsp_plain"} & node.ready["listeners"].keys()


def test_message_that_was_acknowledged_survives_a_kill(own_node):
    """What the node has acknowledged is there after SIGKILL, is offered to the others, and not asked for again."""
    bodies = [b"message %d" % number for number in range(50)]
    ids = [message_id_of(GROUP, number, body) for number, body in enumerate(bodies)]
    with joined(own_node, ALICE) as alice:
        alice.say(*(message(GROUP, number, body) for number, body in enumerate(bodies)))
        acknowledged = b""
        while len(acknowledged) < 32 * len(ids):
            kind, payload = alice.record()
            acknowledged += payload if kind == ACK else b""
        own_node.kill()
    own_node.start()
    with joined(own_node, BOB) as bob, joined(own_node, ALICE) as again:
        offered = b""
        while len(offered) < 32 * len(ids):
            kind, payload = bob.record()
            offered += payload if kind == OFFER else b""
        again.say(record(OFFER, b"".join(ids)))
        kind, payload = again.record()

    assert sorted(acknowledged[at : at + 32] for at in range(0, len(acknowledged), 32)) == sorted(ids)
    assert sorted(offered[at : at + 32] for at in range(0, len(offered), 32)) == sorted(ids)
    assert (kind, set(named(kind, payload)) <= set(ids)) == (ACK, True)
    assert own_node.stop() == 0


def test_order_left_while_the_node_was_down_is_taken_up_at_the_start(own_node):
    """The next start offers it at once, and only once."""
    own_node.stop()
    ordered(own_node, AddMessage(GROUP, 13, b"patient"))
    own_node.start()
    with joined(own_node, BOB) as bob:
        bob.until(OFFER, message_id_of(GROUP, 13, b"patient"))
    own_node.kill()
    own_node.start()
    until(lambda: seen(own_node)["groups"][0]["messages"] == 1, "the message")

    assert seen(own_node)["groups"][0]["delivered"] == 1


def test_new_certificate_is_what_new_peers_prove(own_node, tmp_path):
    """After SIGHUP the proof covers the certificate that is shown now; who was connected stays."""
    fresh = Home(tmp_path / "fresh")
    fresh.ensure()
    with joined(own_node, BOB) as bob:
        for name in ("cert.pem", "key.pem"):
            os.replace(fresh.tls_path / name, own_node.home / "tls" / name)  # noqa: PTH105 - as an operator's mv
        own_node.signal(signal.SIGHUP)
        until(lambda: "reload.done" in own_node.log(), "the reload")
        with joined(own_node, ALICE) as alice:
            changed = alice.certificate != bob.certificate
            alice.say(message(GROUP, 14, b"after"))
            alice.until(ACK, message_id_of(GROUP, 14, b"after"))
        bob.until(OFFER, message_id_of(GROUP, 14, b"after"))

    assert changed


def test_path_on_the_web_port_carries_the_same_bytes(tmp_path):
    """bsp+wss: handshake and records in binary frames, whose borders mean nothing."""
    node = bsp_node(tmp_path / "home", merk__enabled="true", merk__tls="true", merk__paths="/merk").start()
    url = node.url("bsp_wss")
    with connect(url, ssl=any_certificate(), proxy=None) as web:
        hello = web.recv()
        shown = web.socket.getpeercert(binary_form=True)
        with StandIn(node.url("bsp")) as other:  # the same certificate, to have its hash from the stand-in
            certificate = other.certificate
            same = other.socket.getpeercert(binary_form=True) == shown
        covered = proof_bytes(b"client", hello[8:40], b"n" * 32, key_of(node), ALICE.public, certificate)
        proof = hello[:8] + b"n" * 32 + ALICE.public + sign(ALICE, covered)
        web.send(proof[:50])
        web.send(proof[50:] + message(GROUP, 15, b"over the web")[:9])
        verdict = web.recv()
        web.send(message(GROUP, 15, b"over the web")[9:])
        answer = web.recv()
        kind = link_of(node, ALICE)
    info = node.ask("GET", "/admin/v1/status")[1]["listeners"]["bsp_wss"]
    code = node.stop()

    assert (same, verdict[64], kind, info, code) == (True, 0, "wss", url, 0)
    assert url.startswith("wss://") and url.endswith("/bsp")
    assert answer == record(ACK, message_id_of(GROUP, 15, b"over the web"))


@pytest.mark.parametrize("scheme", ["bsp+tls", pytest.param("bsp+wss", marks=pytest.mark.slow)])
def test_nodes_dial_each_other_and_agree(tmp_path, scheme):
    """A node dials the peer whose address it has, whatever certificate that shows, and both have the message."""
    pairs = {}
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
        pairs[name] = Home(tmp_path / name)
        pairs[name].ensure()
    keys = {name: home.key_pair() for name, home in pairs.items()}
    web = {"merk__enabled": "true", "merk__tls": "true"}
    far = bsp_node(tmp_path / "far", bsp__groups=f"[{table(DESCRIPTOR, keys['near'])}]", **web).start()
    place = far.url("bsp" if scheme == "bsp+tls" else "bsp_wss").partition("://")[2]
    peers = f'[{{key="{keys["far"].public.hex()}", url="{scheme}://{place}"}}]'
    near = bsp_node(tmp_path / "near", bsp__groups=f"[{table(DESCRIPTOR, keys['far'])}]", bsp__peers=peers).start()
    until(lambda: link_of(near, keys["far"]) == scheme.removeprefix("bsp+"), "the connection")
    ordered(near, AddMessage(GROUP, 16, b"hello"))
    until(lambda: seen(far)["groups"][0]["delivered"] == 1, "the message")
    far.kill()
    until(lambda: link_of(near, keys["far"]) is None, "the end")
    far.settings["bsp.tls" if scheme == "bsp+tls" else "merk.ws"] = place.partition("/")[0]
    far.start()
    until(lambda: link_of(near, keys["far"]) is not None, "the connection anew")

    assert (near.stop(), far.stop()) == (0, 0)


def test_peer_that_cannot_be_reached_or_is_another_is_told(tmp_path, node):
    """The admin port says why nobody is there: nobody listens, or who listens has another key."""
    place = node.url("bsp").partition("://")[2]
    peers = f'[{{key="{CAROL.public.hex()}", url="bsp+tls://{place}"}}, '
    peers += f'{{key="{STRANGER.public.hex()}", url="bsp+tls://127.0.0.1:1"}}]'
    dialling = bsp_node(tmp_path / "home", bsp__peers=peers).start()
    troubles = lambda: {peer["key"]: peer["trouble"] for peer in seen(dialling)["peers"]}  # noqa: E731
    until(lambda: troubles()[CAROL.public.hex()] and troubles()[STRANGER.public.hex()], "both troubles")
    found = troubles()
    log = dialling.log()

    assert dialling.stop() == 0
    assert (found[CAROL.public.hex()], found[STRANGER.public.hex()]) == ("wrong_peer", "unreachable")
    assert "nobody listens on" in log


def test_descriptor_above_the_bound_ends_the_start_with_3(tmp_path):
    """File and line are named, before a key or a folder is made (bsp 11.10)."""
    config = tmp_path / "node.toml"
    lines = ["[node]", "[[bsp.groups]]", f'client_id = "{CLIENT_ID.hex()}"', f'descriptor = "{"00" * 32_769}"']
    config.write_text("\n".join(lines) + "\n")
    refused = run_serve(tmp_path / "home", {}, "--config", str(config))

    assert refused.returncode == 3
    assert refused.stderr.startswith(f"waystation: {config}:2: bsp.groups: group 1: a descriptor has 32768 bytes")
    assert not (tmp_path / "home").exists()


def test_public_document_tells_the_port(tmp_path):
    """Who asks the web port of a node learns where its BSP peer is, and how it is called."""
    node = bsp_node(tmp_path / "home", merk__enabled="true").start()
    place = node.url("merk").partition("://")[2]
    with urllib.request.urlopen(f"http://{place}/.well-known/waystation.json", timeout=5) as answer:
        document = json.load(answer)
    code = node.stop()

    assert code == 0
    assert document["protocols"]["bsp"]["port"] == int(node.url("bsp").rpartition(":")[2])


def test_node_that_hosts_nothing_has_no_box_and_one_that_is_told_to_has(tmp_path):
    """The box is a port of its own, over TLS with the certificate of [bsp] unless it is on loopback."""
    node = bsp_node(tmp_path / "home", bsp__box="127.0.0.1:0").start()
    place = node.url("bsp_box")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{place}/v1/folders", timeout=5)
    refused.value.close()
    sizes = node.ask("GET", "/admin/v1/status")[1]["sizes"]["bsp_box"]
    code = node.stop()

    assert place.startswith("http://127.0.0.1:")
    assert (refused.value.code, sizes["files"], code) == (401, 0, 0)


def test_mailbox_keeps_a_message_between_two_who_never_meet(tmp_path):
    """An owner has a group hosted for Alice and Bob; what she leaves while he is away is his when he comes."""
    home = Home(tmp_path / "home")
    home.ensure()
    node_key = home.key_pair().public
    owners = f'["{STRANGER.public.hex()}"]'
    node = bsp_node(tmp_path / "home", bsp__owners=owners, bsp__groups="[]", bsp__peers="[]").start()
    label = hashlib.blake2s(b"waystation mailbox control 1").digest()
    control = group_id_of(label, STRANGER.public + node_key)
    members = ALICE.public + BOB.public
    host = b"\1\1" + GROUP + bytes(8) + b"\0" + b"\x20" + CLIENT_ID + b"\0\3" + DESCRIPTOR + b"\0\2" + members
    with joined(node, STRANGER) as owner:
        owner.say(message(control, 1, b"\1\0\0" + host))
        owner.until(ACK, message_id_of(control, 1, b"\1\0\0" + host))
        until(lambda: any(group["hosted"] for group in seen(node)["groups"]), "the group")
    with joined(node, ALICE) as alice:
        alice.say(message(GROUP, 2, b"for Bob"))
        alice.until(ACK, message_id_of(GROUP, 2, b"for Bob"))
    with joined(node, BOB) as bob:
        bob.until(OFFER, message_id_of(GROUP, 2, b"for Bob"))
        bob.say(record(REQUEST, message_id_of(GROUP, 2, b"for Bob")))
        bob.until(MESSAGE, message_id_of(GROUP, 2, b"for Bob"))
        bob.say(record(ACK, message_id_of(GROUP, 2, b"for Bob")))
        hosted = lambda: next(group for group in seen(node)["groups"] if group["hosted"])  # noqa: E731
        until(lambda: hosted()["bodies"] == 0, "the end of the body")
    sizes = node.ask("GET", "/admin/v1/status")[1]["sizes"]["bsp"]
    code = node.stop()

    assert (sizes["hosted"], sizes["owners"], code) == (1, 1, 0)
    assert "engine.failed" not in node.log()
