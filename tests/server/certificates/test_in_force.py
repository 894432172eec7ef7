"""Laws of server.certificates.in_force: what listeners show, and how files that change are taken over."""

import asyncio
import datetime
import ssl

import pytest
from structlog.testing import capture_logs

from tests.server.certificates.build import leaf_der, write_pair
from waystation.core.errors import HostError
from waystation.server.certificates.in_force import Certificates
from waystation.server.config.load import load_config
from waystation.server.home import Home
from waystation.server.hosted import TlsRules
from waystation.transport.tls import leaf_sha256

RULES = TlsRules()
DAY = datetime.timedelta(days=1)


def now():
    """Return the host's time."""
    return datetime.datetime.now(datetime.UTC)


class Shown:
    """Certificates of a node whose one setting names ``files``."""

    def __init__(self, folder, files=None, **settings):
        self.home = Home(folder / "home")
        self.home.ensure()
        named = {} if files is None else {"node.cert": str(files.cert), "node.key": str(files.key)}
        self.settings = named | {name.replace("__", "."): value for name, value in settings.items()}
        self.changes = 0
        self.failure = None
        """Raised once the certificates have changed, as by a mistake of ours."""
        self.config = load_config(None, {}, self.settings)
        self.certificates = Certificates(self.config, self.home, self._on_change)
        self.certificates.use(self.config)
        self.context = self.certificates.context("bhumi", RULES)

    def _on_change(self):
        if self.failure is not None:
            raise self.failure
        self.changes += 1

    def look(self, at=None):
        """Look once."""
        self.certificates.look(at or now())

    @property
    def leaf(self):
        """What a handshake over memory shows now, in DER."""
        return shake_hands(self.context)


def shake_hands(context):
    """Return the certificate that a context shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    client = asking.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(8):
        for side in [*waiting]:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert waiting == []
    return client.getpeercert(binary_form=True)


def events(capsys):
    """Return what was logged."""
    return capsys.readouterr().out


def test_renewed_pair_is_taken_over_without_a_signal(tmp_path, capsys):
    """The next handshake shows it, whoever depends on it hears of it, and the log has the new end."""
    files = write_pair(tmp_path / "own")
    shown = Shown(tmp_path, files)
    before = shown.leaf
    shown.look()
    write_pair(tmp_path / "own", now=now() + DAY)
    shown.look()
    shown.look()

    assert before != shown.leaf == leaf_der(files.cert)
    assert shown.changes == 1
    assert shown.certificates.leaf_sha256("bsp") == leaf_sha256(files.cert)
    said = events(capsys)
    assert said.count("certificate.renewed") == 1
    assert f"{now() + 366 * DAY:%Y-%m-%d}" in said


def test_half_written_pair_waits_for_its_other_half(tmp_path, capsys):
    """NODE-TAKEOVER: between the two files of a renewal the old pair is shown, and nothing is said about it."""
    files = write_pair(tmp_path / "own")
    fresh = write_pair(tmp_path / "new")
    shown = Shown(tmp_path, files)
    old = shown.leaf
    files.cert.write_bytes(fresh.cert.read_bytes())
    shown.look()
    between = shown.leaf
    files.key.write_bytes(fresh.key.read_bytes())
    shown.look()

    assert (between, shown.leaf) == (old, leaf_der(fresh.cert))
    assert "certificate.broken" not in events(capsys)


@pytest.mark.parametrize("damage", ["other key", "junk", "gone"])
def test_broken_pair_is_logged_once_and_the_old_one_stays(tmp_path, capsys, damage):
    """However often it is looked at; a pair that fits ends it."""
    files = write_pair(tmp_path / "own")
    other = write_pair(tmp_path / "other")
    shown = Shown(tmp_path, files)
    old = shown.leaf
    if damage == "gone":
        files.cert.unlink()
    else:
        files.key.write_bytes(other.key.read_bytes() if damage == "other key" else b"junk")
    for _ in range(5):
        shown.look()
    said = events(capsys)
    while_broken = shown.leaf, shown.certificates.leaf_sha256("bhumi")
    write_pair(tmp_path / "own")
    shown.look()

    assert said.count("certificate.broken") == 1
    assert while_broken[0] == old and shown.leaf == leaf_der(files.cert) != old
    assert events(capsys).count("certificate.renewed") == 1


def test_link_that_points_elsewhere_is_a_change(tmp_path):
    """As in the live folder of certbot: the names stay, the files behind them are others."""
    first, second = write_pair(tmp_path / "archive1"), write_pair(tmp_path / "archive2")
    live = tmp_path / "live"
    live.mkdir()
    files = first._replace(cert=live / "fullchain.pem", key=live / "privkey.pem")
    files.cert.symlink_to(first.cert)
    files.key.symlink_to(first.key)
    shown = Shown(tmp_path, files)
    for link, to in zip(files, second, strict=True):
        (link.with_suffix(".new")).symlink_to(to)
        link.with_suffix(".new").replace(link)
    shown.look()

    assert shown.leaf == leaf_der(second.cert)


def test_one_broken_certificate_holds_up_no_other(tmp_path):
    """Each pair of files is judged by itself."""
    node, own = write_pair(tmp_path / "node"), write_pair(tmp_path / "own")
    shown = Shown(tmp_path, node, bsp__cert=str(own.cert), bsp__key=str(own.key))
    bsp = shown.certificates.leaf_sha256("bsp")
    own.cert.write_text("junk")
    write_pair(tmp_path / "node")
    shown.look()

    assert shown.leaf == leaf_der(node.cert)
    assert shown.certificates.leaf_sha256("bsp") == bsp


def test_refused_reload_changes_no_certificate(tmp_path):
    """One of two cannot be used: neither is shown."""
    node, other = write_pair(tmp_path / "node"), write_pair(tmp_path / "other")
    shown = Shown(tmp_path, node)
    broken = {"bsp.cert": str(tmp_path / "gone"), "bsp.key": str(other.key)}
    with pytest.raises(HostError, match="cannot use the certificate"):
        shown.certificates.use(
            load_config(None, {}, {"node.cert": str(other.cert), "node.key": str(other.key)} | broken)
        )

    assert shown.leaf == leaf_der(node.cert)


def test_listener_that_opens_later_shows_what_was_read(tmp_path):
    """All tables show the same reading of the files, also one whose context is made after they have changed."""
    files = write_pair(tmp_path / "own")
    shown = Shown(tmp_path, files)
    leaf = shown.leaf
    write_pair(tmp_path / "own")
    files.key.unlink()

    assert shake_hands(shown.certificates.context("bsp", RULES)) == leaf


def test_local_leaf_is_renewed_30_days_ahead_and_taken_over(tmp_path, capsys):
    """In the year of a running node: nothing for 334 days, then a new leaf for the same names and clients."""
    shown = Shown(tmp_path)
    old, ca = shown.leaf, shown.home.ca_path.read_bytes()
    shown.look(now() + 334 * DAY)
    still = shown.leaf
    shown.look(now() + 336 * DAY)

    assert (still, shown.leaf) == (old, leaf_der(shown.home.cert_path))
    assert shown.leaf != old
    assert shown.home.ca_path.read_bytes() == ca
    assert [entry["kind"] for entry in shown.certificates.view()] == ["local", "local"]
    assert events(capsys).count("certificate.renewed") == 1


def test_home_of_an_earlier_version_gets_an_authority_with_a_key(tmp_path, capsys):
    """Without ca.key it serves as before, says so once, and goes over to an authority of the node's before the end."""
    home = Home(tmp_path / "home")
    home.ensure()
    home.ca_key_path.unlink()
    shown = Shown(tmp_path)
    at_start = events(capsys)
    old, both = shown.leaf, shown.certificates.authorities("bhumi")
    for hours in range(0, 48, 6):
        shown.look(now().replace(hour=0) + 330 * DAY + datetime.timedelta(hours=hours))
    still = shown.leaf
    shown.look(now() + 336 * DAY)

    assert at_start.count("certificate.keyless") == at_start.count("certificate.authority_made") == 1
    assert "next-ca.pem counts from" in at_start and "ca.key is not there" in at_start
    said = events(capsys)
    assert (said.count("certificate.ends_soon"), said.count("certificate.authority_switched")) == (0, 1)
    assert still == old != shown.leaf == leaf_der(home.cert_path)
    assert both[1:] == shown.certificates.authorities("bhumi") and len(both) == 2


def test_next_authority_is_news_for_the_protocols(tmp_path):
    """Whoever shows it hears of it when it appears, although no certificate has changed; the view has it, too."""
    shown = Shown(tmp_path)
    before = shown.certificates.authorities("bhumi")
    shown.look(now() + 3_290 * DAY)  # the leaf is signed anew
    shown.home.next_ca_path.unlink()
    shown.look(now() + 3_291 * DAY)
    changes = shown.changes
    shown.look(now() + 3_291 * DAY)
    (view, _) = shown.certificates.view()

    assert changes == shown.changes > 0
    assert shown.certificates.authorities("bhumi")[:1] == before and len(before) == 1
    assert view["next_ca"] == str(shown.home.next_ca_path)
    assert datetime.datetime.fromisoformat(view["next_from"]) > now() + 3_600 * DAY


def test_given_certificate_shows_no_authority(tmp_path):
    """Its issuer is the operator's matter."""
    shown = Shown(tmp_path, write_pair(tmp_path / "own"))

    assert shown.certificates.authorities("bhumi") == ()
    assert {(view["next_ca"], view["next_from"]) for view in shown.certificates.view()} == {(None, None)}


def test_renewal_that_the_disk_refuses_is_logged_once(tmp_path, capsys):
    """The node goes on with the old leaf and tries again; once it works the next failure is news again."""
    shown = Shown(tmp_path)
    old, key = shown.leaf, shown.home.ca_key_path.read_bytes()
    shown.home.ca_key_path.write_text("junk")
    for _ in range(3):
        shown.look(now() + 340 * DAY)
    said = events(capsys)
    while_broken = shown.leaf
    shown.home.ca_key_path.write_bytes(key)
    shown.look(now() + 340 * DAY)

    assert said.count("] certificate.not_renewed") == 1
    assert while_broken == old != shown.leaf


def test_view_has_every_tls_listener(tmp_path):
    """Listener, file, end, names and kind, for what is shown and not for what lies on the disk."""
    files = write_pair(tmp_path / "own", names=["relay.example.org", "192.0.2.1"])
    shown = Shown(tmp_path, files, bhumi__upstream_listen="0.0.0.0:4")
    files.cert.write_text("junk")
    shown.look()
    views = shown.certificates.view()

    assert [view["listener"] for view in views] == ["bhumi.tls", "bhumi.upstream_listen", "bsp.tls"]
    assert {(view["cert"], view["kind"], *view["names"]) for view in views} == {
        (str(files.cert), "given", "relay.example.org", "192.0.2.1")
    }
    ends = datetime.datetime.fromisoformat(views[0]["ends"])
    assert ends.timestamp() == views[0]["ends_s"]
    assert [view["ends_soon"] for view in views] == [False] * 3
    assert datetime.timedelta(days=364) < ends - now() < datetime.timedelta(days=366)


def test_listeners_of_one_table_and_rule_share_a_context(tmp_path):
    """Different rules have a context each, and both are kept up to date."""
    files = write_pair(tmp_path / "own")
    shown = Shown(tmp_path, files)
    strict = shown.certificates.context("bhumi", TlsRules(only_tls13=True))
    write_pair(tmp_path / "own")
    shown.look()

    assert shown.certificates.context("bhumi", RULES) is shown.context is not strict
    assert shake_hands(strict) == shown.leaf == leaf_der(files.cert)


def test_watching_outlives_an_error_of_one_look(tmp_path):
    """An error that nobody expects is logged once, and the next look is taken."""
    files = write_pair(tmp_path / "own")
    shown = Shown(tmp_path, files)
    pauses = []

    async def pause(_seconds):
        pauses.append(shown.changes)
        if len(pauses) == 4:
            raise asyncio.CancelledError
        write_pair(tmp_path / "own")
        shown.failure = RuntimeError("unexpected") if len(pauses) < 3 else None

    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        asyncio.run(shown.certificates.watch(pause))

    assert pauses == [0, 0, 0, 1]
    assert [line["exc_info"] for line in lines if line["event"] == "certificate.look_failed"] == [True]
