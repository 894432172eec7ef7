"""Laws of server.status.trouble: one sentence for each thing that is wrong."""

from waystation.server.status.disk import disk_trouble
from waystation.server.status.trouble import LOST_S, TROUBLES_MAX, troubles

NOW_S = 1_000_000
SOUND = {
    "draining": False,
    "disk": {"free_bytes": 1 << 40},
    "damaged": {"now": {}},
    "policy": {"trouble": ""},
    "upstreams": {"other": {"trouble": "", "state": "active"}},
    "written": {"journal": {"rows_lost": 0, "lost_ago_s": None}},
}


FULL = {"free_bytes": 0, "store_bytes": 1, "journal_bytes": 2, "archive_bytes": 3}


def certificate(left_s, *, soon=True):
    """Return what the status says of a certificate with so much time left."""
    view = {"cert": "c.pem", "ends": "1970-01-12T13:46:40+00:00", "ends_s": NOW_S + left_s, "listener": "bsp.tls"}
    return view | {"ends_soon": soon}


def said(clock=(), *, fault=None, **changes):
    """Return the sentences of a sound status with these changes."""
    return troubles(SOUND | changes, list(clock), NOW_S, fault=fault)


def test_sound_node_has_no_trouble():
    """Nothing is said where nothing is wrong, also by a part without certificates, and of one that lives six days."""
    assert said() == said(certificates=[certificate(6 * 86_400, soon=False)]) == []


def test_each_trouble_has_its_sentence():
    """The gravest come first."""
    sentences = said(
        ["the clock is off"],
        fault={"kind": "full", "error": "the disk is full", "since": NOW_S},
        draining=True,
        disk=FULL,
        certificates=[certificate(60), certificate(60)],
        policy={"trouble": "signed by another key"},
        upstreams={"a": {"trouble": "refused", "state": "backup"}, "b": {"trouble": "", "state": "blacklisted"}},
        written={"archive": {"rows_lost": 3, "lost_ago_s": 7.2}},
    )

    assert sentences == [
        "since 1970-01-12 13:46:40 UTC nothing is stored, and what needs it is refused: the disk is full",
        "the node is draining: it takes no new connection and ends soon",
        *disk_trouble(FULL),
        "the certificate c.pem ends on 1970-01-12; renew it, and the node takes it over",
        "the clock is off",
        "the published policy is not in force: signed by another key",
        "the upstream a is backup: refused",
        "the upstream b is blacklisted: its score is too low",
        "the archive has lost 3 rows since the start, the last 7 s ago; look at the disk and the log",
    ]


def test_lost_rows_are_said_for_an_hour():
    """What is over and was said for long enough is a number of the metrics alone."""
    (sentence,) = said(written={"journal": {"rows_lost": 80, "lost_ago_s": LOST_S - 1}})

    assert "has lost 80 rows since the start, the last 59 min ago;" in sentence
    assert said(written={"journal": {"rows_lost": 80, "lost_ago_s": LOST_S}}) == []


def test_store_that_was_deleted_under_the_node_has_a_way_out():
    """What the node has open is written by an orderly end alone."""
    (sentence,) = said(fault={"kind": "gone", "error": "the log was deleted", "since": NOW_S})

    assert "the log was deleted; put it back as it was, or stop the node in order (SIGTERM)" in sentence
    assert "do not kill it" in sentence


def test_many_troubles_are_cut():
    """The last sentence counts those that are left out."""
    sentences = said(upstreams={str(number): {"trouble": "gone", "state": "backup"} for number in range(100)})

    assert len(sentences) == TROUBLES_MAX
    assert sentences[-1] == "and 69 more; see /admin/v1/status"


def test_certificate_that_is_over_is_said_so():
    """It has ended, and no listener is trusted with it."""
    assert said(certificates=[certificate(-1)])[0].startswith("the certificate c.pem ended on")


def test_refused_reload_is_a_trouble():
    """The operator believes that the new file is in force."""
    (sentence,) = troubles(SOUND, [], NOW_S, fault=None, reload_refused="node.drain_ms: -1 is too small")

    assert sentence.endswith("in force: node.drain_ms: -1 is too small")


def test_fault_of_a_proxy_is_a_trouble():
    """Its sentence comes from who counts them."""
    assert troubles(SOUND, [], NOW_S, fault=None, proxies=["bhumi is lost"]) == ["bhumi is lost"]


def test_damaged_rows_are_said_by_table():
    """The operator learns what is lost, and what to do (NODE-ROT)."""
    [sentence] = said(damaged={"now": {"bans": 1, "packets": 10}})

    assert sentence == (
        "rows of the store are not as they were written, and are left out (1 of bans, 10 of packets); "
        "look at the disk, run `waystation check --deep`, and restore a backup or have them sent again"
    )
