"""A node and its certificates over real handshakes: renewal by the node, by certbot's hook, by a Caddy's files."""

import asyncio
import contextlib
import datetime
import os
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.sdk.build import RunningDevice, echo
from tests.server.build import NodeProcess, eventually
from tests.server.build_node import configured, serving
from tests.server.certificates.build import EVERY_TLS_LISTENER, LISTENERS, SETTINGS, leaf_der, shown_at, write_pair
from waystation.crypto.certificates import sign_leaf
from waystation.crypto.hashing import sha256
from waystation.sdk.bhumi import Disconnected
from waystation.sdk.bhumi.pairing.relay_authorities import RelayAuthorities
from waystation.server.certificates import in_force, succession
from waystation.server.home import Home, write_whole
from waystation.transport.tls import client_context

HOOK = Path(__file__).parents[3] / "contrib" / "waystation-certificate.sh"
DAY = datetime.timedelta(days=1)
GROUP = str(os.getgid())


@pytest.fixture
def quick_looks(monkeypatch):
    """Look at the files every few milliseconds."""
    monkeypatch.setattr(in_force, "LOOK_S", 0.005)


async def dial(url, context):
    """Return the streams of a TLS connection, of a client that checks authority and name."""
    return await asyncio.open_connection("127.0.0.1", urlsplit(url).port, ssl=context, server_hostname="localhost")


def shown_to(writer):
    """Return the certificate that a connection was shown."""
    return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


async def shown_by_all(urls):
    """Return what every TLS listener shows."""
    return {await asyncio.to_thread(shown_at, urls[name]) for name in LISTENERS}


async def dial_until(url, context, holds):
    """Dial until what is shown is right; return it."""
    while True:
        _, writer = await dial(url, context)
        shown = shown_to(writer)
        writer.close()
        if holds(shown):
            return shown


def age_leaf(home):
    """Put a leaf that ends in three weeks in the place of the home's; return it."""
    then = datetime.datetime.now(datetime.UTC) - 344 * DAY
    parts = [path.read_bytes() for path in (home.ca_path, home.ca_key_path, home.cert_path)]
    pem = sign_leaf(*parts, ["localhost"], then)
    write_whole(home.cert_path, pem, 0o644)
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def run_hook(folder, *arguments, **environment):
    """Run the hook as its callers do; return the finished process."""
    own = {"PATH": os.environ["PATH"], "WAYSTATION_TLS": str(folder), "WAYSTATION_GROUP": GROUP}
    return subprocess.run(
        ["sh", HOOK, *arguments], check=False, capture_output=True, text=True, timeout=10, env=own | environment
    )


class Lineage:
    """A folder as certbot keeps it: links in ``live`` to numbered files in ``archive``."""

    def __init__(self, folder):
        self.live, self._archive = folder / "live/relay", folder / "archive/relay"
        for each in (self.live, self._archive):
            each.mkdir(parents=True)
        self._number = 0

    def renew(self):
        """Write the next files and point the links at them; return the certificate."""
        self._number += 1
        made = write_pair(self._archive, f"pair{self._number}")
        for name, path in (("fullchain.pem", made.cert), ("privkey.pem", made.key)):
            link = self.live / name
            link.unlink(missing_ok=True)
            link.symlink_to(path)
        return leaf_der(made.cert)


def test_local_leaf_that_has_ended_is_renewed_at_the_start(tmp_path):
    """A node that was off for over a year serves clients that have its authority from the first handshake on."""
    home = Home(tmp_path / "home")
    home.ensure(datetime.datetime.now(datetime.UTC) - 400 * DAY)
    context, ended = client_context(home.ca_path), leaf_der(home.cert_path)

    async def story():
        async with serving(home.path, configured(home.path, bhumi__tls="127.0.0.1:0")) as (server, _):
            _, writer = await dial(server.operations.status()["listeners"]["bhumi"], context)
            shown = shown_to(writer)
            writer.close()
            return shown

    assert asyncio.run(story()) == leaf_der(home.cert_path) != ended


def test_local_leaf_is_renewed_while_the_node_runs(tmp_path, quick_looks):
    """Who is connected stays, the next handshake shows the new leaf, and the client's file is the one from before."""
    home = Home(tmp_path / "home")
    home.ensure()
    context = client_context(home.ca_path)

    async def story():
        async with serving(home.path, configured(home.path, bhumi__tls="127.0.0.1:0")) as (server, _):
            url = server.operations.status()["listeners"]["bhumi"]
            reader, writer = await dial(url, context)
            hello = await reader.readexactly(6)
            ends_soon = age_leaf(home)
            await eventually(lambda: leaf_der(home.cert_path) != ends_soon, "the renewal")
            newcomer = await dial_until(url, context, lambda shown: shown not in {ends_soon, shown_to(writer)})
            still_open = not reader.at_eof() and len(hello) == 6
            writer.close()
            return newcomer, still_open

    assert asyncio.run(asyncio.wait_for(story(), 20)) == (leaf_der(home.cert_path), True)


@pytest.mark.parametrize("watched", ["copies", "links"])
def test_certbot_renews_and_nobody_sends_a_signal(tmp_path, quick_looks, watched):
    """By the hook, which copies, and by its live folder, whose links the node follows where it may read them."""
    lineage, copies = Lineage(tmp_path / "letsencrypt"), tmp_path / "tls"
    folder = copies if watched == "copies" else lineage.live
    first = lineage.renew()

    def deploy():
        if watched == "copies":
            done = run_hook(copies, RENEWED_LINEAGE=str(lineage.live), RENEWED_DOMAINS="relay.example.org")
            assert (done.returncode, done.stderr) == (0, "")

    async def story():
        deploy()
        settings = {"node__cert": str(folder / "fullchain.pem"), "node__key": str(folder / "privkey.pem")}
        config = configured(tmp_path / "home", **EVERY_TLS_LISTENER, **settings)
        async with serving(tmp_path / "home", config) as (server, _):
            urls = server.operations.status()["listeners"]
            before = await shown_by_all(urls)
            old = server._certificates.leaf_sha256("bsp")
            second = lineage.renew()
            deploy()
            await eventually(lambda: server._certificates.leaf_sha256("bsp") != old, "the new certificate")
            proved = server._hosts["bsp"].relay._machine._certificates
            return before, second, await shown_by_all(urls), set(proved.values())

    before, second, after, proved = asyncio.run(asyncio.wait_for(story(), 20))

    assert (before, after) == ({first}, {second})
    assert proved == {sha256(second)}


def test_setting_is_reloaded(tmp_path):
    """A node that showed its local certificate shows another one after SIGHUP, and a bad one changes nothing."""
    files, path = write_pair(tmp_path / "own"), tmp_path / "node.toml"
    path.write_text("")
    home = tmp_path / "home"

    async def story():
        async with serving(home, configured(home, path, **EVERY_TLS_LISTENER)) as (server, _):
            urls = server.operations.status()["listeners"]
            seen = [await shown_by_all(urls)]
            for key in (files.key, home / "tls/key.pem"):
                path.write_text(f'[node]\ncert = "{files.cert}"\nkey = "{key}"\n')
                server.reload()
                seen.append(await shown_by_all(urls))
            return seen

    seen = asyncio.run(asyncio.wait_for(story(), 20))

    assert seen == [{leaf_der(home / "tls/cert.pem")}, {leaf_der(files.cert)}, {leaf_der(files.cert)}]


def test_hook_leaves_files_for_the_group_alone_and_nothing_else(tmp_path):
    """The node's group reads them, others do not; no copy is left beside them; a second run replaces both."""
    lineage = Lineage(tmp_path / "letsencrypt")
    runs = []
    for _ in range(2):
        leaf = lineage.renew()
        runs.append(run_hook(tmp_path / "tls", RENEWED_LINEAGE=str(lineage.live)).returncode)
    files = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()}

    assert runs == [0, 0]
    assert files == {"fullchain.pem": 0o640, "privkey.pem": 0o640}
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o750
    assert leaf_der(tmp_path / "tls/fullchain.pem") == leaf


def test_hook_takes_two_files_as_well(tmp_path):
    """For Caddy, whose files have other names."""
    made = write_pair(tmp_path / "caddy", "relay.example.org")
    done = run_hook(tmp_path / "tls", str(made.cert), str(made.key))

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "tls/privkey.pem").read_bytes() == made.key.read_bytes()


@pytest.mark.parametrize("missing", ["privkey.pem", "fullchain.pem"])
def test_hook_that_fails_changes_nothing(tmp_path, missing):
    """Half a pair is never put in place."""
    lineage = Lineage(tmp_path / "letsencrypt")
    first = lineage.renew()
    run_hook(tmp_path / "tls", RENEWED_LINEAGE=str(lineage.live))
    lineage.renew()
    (lineage.live / missing).unlink()
    done = run_hook(tmp_path / "tls", RENEWED_LINEAGE=str(lineage.live))

    assert done.returncode != 0 and missing in done.stderr
    assert leaf_der(tmp_path / "tls/fullchain.pem") == first
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == ["fullchain.pem", "privkey.pem"]


def test_hook_without_files_says_how_to_call_it(tmp_path):
    """Exit 2, and nothing is made."""
    done = run_hook(tmp_path / "tls")

    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert not (tmp_path / "tls").exists()


def test_status_and_metrics_have_every_tls_listener(tmp_path):
    """What a node says it shows is what it shows: the listeners that speak TLS, no more and no fewer."""
    node = NodeProcess(tmp_path / "home", **EVERY_TLS_LISTENER).start()
    try:
        views = node.ask("GET", "/admin/v1/status", token=node.token)[1]["certificates"]
        metrics = node.ask("GET", "/metrics", token=node.token)[1].splitlines()
        speak_tls = {name for name in node.ready["listeners"] if _speaks_tls(node.url(name))}
    finally:
        node.stop()
    ends = {line.split()[0]: float(line.split()[1]) for line in metrics if line.startswith("waystation_certificate_")}

    assert tuple(view["listener"] for view in views) == SETTINGS
    assert speak_tls == {*LISTENERS, "bsp_wss"}
    assert ends == {
        f'waystation_certificate_expiry_seconds{{listener="{view["listener"]}"}}': view["ends_s"] for view in views
    }


def _speaks_tls(url):
    if urlsplit(url).scheme == "udp":
        return False
    with contextlib.suppress(OSError, ssl.SSLError):
        return bool(shown_at(url))
    return False


def test_device_follows_a_running_node_to_its_next_authority(tmp_path, quick_looks, monkeypatch):
    """BHUMI-AUTHORITY: learnt while connected, switched to without a drop; a device that was off is told what to do."""
    home = Home(tmp_path / "home")
    home.ensure(datetime.datetime.now(datetime.UTC) - 3_600 * DAY)  # 50 days are left: made now, not switched to yet
    given = client_context(home.ca_path)

    def device(name):
        return RunningDevice(tmp_path / name, url, echo, tls=given)

    async def scenario():
        nonlocal url
        async with serving(home.path, configured(home.path, bhumi__tls="127.0.0.1:0")) as (server, _):
            url = server.operations.status()["listeners"]["bhumi"].replace("127.0.0.1", "localhost")
            async with device("on") as on:
                await on.listening()
                known = RelayAuthorities(on.state)
                await eventually(lambda: len(known.of(url)) == 2)
                monkeypatch.setattr(succession, "SWITCHED_AHEAD", 60 * DAY)
                monkeypatch.setattr(succession, "SHOWN_FOR", 0 * DAY)
                os.utime(home.cert_path)  # else the next look at what is due is tomorrow's
                await eventually(lambda: not home.next_ca_path.exists())
                dropped = [event for event in on.events if isinstance(event, Disconnected)]
            async with device("on") as again:
                await again.listening()
                kept = len(RelayAuthorities(again.state).of(url))
            async with device("off") as off:
                (refused, *_) = await off.until(Disconnected)
            return dropped, kept, refused.reason

    url = ""
    dropped, kept, reason = asyncio.run(scenario())

    assert (dropped, kept) == ([], 1)
    assert "certificate that is not trusted" in reason and "ask its operator for the tls/ca.pem of today" in reason
