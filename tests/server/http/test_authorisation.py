"""Laws of server.http.authorisation, asked of a node in a process of its own; every route is tried."""

import http.client
import json
import os
import re
import signal
import socket
import types
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.server.build import NodeProcess, until
from waystation.server.config.settings import AdminSettings
from waystation.server.hosted import host_class
from waystation.server.http.admin import admin_application
from waystation.server.http.authorisation import METRICS_PATH, OPEN_PATHS, SESSION_PATH, TOKEN_PATH, Authorisation
from waystation.server.hub import monotonic_now
from waystation.server.registry import PROTOCOLS

VIEWED = [name for name in PROTOCOLS if host_class(name).has_view]
OPEN = OPEN_PATHS | {METRICS_PATH}
WRONG = "w" * 43
FOREIGN = [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}]


def routes():
    """Return method and path of every route of the application."""
    authorisation = Authorisation("t", AdminSettings(), name="n", rotate=list, clock=monotonic_now)
    application = admin_application(types.SimpleNamespace(viewed=lambda: VIEWED), authorisation)
    return [
        (method, re.sub(r"\{[^}]*\}", "x", route.path))
        for route in application.routes
        for method in sorted(route.methods)
    ]


ROUTES = routes()
CLOSED = [(method, path) for method, path in ROUTES if path not in OPEN]


class Asked(NamedTuple):
    """An answer."""

    status: int
    body: str
    headers: http.client.HTTPMessage

    @property
    def document(self):
        """Return the JSON of it."""
        return json.loads(self.body)

    @property
    def cookie(self):
        """Return name and value of the cookie that it sets."""
        return self.headers["set-cookie"].partition(";")[0]


def ask(node, method, path, token=None, **headers):
    """Send one request with these headers and no others but a Host; ``host=None`` leaves that out."""
    place = urlsplit(node.url("admin"))
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        host = headers.pop("host", place.netloc)
        given = {"host": host, "authorization": f"Bearer {token}" if token else None} | headers
        for name, value in given.items():
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    connection.putheader(name.replace("_", "-"), each)
        connection.endheaders()
        with connection.getresponse() as answer:
            return Asked(answer.status, answer.read().decode(), answer.headers)
    finally:
        connection.close()


def raw(node, data):
    """Send bytes and return the status of the answer."""
    place = urlsplit(node.url("admin"))
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        connection.sendall(data)
        return int(connection.recv(65_536).split(b" ")[1])


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module, with a second name."""
    home = tmp_path_factory.mktemp("authorisation") / "home"
    running = NodeProcess(home, admin__hosts="Admin.Example.org").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def own(tmp_path):
    """A node for one test."""
    with NodeProcess(tmp_path / "home") as running:
        yield running.start()


def origin_of(node):
    """Return the Origin of the port's own pages."""
    return node.url("admin")


def session_of(node):
    """Return the cookie of a new session."""
    made = ask(node, "POST", SESSION_PATH, node.token)
    assert made.status == 201
    return made.cookie


def refusal(asked):
    """Return the status of a refusal that has the one form."""
    assert asked.document == {"ok": False, "error": asked.document["error"], "status": asked.status}
    return asked.status


def test_routes_are_found():
    """The list that the tests below go through has what it should."""
    assert {("GET", "/admin/v1/status"), ("POST", "/admin/v1/bans"), ("DELETE", "/admin/v1/bans/x")} <= set(ROUTES)
    assert {("POST", SESSION_PATH), ("DELETE", SESSION_PATH), ("POST", TOKEN_PATH)} <= set(CLOSED)
    assert len(CLOSED) >= 15


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each[0] != "HEAD"])
def test_route_without_token(node, method, path):
    """Health, readiness and metrics answer; everything else wants the token, and says where it is."""
    asked = ask(node, method, path)

    if path in OPEN:
        assert asked.status == 200
    else:
        assert refusal(asked) == 401 and "admin.token" in asked.document["error"]
        assert asked.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path"), [each for each in CLOSED if each[0] != "HEAD"])
def test_route_with_wrong_token(node, method, path):
    """A wrong token is refused, also beside the cookie of a session; after some of them with another status."""
    asked = [ask(node, method, path, WRONG), ask(node, method, path, WRONG, cookie=session_of(node))]

    assert {refusal(each) for each in asked} <= {401, 429}


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "named", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}]
)
def test_route_from_another_origin(node, method, path, named):
    """No page of another origin gets an answer, with the token, a session or nothing, /metrics included."""
    for way in ({"token": node.token}, {"cookie": session_of(node)}, {}):
        assert ask(node, method, path, **way, **named).status == 403


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_route_with_a_rebound_name(node, method, path):
    """A page whose name points at this machine sends that name, and gets nothing."""
    for way in ({"token": node.token}, {"cookie": session_of(node)}, {}):
        asked = ask(node, method, path, **way, host=f"evil.example:{urlsplit(node.url('admin')).port}")
        assert asked.status == 421


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nothing"), ("GET", "/healthz/"), ("GET", "/admin/v1/../../healthz"), ("OPTIONS", "/admin/v1/status")],
)
def test_unknown_paths_are_not_told_apart(node, method, path):
    """Without the token every path is the same; with it, there is nothing or another method."""
    assert refusal(ask(node, method, path)) == 401
    assert refusal(ask(node, method, path, node.token)) in (404, 405)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/healthz"), ("TRACE", "/"), ("POST", METRICS_PATH), ("X", "/")])
def test_wrong_method_on_an_open_path(node, method, path):
    """It is 405 with the methods that there are."""
    asked = ask(node, method, path)

    assert refusal(asked) == 405 and "GET" in asked.headers["allow"]


def test_wrong_method_with_the_token(node):
    """The answer names those of the path; a preflight from the port's own page gets no permission for others."""
    asked = ask(node, "PUT", "/admin/v1/bans", node.token)
    preflight = ask(node, "OPTIONS", "/admin/v1/bans", origin=origin_of(node), access_control_request_method="POST")

    assert refusal(asked) == 405 and {"GET", "POST"} <= set(asked.headers["allow"].split(", "))
    assert preflight.status == 401 and "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (["localhost", "evil.example"], 400),
        (["localhost", "localhost"], 400),
        ("user@localhost", 400),
        ("LOCALHOST", 200),
        ("localhost.", 421),
        ("[::1]:9", 200),
        ("127.0.0.1", 200),
        ("admin.example.org", 200),
        ("evil.example", 421),
        ("", 400),
    ],
)
def test_hosts_over_the_wire(node, host, status):
    """What test_origins.py has, as the socket gives it."""
    assert ask(node, "GET", "/healthz", host=host).status == status


def test_missing_host(node):
    """Neither version of HTTP is answered without one; a Host in the target is no other one."""
    assert ask(node, "GET", "/healthz", host=None).status == 400
    assert raw(node, b"GET /healthz HTTP/1.0\r\n\r\n") == 400
    assert raw(node, b"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 421


@pytest.mark.parametrize("value", ["", "Basic dDp0", "Bearer", "Bearer ", "Token {}", "{}", "Bearer {}x", "Bearer x{}"])
def test_what_is_no_bearer_token(node, value):
    """Another scheme, a token without a scheme, and more or less than it are wrong."""
    assert ask(node, "GET", "/admin/v1/status", authorization=value.format(node.token)).status in (401, 429)


def test_scheme_has_any_case(node):
    """RFC 9110 11.1: the scheme is compared without regard to case; two headers are wrong even when both are right."""
    right = f"bearer {node.token}"

    assert ask(node, "GET", "/admin/v1/status", authorization=right).status == 200
    assert ask(node, "GET", "/admin/v1/status", authorization=[right, right]).status in (401, 429)


def test_answers_are_not_kept_and_not_embedded(node):
    """Every answer forbids caches, frames and other origins, refusals included."""
    for asked in (ask(node, "GET", "/healthz"), ask(node, "GET", "/admin/v1/status"), ask(node, "GET", METRICS_PATH)):
        assert asked.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in asked.headers["content-security-policy"]
        assert asked.headers["cross-origin-resource-policy"] == "same-origin"
        assert asked.headers["x-content-type-options"] == "nosniff"


def test_index_names_what_is_open(node):
    """It has nothing of the node."""
    assert ask(node, "GET", "/").document == {"ok": True, "see": ["/healthz", "/metrics", "/readyz"]}


# Sessions


def test_session_reads_and_changes_from_its_own_page(node):
    """The cookie alone reads; a change also needs the Origin of the page."""
    cookie, body = session_of(node), {"content_length": "0"}
    read = ask(node, "GET", "/admin/v1/status", cookie=cookie, sec_fetch_site="same-origin")
    without = ask(node, "DELETE", "/admin/v1/bans/192.0.2.1", cookie=cookie)
    with_own = ask(node, "DELETE", "/admin/v1/bans/192.0.2.1", cookie=cookie, origin=origin_of(node), **body)

    assert (read.status, without.status, with_own.status) == (200, 403, 404)
    assert "no such ban" in with_own.document["error"]


def test_cookie_is_kept_from_scripts_and_other_sites(node):
    """It is HttpOnly and SameSite=Strict, has a name of this node and an end, and Secure where the page is."""
    made = ask(node, "POST", SESSION_PATH, node.token)
    over_tls = ask(node, "POST", SESSION_PATH, node.token, host="admin.example.org", origin="https://admin.example.org")

    cookie = made.headers["set-cookie"]
    assert cookie.startswith(f"waystation-{node.ready['node']['public_key'][:8]}=")
    assert {"HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie and "Secure" in over_tls.headers["set-cookie"]
    assert made.document == {"ok": True, "ends_in_s": 43_200}


def test_session_is_ended(node):
    """Who leaves is out; a session makes no other one."""
    cookie = session_of(node)
    again = ask(node, "POST", SESSION_PATH, cookie=cookie, origin=origin_of(node))
    left = ask(node, "DELETE", SESSION_PATH, cookie=cookie, origin=origin_of(node))
    after = ask(node, "GET", "/admin/v1/status", cookie=cookie)

    assert (again.status, left.status, after.status) == (401, 200, 401)


@pytest.mark.parametrize("value", ["", "x", "w" * 43, '"', "ä", "x" * 4_000])
def test_cookie_that_is_no_session(node, value):
    """Whatever stands there, it is no session."""
    name = session_of(node).partition("=")[0]

    assert ask(node, "GET", "/admin/v1/status", cookie=f"{name}={value}").status == 401


# The token


def test_right_token_is_accepted_after_many_wrong_ones(own):
    """An attacker on this machine keeps nobody away; what is limited is told when to come again, and logged once."""
    wrong = [ask(own, "GET", "/admin/v1/status", WRONG) for _ in range(30)]
    right = ask(own, "GET", "/admin/v1/status", own.token)

    assert [each.status for each in wrong[:10]] == [401] * 10 and wrong[-1].status == 429
    assert 1 <= int(wrong[-1].headers["retry-after"]) <= 60 and wrong[-1].headers["connection"] == "close"
    assert right.status == 200
    assert own.log().count("admin.wrong_token") == 1 and WRONG not in own.log()


def test_true_address_counts_behind_a_proxy(tmp_path):
    """What one client of the proxy does wrong is not another one's; the log has the client's address."""
    with NodeProcess(tmp_path / "home", node__trusted_proxies="127.0.0.1").start() as node:
        first = [ask(node, "GET", "/admin/v1/bans", WRONG, x_forwarded_for="192.0.2.1").status for _ in range(11)]
        second = ask(node, "GET", "/admin/v1/bans", WRONG, x_forwarded_for="192.0.2.2").status
        log = node.log()

    assert (first[-1], second) == (429, 401)
    assert "192.0.2.1" in log and "192.0.2.2" in log and "127.0.0.1 " not in log.split("admin.wrong_token")[1]


def test_address_beyond_the_limit_in_all_is_logged_too(tmp_path):
    """Whoever uses up the wrong tokens of everybody hides nobody: each address has its line, once."""
    with NodeProcess(tmp_path / "home", node__trusted_proxies="127.0.0.1").start() as node:
        for number in range(110):
            ask(node, "GET", "/admin/v1/bans", WRONG, x_forwarded_for=f"192.0.2.{number // 10}")
        lines = [line for line in node.log().splitlines() if "admin.wrong_token" in line]

    assert [re.findall(r"192\.0\.2\.\d+", line) for line in lines] == [[f"192.0.2.{number}"] for number in range(11)]


def test_new_token_ends_the_old_one_and_all_sessions(own):
    """The answer does not have it; the file has, for its owner alone, and every other credential is over at once."""
    old, cookie = own.token, session_of(own)
    made = ask(own, "POST", TOKEN_PATH, old)
    new = own.token

    assert (made.status, made.document, new != old) == (201, {"ok": True}, True)
    assert (own.home / "admin.token").stat().st_mode & 0o777 == 0o600
    assert ask(own, "GET", "/admin/v1/bans", old).status == 401
    assert ask(own, "GET", "/admin/v1/bans", cookie=cookie).status == 401
    assert ask(own, "GET", "/admin/v1/bans", new).status == 200


def test_replaced_file_is_taken_over_at_sighup(own):
    """A token that the operator wrote is in force after SIGHUP; one that others may read changes nothing."""
    old = own.token
    cookie = session_of(own)
    path = own.home / "admin.token"
    path.chmod(0o644)
    os.kill(own.ready["pid"], signal.SIGHUP)
    until(lambda: "reload.refused" in own.log(), "the refusal")
    kept = ask(own, "GET", "/admin/v1/bans", old).status
    path.chmod(0o600)
    path.write_text("another-token-of-the-operator\n")
    os.kill(own.ready["pid"], signal.SIGHUP)
    until(lambda: "reload.done" in own.log(), "the reload")

    assert kept == 200
    assert ask(own, "GET", "/admin/v1/bans", old).status == 401
    assert ask(own, "GET", "/admin/v1/bans", cookie=cookie).status == 401
    assert ask(own, "GET", "/admin/v1/bans", "another-token-of-the-operator").status == 200


def test_metrics_may_need_the_token_too(tmp_path):
    """With admin.metrics = "token" they do, and SIGHUP opens them; names of admin.hosts reload too."""
    home = tmp_path / "home"
    with NodeProcess(home, tables='[admin]\nmetrics = "token"\n').start() as node:
        closed = ask(node, "GET", METRICS_PATH).status
        index = ask(node, "GET", "/").document["see"]
        with_token = ask(node, "GET", METRICS_PATH, node.token)
        before = ask(node, "GET", "/healthz", host="new.example").status
        (home / "node.toml").write_text('[admin]\nhosts = ["new.example"]\n')
        os.kill(node.ready["pid"], signal.SIGHUP)
        until(lambda: "reload.done" in node.log(), "the reload")
        after = ask(node, "GET", METRICS_PATH, host="new.example").status

    assert (closed, index) == (401, ["/healthz", "/readyz"])
    assert with_token.status == 200 and "waystation_uptime_seconds" in with_token.body
    assert (before, after) == (421, 200)
