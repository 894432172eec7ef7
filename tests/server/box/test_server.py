"""Laws of server.bsp_box, asked over HTTP."""

import contextlib
import hashlib
import http.client
import json
import socket
import ssl
import types
from urllib.parse import urlsplit

import pytest

from tests.server.box.build import BoxOnPort, box_on_port
from tests.server.build import NodeProcess
from waystation.core.instant import Instant
from waystation.server.box import server as bsp_box
from waystation.server.box.limits import BoxLimits
from waystation.server.box.store import FILE_BYTES_MAX, BoxStore, add_owner
from waystation.server.home import Home
from waystation.server.http import connection as http_connection
from waystation.server.http.connection import HEAD_S
from waystation.transport.tls import server_context


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """Return an open box for the module."""
    with box_on_port(tmp_path_factory.mktemp("box") / "box") as box:
        yield box


@pytest.fixture
def contact(box):
    """Return a contact of its own for each test."""
    status, fresh, _ = box.ask("POST", "/v1/contacts", token=box.owner)
    assert (status, fresh["ok"]) == (201, True)
    yield fresh
    box.ask("DELETE", f"/v1/contacts/{fresh['to_owner']}", token=box.owner)


def place(folder, data):
    """Return the path of a file."""
    return f"/v1/folders/{folder}/files/{hashlib.sha256(data).hexdigest()}"


def refused(answer):
    """Return status and word of a refusal, whose form is that of all."""
    status, body, _ = answer
    assert set(body) == {"ok", "refusal", "error", "status"}
    assert (body["ok"], body["status"]) == (False, status)
    return status, body["refusal"]


def test_files_go_from_contact_to_owner_and_back(box, contact):
    """Each side puts what the other lists, gets and deletes; a repeat is 200."""
    ways = [(contact["to_owner"], contact["token"], box.owner), (contact["to_contact"], box.owner, contact["token"])]
    for folder, writer, reader in ways:
        data = b"sealed for " + folder.encode()
        statuses = [box.ask("PUT", place(folder, data), data, writer)[0] for _ in range(2)]
        listed = box.ask("GET", f"/v1/folders/{folder}/files", token=reader)[1]["files"]
        read = box.ask("GET", place(folder, data), token=reader)
        deleted = [box.ask("DELETE", place(folder, data), token=reader)[0] for _ in range(2)]

        assert statuses == [201, 200]
        assert listed == [{"id": hashlib.sha256(data).hexdigest(), "bytes": len(data)}]
        assert read[:2] == (200, data)
        assert deleted == [200, 404]


def test_contact_is_told_its_folders(box, contact):
    """A contact that has only its token finds out the rest."""
    answer = box.ask("GET", "/v1/folders", token=contact["token"])[1]

    assert answer == {"ok": True, "to_owner": contact["to_owner"], "to_contact": contact["to_contact"]}
    assert refused(box.ask("GET", "/v1/folders", token=box.owner)) == (403, "not_allowed")


def test_owner_sees_contacts_and_what_lies_there(box, contact):
    """The list has no tokens."""
    box.ask("PUT", place(contact["to_owner"], b"abc"), b"abc", contact["token"])
    listed = box.ask("GET", "/v1/contacts", token=box.owner)[1]["contacts"]

    assert listed == [{"to_owner": contact["to_owner"], "to_contact": contact["to_contact"], "files": 1, "bytes": 3}]


def test_removed_contact_is_out_at_once(box, contact):
    """Its token is nobody's."""
    removed = box.ask("DELETE", f"/v1/contacts/{contact['to_owner']}", token=box.owner)[0]

    assert removed == 200
    assert refused(box.ask("GET", "/v1/folders", token=contact["token"])) == (401, "bad_token")
    gone = box.ask("DELETE", f"/v1/contacts/{contact['to_owner']}", token=box.owner)
    assert refused(gone) == (404, "unknown_contact")
    box.now = Instant(box.now + 60_000_000)


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v1/contacts"), ("POST", "/v1/contacts"), ("DELETE", "/v1/contacts/x")],
)
def test_contacts_are_the_owners_alone(box, contact, method, target):
    """A contact's token is known, and not for this."""
    assert refused(box.ask(method, target, token=contact["token"])) == (403, "not_allowed")


@pytest.mark.parametrize(
    ("method", "folder", "who"),
    [("PUT", "to_owner", "owner"), ("PUT", "to_contact", "contact"), ("GET", "to_owner", "contact")],
)
def test_against_the_direction_is_forbidden(box, contact, method, folder, who):
    """Files go one way in each folder."""
    token = box.owner if who == "owner" else contact["token"]

    assert refused(box.ask(method, place(contact[folder], b"x"), b"x", token)) == (403, "not_allowed")


def test_no_token_and_wrong_tokens(box):
    """Both are 401, and only wrong ones are counted: after ten a minute they are 429, with the time to wait."""
    box.now = Instant(box.now + 60_000_000)
    none = [refused(box.ask("GET", "/v1/folders")) for _ in range(2 * BoxLimits().bad_tokens_per_minute)]
    wrong = [refused(box.ask("GET", "/v1/folders", token="0" * 64)) for _ in range(BoxLimits().bad_tokens_per_minute)]
    too_many = box.ask("GET", "/v1/folders", token="0" * 64)
    right = box.ask("GET", "/v1/contacts", token=box.owner)[0]
    box.now = Instant(box.now + 6_000_000)
    later = refused(box.ask("GET", "/v1/folders", token="0" * 64))

    assert set(none) == {(401, "no_token")}
    assert set(wrong) == {(401, "bad_token")}
    assert refused(too_many) == (429, "too_many_bad_tokens")
    assert int(too_many[2]["Retry-After"]) == 6
    assert (right, later) == (200, (401, "bad_token"))
    box.now = Instant(box.now + 60_000_000)


def test_addresses_are_counted_up_to_a_bound(tmp_path):
    """The table of those who sent wrong tokens does not grow without end."""
    api = bsp_box._Api(BoxStore(tmp_path, BoxLimits(bad_token_addresses=2)), lambda: Instant(0))
    hosts = [f"10.0.0.{number}" for number in range(5)]
    for host in hosts:
        api._bucket(type("Asked", (), {"client": type("From", (), {"host": host})})).take(Instant(0))

    assert list(api._bad) == hosts[-2:]


def test_address_that_is_counted_gets_a_new_rate(tmp_path):
    """An address that has used up its wrong tokens refills at the rate that a reload brings, up to its burst."""
    now = [Instant(0)]
    api = bsp_box._Api(BoxStore(tmp_path, BoxLimits(bad_tokens_per_minute=1)), lambda: now[0])
    asked = type("Asked", (), {"client": type("From", (), {"host": "10.0.0.1"})})
    before = [api._bucket(asked).take(now[0]) for _ in range(2)]
    api._store.use_limits(BoxLimits(bad_tokens_per_minute=3), 1 << 30)
    now[0] = Instant(60_000_000)
    raised = [api._bucket(asked).take(now[0]) for _ in range(4)]
    api._store.use_limits(BoxLimits(bad_tokens_per_minute=2), 1 << 30)
    now[0] = Instant(3 * 60_000_000)
    lowered = [api._bucket(asked).take(now[0]) for _ in range(3)]

    assert before == [True, False]
    assert raised == [True] * 3 + [False]
    assert lowered == [True] * 2 + [False]


def test_uploads_have_bounds(box, contact):
    """Exactly 1 MiB is kept; a byte more is 413, whether the length is told or not; nothing is 400."""
    url = f"/v1/folders/{contact['to_owner']}/files/"
    largest = bytes(FILE_BYTES_MAX)
    kept = box.ask("PUT", place(contact["to_owner"], largest), largest, contact["token"])[0]
    told = box.ask("PUT", url + "0" * 64, largest + b"x", contact["token"])
    untold = box.ask("PUT", url + "0" * 64, iter([largest, b"x"]), contact["token"])
    empty = box.ask("PUT", place(contact["to_owner"], b""), b"", contact["token"])

    assert kept == 201
    assert refused(told) == refused(untold) == (413, "file_too_large")
    assert refused(empty) == (400, "file_empty")


def test_upload_without_an_end_is_cut_off(box, contact):
    """Who sends more than a file has is answered at once, not when he is done."""
    split = urlsplit(box.url)
    connection = http.client.HTTPConnection(split.hostname, split.port, timeout=5)
    connection.putrequest("PUT", place(contact["to_owner"], b"x"))
    connection.putheader("Authorization", f"Bearer {contact['token']}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    connection.send(b"%x\r\n" % (2 * FILE_BYTES_MAX) + bytes(FILE_BYTES_MAX + 1))
    with connection.getresponse() as response:
        status = response.status
    connection.close()

    assert status == 413


@pytest.mark.parametrize("length", ["-1", "x", "99999999999999999999", "1e3"])
def test_lengths_that_are_none_are_refused(box, contact, length):
    """A length that lies or is no number opens no admission."""
    split = urlsplit(box.url)
    connection = http.client.HTTPConnection(split.hostname, split.port, timeout=5)
    connection.putrequest("PUT", place(contact["to_owner"], b"x"))
    connection.putheader("Authorization", f"Bearer {contact['token']}")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    with connection.getresponse() as response:
        status = response.status
    connection.close()

    assert status in {400, 413}


@pytest.mark.parametrize("name", ["x", "..", "%2e%2e%2f%2e%2e%2fowners%2falice", "A" * 64, "0" * 63])
def test_bad_names_are_refused(box, contact, name):
    """No name leads out of the folder."""
    status, _, _ = box.ask("PUT", f"/v1/folders/{contact['to_owner']}/files/{name}", b"x", contact["token"])
    other = box.ask("GET", f"/v1/folders/{name}/files", token=box.owner)[0]

    assert status in {400, 404}
    assert other == 404


def test_name_must_be_the_hash(box, contact):
    """An upload that was garbled on its way is noticed."""
    answer = box.ask("PUT", place(contact["to_owner"], b"x"), b"y", contact["token"])

    assert refused(answer) == (422, "other_bytes")


def upload_begun(box, contact, data=b"xy"):
    """Send all but the last byte of a file, and return the connection."""
    split = urlsplit(box.url)
    connection = http.client.HTTPConnection(split.hostname, split.port, timeout=5)
    connection.putrequest("PUT", place(contact["to_owner"], data))
    connection.putheader("Authorization", f"Bearer {contact['token']}")
    connection.putheader("Content-Length", str(len(data)))
    connection.endheaders(data[:-1])
    return connection


def test_upload_that_is_broken_off_is_no_trouble(box, contact, caplog):
    """Nothing is kept of it, and no log tells of a mistake of ours."""
    for _ in range(5):
        upload_begun(box, contact).close()
    listed = box.ask("GET", f"/v1/folders/{contact['to_owner']}/files", token=box.owner)[1]["files"]
    put = box.ask("PUT", place(contact["to_owner"], b"xy"), b"xy", contact["token"])[0]

    assert (listed, put) == ([], 201)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_token_has_few_uploads_at_once(box, contact):
    """One more is 429 at once, before its bytes are read; others are let through, and this one when there is room."""
    other = box.ask("POST", "/v1/contacts", token=box.owner)[1]
    begun = [upload_begun(box, contact, b"%dx" % number) for number in range(BoxLimits().uploads_max)]
    seen = [box.ask("GET", "/v1/folders", token=contact["token"])[0] for _ in begun]  # those before were heard by then
    refusal = box.ask("PUT", place(contact["to_owner"], b"z"), b"z", contact["token"])
    others = box.ask("PUT", place(other["to_owner"], b"z"), b"z", other["token"])[0]
    begun[0].send(b"x")
    with begun[0].getresponse() as response:
        finished = response.status
    again = box.ask("PUT", place(contact["to_owner"], b"z"), b"z", contact["token"])[0]
    for connection in begun:
        connection.close()
    box.ask("DELETE", f"/v1/contacts/{other['to_owner']}", token=box.owner)

    assert refused(refusal) == (429, "too_many_uploads")
    assert (seen, others, finished, again) == ([200] * BoxLimits().uploads_max, 201, 201, 201)


def test_half_requests_do_not_shut_the_box(box, monkeypatch):
    """A crowd without any token gets 408 when its time is over; who comes from elsewhere is served meanwhile."""
    monkeypatch.setattr(http_connection, "HEAD_S", 0.1)
    split = urlsplit(box.url)
    crowd = []
    for number in range(300):
        sock = socket.create_connection((split.hostname, split.port), 5, (f"127.2.0.{number % 100}", 0))
        sock.sendall(b"GET /v1/contacts HTTP/1.1\r\n")
        crowd.append(sock)
    meanwhile = box.ask("GET", "/v1/contacts", token=box.owner)[0]
    with http.client.HTTPResponse(crowd[-1]) as response:
        response.begin()
        late = (response.status, json.loads(response.read()), response.headers)
    for sock in crowd:
        sock.close()

    assert meanwhile == 200
    assert refused(late) == (408, "slow_head")
    assert f"{HEAD_S:g} s" in late[1]["error"]


@pytest.mark.parametrize(("limited", "expected"), [(True, None), (False, 200)])
def test_one_address_has_a_share_of_the_connections(tmp_path, limited, expected):
    """Unless limits are off."""
    answer = None
    with box_on_port(tmp_path / "box", limited=limited) as box:
        split = urlsplit(box.url)
        crowd = [socket.create_connection((split.hostname, split.port), 5) for _ in range(16)]
        with contextlib.suppress(ConnectionError):
            answer = box.ask("GET", "/v1/contacts", token=box.owner)[0]
        for sock in crowd:
            sock.close()

    assert answer == expected


def test_slow_upload_ends(box, contact, monkeypatch):
    """Who sends nothing for too long gets 408."""
    monkeypatch.setattr(bsp_box, "UPLOAD_S", 0.05)
    split = urlsplit(box.url)
    connection = http.client.HTTPConnection(split.hostname, split.port, timeout=5)
    connection.putrequest("PUT", place(contact["to_owner"], b"xy"))
    connection.putheader("Authorization", f"Bearer {contact['token']}")
    connection.putheader("Content-Length", "2")
    connection.endheaders(b"x")
    with connection.getresponse() as response:
        status = response.status
    connection.close()

    assert status == 408


def test_full_folder_is_507(tmp_path):
    """Files, contacts, and the disk: no room, and no silent loss."""
    with box_on_port(tmp_path / "box", BoxLimits(folder_files_max=1, contacts_max=1)) as box:
        contact = box.ask("POST", "/v1/contacts", token=box.owner)[1]
        first = box.ask("PUT", place(contact["to_owner"], b"1"), b"1", contact["token"])[0]
        second = box.ask("PUT", place(contact["to_owner"], b"2"), b"2", contact["token"])
        another = box.ask("POST", "/v1/contacts", token=box.owner)
        (tmp_path / "box" / "owners" / "bob").write_text("no hash")
        broken = box.ask("GET", "/v1/contacts", token=box.owner)

    assert first == 201
    assert refused(second) == (507, "folder_full")
    assert refused(another) == (507, "contacts_full")
    assert refused(broken) == (503, "disk")


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/", 404), ("GET", "/v1/contacts/x", 405), ("PATCH", "/v1/contacts", 405), ("GET", "/owners/alice", 404)],
)
def test_nothing_else_is_there(box, method, target, status):
    """Other paths and methods are refused, whoever asks."""
    assert box.ask(method, target, token=box.owner)[0] == status


def test_other_addresses_get_tls(tmp_path):
    """Whatever can be reached from elsewhere shows the node's certificate, and loopback needs none."""
    home = Home(tmp_path / "home")
    home.ensure()
    with box_on_port(tmp_path / "box", host="0.0.0.0", tls=server_context(home.cert_path, home.tls_key_path)) as box:
        split = urlsplit(box.url)
        context = ssl.create_default_context(cafile=home.ca_path)
        connection = http.client.HTTPSConnection("localhost", split.port, timeout=5, context=context)
        connection.request("GET", "/v1/contacts", headers={"Authorization": f"Bearer {box.owner}"})
        with connection.getresponse() as response:
            status = response.status
        connection.close()

    assert (split.scheme, status) == ("https", 200)


def test_half_requests_end_over_tls_too(tmp_path, monkeypatch):
    """The answer comes through TLS, and whoever does not even begin TLS counts among those of an address."""
    monkeypatch.setattr(http_connection, "HEAD_S", 0.03)
    home = Home(tmp_path / "home")
    home.ensure()
    with box_on_port(tmp_path / "box", host="0.0.0.0", tls=server_context(home.cert_path, home.tls_key_path)) as box:
        there = ("127.0.0.1", urlsplit(box.url).port)
        context = ssl.create_default_context(cafile=home.ca_path)
        with context.wrap_socket(socket.create_connection(there, 5), server_hostname="localhost") as half:
            half.sendall(b"GET /v1/contacts HTTP/1.1\r\n")
            answer = b"".join(iter(lambda: half.recv(4_096), b""))
        silent = [socket.create_connection(there, 5) for _ in range(17)]
        with contextlib.suppress(ConnectionError):
            assert silent[-1].recv(1) == b""
        for sock in silent:
            sock.close()

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"slow_head" in answer


def test_node_serves_a_box_that_survives_being_killed(tmp_path):
    """A node with bsp.box says where it is; owners are let in while it runs, and files outlive a kill."""
    home = tmp_path / "home"
    off = {f"{name}__enabled": "false" for name in ("bhumi", "lprp", "merk", "strata")}
    node = NodeProcess(home, bsp__tls="", bsp__box="127.0.0.1:0", **off).start()
    box = BoxOnPort(types.SimpleNamespace(url=node.url("bsp_box")), home / "box", add_owner(home / "box", "alice"))
    contact = box.ask("POST", "/v1/contacts", token=box.owner)[1]
    put = box.ask("PUT", place(contact["to_owner"], b"sealed"), b"sealed", contact["token"])[0]
    sizes = node.ask("GET", "/admin/v1/status")[1]["sizes"]["bsp_box"]
    node.kill()
    node.start()
    box.server = types.SimpleNamespace(url=node.url("bsp_box"))
    kept = box.ask("GET", place(contact["to_owner"], b"sealed"), token=box.owner)
    code = node.stop()

    assert (put, sizes) == (201, {"owners": 1, "contacts": 1, "files": 1, "bytes": 6})
    assert (kept[:2], code) == ((200, b"sealed"), 0)


def test_refused_address_gets_nothing(tmp_path):
    """NODE-ACCESS: not even with the owner's token, until the operator lifts it; wrong tokens are not counted."""
    banned = {"127.0.0.1"}
    with box_on_port(tmp_path / "box", refuses=lambda host: host in banned) as box:
        before = refused(box.ask("GET", "/v1/contacts", token=box.owner))
        banned.clear()
        after, _, _ = box.ask("GET", "/v1/contacts", token=box.owner)

    assert (before, after) == ((403, "address_refused"), 200)
