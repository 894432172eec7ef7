"""Laws of server.admin, asked of a node in a process of its own."""

import os
import signal
import time
from urllib.parse import urlsplit

import pytest

from tests.server.build import PREIMAGE, NodeProcess, exchange, key_pair, until
from tests.server.build_policy import publish, rule_of, score_of
from tests.server.lprp import stand_in as other
from tests.server.lprp.stand_in import Party
from waystation.core.ids import encode_id52

DEVICE = key_pair(3)
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = NodeProcess(tmp_path_factory.mktemp("admin") / "home", lprp__pow_base_bits_lease="6").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def ban(node):
    """Ban a subject for one test."""
    banned = []

    def add(subject, **more):
        banned.append(subject)
        return node.ask("POST", "/admin/v1/bans", {"subject": subject, "reason": "a test", **more}, node.token)

    yield add
    for subject in banned:
        node.ask("DELETE", f"/admin/v1/bans/{subject}", token=node.token)


def bans(node):
    """Return the subjects on the list."""
    return [entry["subject"] for entry in node.ask("GET", "/admin/v1/bans")[1]["bans"]]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_healthy_and_ready(node, path):
    """A node that serves says so to whoever watches."""
    assert node.ask("GET", path) == (200, {"ok": True})


def test_status_tells_who_and_how_much(node):
    """The status document names the node, its listeners, and the sizes that an open connection changes."""
    with node.client() as device:
        device.identify(DEVICE, PREIMAGE)
        code, status = node.ask("GET", "/admin/v1/status")

    assert code == 200 and status["ok"]
    assert status["node"] == node.ready["node"]
    assert status["listeners"] == node.ready["listeners"]
    assert status["draining"] is False
    assert status["sizes"]["bhumi"]["identities"] == 1
    assert status["sizes"]["bhumi"]["commits"] == 1


def test_connections_are_listed_with_the_token_alone(node):
    """Who is connected is the operator's to know; the count may be cut, within bounds."""
    with node.client() as device, node.client():
        device.identify(DEVICE, PREIMAGE)
        refused = [node.ask("GET", "/admin/v1/connections", token=token)[0] for token in ("", "0" * 64)]
        code, listed = node.ask("GET", "/admin/v1/connections?limit=1", token=node.token)
        beyond = node.ask("GET", "/admin/v1/connections?limit=1001", token=node.token)[1]

    assert refused == [401, 401]
    assert (code, listed["protocols"]["bhumi"]["connections"]) == (200, 2)
    assert [view["id52"] for view in listed["connections"]] == [encode_id52(DEVICE.public)]
    assert beyond["error"] == '"limit" is a whole number from 1 to 1000'


@pytest.fixture(scope="module")
def tenants(node):
    """Let two tenants take a lease, and return their keys."""
    place = urlsplit(node.url("lprp"))
    host = bytes.fromhex(node.ready["node"]["public_key"])
    parties = [Party(bytes([number]) * 32, host, (place.hostname, place.port)) for number in (1, 2)]
    assert [party.lease() for party in parties] == [other.GRANTED] * 2
    yield [party.key.hex() for party in parties]
    for party in parties:
        party.socket.close()


def test_tenants_are_listed(node, tenants):
    """Each with its lease, from where it speaks, and how much waits for it."""
    code, listed = node.ask("GET", "/admin/v1/tenants")

    assert (code, listed["ok"], listed["count"]) == (200, True, 2)
    assert [tenant["key"] for tenant in listed["tenants"]] == tenants
    assert {tenant["state"] for tenant in listed["tenants"]} == {"active"}
    assert all(tenant["address"].startswith("127.0.0.1:") for tenant in listed["tenants"])


def test_list_of_tenants_may_be_cut(node, tenants):
    """The count is that of all; anything but a number within the bounds is refused in words."""
    _, cut = node.ask("GET", "/admin/v1/tenants?limit=1")
    refused = [
        node.ask("GET", f"/admin/v1/tenants?limit={text}") for text in ("0", "10001", "-1", "x", "1e3", "%C2%B2")
    ]

    assert (cut["count"], [tenant["key"] for tenant in cut["tenants"]]) == (2, tenants[:1])
    assert {(code, body["error"]) for code, body in refused} == {(400, '"limit" is a whole number from 1 to 10000')}


def test_metrics_count_an_exchange(node):
    """A finished exchange is one more delivery with outcome ok."""
    series = 'waystation_deliveries_total{outcome="ok",protocol="bhumi"}'

    def count():
        lines = node.ask("GET", "/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(series))

    before = count()
    with node.client() as device, node.client() as sender:
        device.identify(DEVICE, PREIMAGE)
        exchange(device, sender, DEVICE, PREIMAGE)

    assert count() == before + 1


@pytest.mark.parametrize("spelling", ["hex", "id52", "prefixed"])
def test_banned_identity_is_closed_and_stays_out(node, ban, spelling):
    """A ban closes the device at once and refuses its next I_AM; others are not touched, and lifting it ends that."""
    subject = {"hex": DEVICE.public.hex(), "id52": encode_id52(DEVICE.public), "prefixed": f"id:{DEVICE.public.hex()}"}
    with node.client() as device, node.client() as other:
        device.identify(DEVICE)
        other.identify(key_pair(4))
        code, _ = ban(subject[spelling])
        said = device.rest()
        with node.client() as again, pytest.raises(ConnectionError):
            again.identify(DEVICE)
        other.identify(key_pair(4))
        listed = bans(node)
        lifted, _ = node.ask("DELETE", f"/admin/v1/bans/{subject[spelling]}", token=node.token)
        with node.client() as back:
            back.identify(DEVICE)

    assert (code, said, lifted) == (201, b"", 200)
    assert listed == [f"id:{DEVICE.public.hex()}"]
    assert bans(node) == []


def test_banned_address_is_refused_and_loses_its_connections(node, ban):
    """Nobody new comes in from a banned address, before HELLO and before TLS, and who stands goes at once."""
    with node.client() as standing:
        code, _ = ban(LOOPBACK, force=True)
        said = standing.rest()
        refused = [not admitted(node, name) for name in ("bhumi_plain", "bhumi")]
    node.ask("DELETE", f"/admin/v1/bans/{LOOPBACK}", token=node.token)
    with node.client() as back:
        hello = back.hello

    assert (code, said) == (201, b"")
    assert refused == [True, True]
    assert hello.protocol_version == 1
    assert node.counted("address_banned") >= 3


@pytest.mark.parametrize("subject", ["127.0.0.0/8", "0.0.0.0/0"])
def test_banned_network_is_lifted_as_it_was_banned(node, ban, subject):
    """A network in CIDR is one entry of the list, for all its addresses."""
    code, _ = ban(subject, force=True)
    listed, refused = bans(node), not admitted(node)
    lifted, _ = node.ask("DELETE", f"/admin/v1/bans/{subject}", token=node.token)

    assert (code, listed, refused, lifted) == (201, [f"network:{subject}"], True, 200)
    assert admitted(node)


@pytest.mark.parametrize("subject", ["127.0.0.1", "127.0.0.0/8", "0.0.0.0/0", "::/0", "::1"])
def test_ban_of_everybody_asks_for_force(node, ban, subject):
    """What is probably a slip is refused in a sentence with the way to do it all the same."""
    code, body = ban(subject)

    assert (code, body["ok"]) == (400, False)
    assert body["error"].endswith('"force": true, or --force, bans it all the same')
    assert bans(node) == []


@pytest.mark.parametrize("force", ["yes", 1, 1.0, 0, 0.0])
def test_force_is_a_yes_or_a_no(node, ban, force):
    """Anything else is refused in words, a number that equals one of them included."""
    assert ban("192.0.2.1", force=force) == (400, {"ok": False, "error": '"force" is true or false', "status": 400})


def test_ban_ends_by_itself(node, ban):
    """A ban with an end is over after it."""
    began = time.monotonic()
    ban(LOOPBACK, expires_s=1, force=True)
    until(lambda: admitted(node), "the end of the ban")

    assert time.monotonic() - began > 0.5


def admitted(node, listener="bhumi_plain"):
    """Return whether a new connection gets HELLO."""
    try:
        node.client(listener).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("token", ["", "wrong"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/admin/v1/bans"), ("DELETE", f"/admin/v1/bans/{LOOPBACK}")])
def test_changing_needs_the_token(node, method, path, token):
    """Without the token of the home nothing changes, and the answer says what is needed."""
    code, answer = node.ask(method, path, {"subject": "192.0.2.7", "reason": "x"}, token)

    assert code == 401
    assert answer == {"ok": False, "error": answer["error"], "status": 401}
    assert "admin.token" in answer["error"]
    assert bans(node) == []


def test_token_is_a_secret_file(node):
    """Nobody but the owner reads the token."""
    assert (node.home / "admin.token").stat().st_mode & 0o077 == 0
    assert len(node.token) >= 32


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"subject": "nobody", "reason": "x"}, "neither an IP address"),
        ({"subject": LOOPBACK}, '"reason"'),
        ({"subject": "192.0.2.7", "reason": ""}, "1 to 200 characters"),
        ({"subject": "192.0.2.7", "reason": "x" * 201}, "1 to 200 characters"),
        ({"subject": "192.0.2.7", "reason": "\ud800"}, "1 to 200 characters"),
        ({"subject": "192.0.2.7", "reason": "two\nlines"}, "1 to 200 characters"),
        ({"subject": "192.0.2.7\ud800", "reason": "x"}, "neither an IP address"),
        ({"subject": "192.0.2.7", "reason": "x", "expires_s": 0}, "expires_s"),
        ({"subject": "192.0.2.7", "reason": "x", "expires_s": True}, "expires_s"),
        ({"subject": "192.0.2.7", "reason": "x", "expires_s": 315_360_001}, "from 1 to 315360000"),
        ({"subject": "192.0.2.7", "reason": "x", "expires_s": 10**4_299}, "from 1 to 315360000"),
        ({"subject": "192.0.2.7", "reason": "x", "expire_s": 9}, "'expire_s'; allowed: subject, reason, expires_s"),
        ([1], "JSON object"),
        ({"subject": "192.0.2.7", "reason": "x", "filler": "x" * 70_000}, "at most 65536 bytes"),
    ],
)
def test_bad_ban_is_refused_with_a_sentence(node, body, says):
    """What is no ban gets status 400, the one shape of errors, and changes nothing."""
    code, answer = node.ask("POST", "/admin/v1/bans", body, node.token)

    assert (code, answer["ok"], answer["status"]) == (400, False, 400)
    assert says in answer["error"]
    assert bans(node) == []


def test_banned_identity_is_listed_with_its_id52(node, ban):
    """The operator recognises an identity by the spelling that devices print; an address has none."""
    ban(DEVICE.public.hex())
    ban("192.0.2.7")

    assert [entry.get("id52") for entry in node.ask("GET", "/admin/v1/bans")[1]["bans"]] == [
        encode_id52(DEVICE.public),
        None,
    ]


def test_lifting_what_is_not_there(node):
    """A ban that does not exist is 404."""
    assert node.ask("DELETE", "/admin/v1/bans/192.0.2.1", token=node.token)[0] == 404


def test_policy_and_what_was_published_are_shown(node, tmp_path_factory):
    """Nothing at first, each in its own words; then the snapshot, its rules and its tables byte for byte."""
    before = [node.ask("GET", f"/admin/v1/{path}") for path in ("policy", "published/outcomes", "published/passwd")]
    snapshot = publish(node.home / "lake", [rule_of()], [score_of()], node_id=node.ready["node"]["public_key"][:16])
    os.kill(node.ready["pid"], signal.SIGHUP)
    until(lambda: node.ask("GET", "/admin/v1/policy")[1]["snapshot"], "the snapshot")
    _, policy = node.ask("GET", "/admin/v1/policy")
    code, table = node.ask("GET", "/admin/v1/published/outcomes")
    _, status = node.ask("GET", "/admin/v1/status")

    assert [code for code, _ in before] == [200, 404, 404]
    assert (before[0][1]["snapshot"], before[0][1]["rules"], before[0][1]["mode"]) == ("", [], "shadow")
    assert "nothing in order is published" in before[1][1]["error"]
    assert "known: scores, outcomes" in before[2][1]["error"]
    assert (policy["snapshot"], policy["trouble"], policy["count"]) == (snapshot.snapshot, "", 1)
    assert policy["rules"][0]["subject_ref"] == "00" * 16
    assert (code, table["name"], table["rows"]) == (200, "outcomes", [{"n": 12}])
    assert [relay["state"] for relay in status["relays"]] == ["active"]
