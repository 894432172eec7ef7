import io
import json
import re
import subprocess
import sys
import time

import pytest

from tests.cli.build import caller, in_a_thread
from tests.protocols.strata.client import test_bootstrap as bootstrap
from tests.sdk.strata.build import RelayServer

NOWHERE = "ws://127.0.0.1:1/strata"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a strata command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("strata", capfd)


@pytest.fixture
def relay():
    """The real relay machine on a loopback port, in a thread of its own."""
    with in_a_thread(RelayServer()) as url:
        yield url


def test_published_packet_is_read_back_and_got(run, relay):
    """Publish prints the id under which subscribe and get show the packet."""
    code, out, err = run("publish", "hello", "--relay", relay, "--json")
    published = json.loads(out)
    read = run("subscribe", "--no-follow", "--relay", relay, "--json")
    got = run("get", published["packet_id"], "--relay", relay, "--json")

    assert code == 0
    assert "Strata does not hide who talks to whom" in err
    assert [each["relay"] for each in published["receipts"]] == [relay]
    shown = [json.loads(line) for line in read[1].splitlines()]
    assert [each["packet"]["content"]["text"] for each in shown] == ["hello"]
    assert (got[0], json.loads(got[1])["packet"]) == (0, shown[0]["packet"])


def test_notice_is_shown_once(run, relay):
    """The metadata notice belongs to the first use of a folder."""
    run("publish", "hello", "--relay", relay)

    assert "does not hide" not in run("publish", "again", "--relay", relay)[2]


def test_terminal_is_not_steered_by_an_author(run, relay):
    """Control characters of a text are shown as what they are."""
    run("publish", "a\x1b[2Jb", "--relay", relay)
    code, out, _ = run("subscribe", "--no-follow", "--relay", relay)

    assert code == 0
    assert "\x1b" not in out
    assert "a\\x1b[2Jb" in out


@pytest.mark.parametrize("words", [("subscribe", "--no-follow"), ("get", "0x" + "11" * 32)])
def test_a_privacy_profile_that_cannot_be_kept_is_told(run, relay, words):
    """With one relay the shielded profile does not hold, for readers as for publishers."""
    _, out, err = run(*words, "--relay", relay, "--privacy", "shielded")

    assert "too few relays for the privacy profile" in err
    assert out == ""


def test_absent_packet_is_a_failure(run, relay):
    """Exit code 1, and JSON says that it was not found."""
    code, out, _ = run("get", "0x" + "11" * 32, "--relay", relay, "--json")

    assert (code, json.loads(out)) == (1, {"packet_id": "0x" + "11" * 32, "found": False})


@pytest.mark.parametrize(
    "words",
    [
        ("publish",),
        ("publish", ""),
        ("subscribe", "--author", "z6MkshortenedXY"),
        ("subscribe", "--since", "yesterday"),
        ("publish", "x", "--content", "{}"),
        ("publish", "--content", "[1]"),
        ("publish", "--content", "{"),
        ("publish", "x", "--reply-to", "0x12"),
        ("publish", "x", "--relay", "ftp://example"),
        ("get", "0x12"),
        ("relays", "add"),
        ("relays", "forget", NOWHERE),
        ("keys",),
        ("keys", "import", "abc"),
        ("uri", "strata://relay?v=2&http=http://a"),
    ],
)
def test_impossible_requests_are_usage_errors(run, words):
    """Exit code 2 and one sentence on stderr."""
    code, out, err = run(*words)

    assert code == 2
    assert out == ""
    assert err.splitlines()[-1].startswith("waystation: ")


def test_relays_are_kept_with_score_and_reason(run, relay):
    """What was used is in the table; pin, unpin and forget change it."""
    run("publish", "hello", "--relay", relay)
    listed = json.loads(run("relays", "--json")[1])
    pinned = json.loads(run("relays", "pin", relay, "--json")[1])
    unpinned = json.loads(run("relays", "unpin", relay, "--json")[1])
    forgotten = json.loads(run("relays", "forget", relay, "--json")[1])

    assert (listed["url"], listed["state"], listed["pinned"]) == (relay, "probation", False)
    assert listed["relay_id"].startswith("did:strata:z6Mk")
    assert "1 of 1 connects" in listed["why"]
    assert (pinned["pinned"], unpinned["pinned"], forgotten["known"]) == (True, False, False)
    assert run("relays", "--json")[1] == ""


def test_added_relay_is_used_without_being_named(run, relay):
    """A relay URI makes a relay known; nothing is connected by that."""
    code, out, err = run("relays", "add", relay)
    table = run("relays")[1]
    published = run("publish", "hello")

    assert code == 0
    assert "not encrypted" not in err  # nothing leaves this machine
    assert "never tried" in out
    assert relay in table
    assert published[0] == 0


def test_probe_counts_in_the_table(run, relay):
    """One connect more, good or bad."""
    good = run("relays", "probe", relay, "--json")
    bad = run("relays", "probe", NOWHERE, "--json")

    assert (good[0], bad[0], run("relays", "probe", NOWHERE)[0]) == (0, 1, 1)
    assert json.loads(good[1])["why"].startswith("1 of 1 connects")
    assert json.loads(bad[1])["why"].startswith("0 of 1 connects")
    assert [json.loads(line)["url"] for line in run("relays", "--json")[1].splitlines()] == [relay]


def test_keys_are_made_shown_exported_and_imported(run, tmp_path):
    """An exported seed makes the same identity elsewhere; what is there is not overwritten."""
    made = json.loads(run("keys", "create", "--json")[1])
    exported = json.loads(run("keys", "export", "--json")[1])
    seed = run("keys", "import", exported["seed"], "--home", "other", "--json")
    taken = json.loads(seed[1])
    again = run("keys", "create")

    assert made["did"] == exported["did"] == taken["did"]
    assert "seed" not in made
    assert "a seed alone" in seed[2]
    assert (tmp_path / "strata-me" / "strata.key").stat().st_mode & 0o777 == 0o600
    assert again[0] == 2


def test_rotated_key_signs_under_the_old_name(run, relay):
    """After a rotation packets are signed by the new key, and readers know it."""
    before = json.loads(run("keys", "create", "--json")[1])
    after = json.loads(run("keys", "rotate", "--relay", relay, "--json")[1])
    published = run("publish", "hello", "--relay", relay)
    read = run("subscribe", "--type", "POST", "--no-follow", "--relay", relay, "--json")

    assert after["did"] == before["did"]
    assert after["public_key"] != before["public_key"]
    assert after["relays"] == [relay]
    assert published[0] == 0
    assert json.loads(read[1])["packet"]["author_id"] == before["did"]


def test_second_device_signs_with_the_key_that_was_added(run, relay):
    """Its own key, under the name of the first, once `keys add` has said so at relays."""
    mine = json.loads(run("keys", "create", "--json")[1])
    run("keys", "create", "--home", "phone")
    phone = json.loads(run("keys", "export", "--home", "phone", "--json")[1])
    added = json.loads(run("keys", "add", phone["public_key"], "--relay", relay, "--json")[1])
    words = (mine["did"], added["added"], phone["seed"])
    run("keys", "import", *words, "--home", "both")
    published = run("publish", "hello", "--home", "both", "--relay", relay)
    read = run("subscribe", "--type", "POST", "--no-follow", "--relay", relay, "--json")

    assert added["relays"] == [relay]
    assert published[0] == 0
    assert json.loads(read[1])["packet"]["author_id"] == mine["did"]


def test_rotation_without_a_relay_says_how_it_goes_on(run, relay):
    """The new key waits, the note names folder and command, publishing repeats it, and the command ends it."""
    before = json.loads(run("keys", "create", "--json")[1])
    failed = run("keys", "rotate", "--relay", NOWHERE)
    published = run("publish", "hello", "--relay", relay)
    after = json.loads(run("keys", "rotate", "--relay", relay, "--json")[1])
    note = "waits in strata-me/next; run: waystation strata keys rotate"

    assert failed[0] == 1
    assert note in failed[2]
    assert note in published[2]
    assert (after["did"], after["relays"]) == (before["did"], [relay])
    assert after["key_id"] != before["key_id"]
    assert "note:" not in run("keys", "--json")[2]


def test_uri_is_made_of_an_address(run):
    """The URI leads back to the same relay, with its label."""
    made = json.loads(run("uri", "wss://relay.example/strata", "--label", "An Example", "--json")[1])
    read = json.loads(run("uri", made["uri"], "--json")[1])

    assert made == read
    assert (made["ws"], made["http"], made["label"]) == (
        "wss://relay.example/strata",
        "https://relay.example",
        "An Example",
    )


def test_relay_that_cannot_be_reached_is_a_failure(run):
    """It is said in one sentence."""
    code, _, err = run("subscribe", "--no-follow", "--relay", NOWHERE)

    assert code == 1
    assert "127.0.0.1:1" in err


def test_relays_of_a_signed_document_are_added(run, tmp_path):
    """A document signed enough is listed, and its relays stand in the table with the DID that they must bear."""
    now_s = int(time.time())
    signed = bootstrap.document(*bootstrap.KEEPERS[:3], issued_at=now_s, expires_at=now_s + 100)
    pinned = {
        issuer: {"public_key": keeper.public.hex(), "diversity_tags": keeper.tags}
        for issuer, keeper in bootstrap.PINNED.items()
    }
    (tmp_path / "document.json").write_text(json.dumps(signed))
    (tmp_path / "keepers.json").write_text(json.dumps(pinned))
    words = ("bootstrap", "document.json", "--gatekeepers", "keepers.json", "--add", "--json")
    code, out, _ = run(*words)
    listed = json.loads(run("relays", "--json")[1])

    [relay] = json.loads(out)["relays"]
    assert code == 0
    assert (listed["url"], listed["relay_id"]) == (relay["url"], relay["relay_id"])
    assert run(*words)[0] == 0
    (tmp_path / "document.json").write_text(json.dumps(signed | {"signatures": signed["signatures"][:2]}))
    assert run(*words)[0] == 1


def test_export_is_a_pipe_to_import(run, relay, monkeypatch):
    """The secret line alone is on stdout, and import takes it from stdin or from the command line, after a rotation."""
    run("keys", "create")
    run("keys", "rotate", "--relay", relay)
    exported = run("keys", "export")
    monkeypatch.setattr("sys.stdin", io.StringIO(exported[1]))
    piped = json.loads(run("keys", "import", "-", "--home", "piped", "--json")[1])
    typed = json.loads(run("keys", "import", *exported[1].split(), "--home", "typed", "--json")[1])

    assert len(exported[1].splitlines()) == 1
    assert "whoever has this is you" in exported[2]
    assert piped == typed == json.loads(run("keys", "--json")[1])


def test_secret_is_not_repeated(run):
    """A mistyped seed is in no message."""
    for words in (("zz" * 32,), ("a", "b", "zz" * 32), ("a", "zz" * 32)):
        code, out, err = run("keys", "import", *words)

        assert (code, out) == (2, "")
        assert "zz" not in err


def test_mistyped_relay_changes_nothing(run, relay):
    """It is neither remembered nor used by the next command."""
    run("publish", "hello", "--relay", relay)
    failed = run("publish", "hello", "--relay", NOWHERE)
    published = json.loads(run("publish", "again", "--json")[1])

    assert failed[0] == 1
    assert [each["relay"] for each in published["receipts"]] == [relay]
    assert published["failures"] == {}


def test_what_is_shown_can_be_pasted(run, relay):
    """Packet id and author stand on the screen in full and are taken by get, --reply-to and --author."""
    run("publish", "hello", "--relay", relay)
    shown = run("subscribe", "--no-follow", "--relay", relay)[1]
    author = re.search(r"did:strata:\w+", shown).group()
    packet_id = re.search(r"0x[0-9a-f]{64}", shown).group()
    answered = run("publish", "yes", "--reply-to", packet_id, "--relay", relay)
    of_author = run("subscribe", "--no-follow", "--author", author, "--since", "2020-01-01", "--relay", relay)[1]

    assert answered[0] == 0
    assert [line.strip() for line in of_author.splitlines() if line.startswith("  ")][1::2] == ["hello", "yes"]
    assert "hello" in run("get", packet_id, "--relay", relay)[1]


def test_probation_is_no_news_to_who_has_chosen(run, relay):
    """A relay that was named, or is the only one, is not talked about."""
    named = run("publish", "hello", "--relay", relay)
    only = run("publish", "again")
    run("relays", "add", NOWHERE)
    several = run("publish", "and again")

    assert "probation" not in named[2] + only[2]
    assert "note: only relays on probation are left" in several[2]


def test_listing_makes_no_folder(run, tmp_path):
    """Looking at relays of a home that is not there leaves it so."""
    listed = run("relays", "--home", "nothere")
    forgotten = run("relays", "forget", NOWHERE, "--home", "nothere")

    assert (listed[0], forgotten[0]) == (0, 2)
    assert not (tmp_path / "nothere").exists()


def test_reading_resumes_by_name(run, relay):
    """The next run with the same name prints what is new, and with other filters is refused."""
    words = ("subscribe", "--no-follow", "--resume", "bot", "--relay", relay)
    run("publish", "one", "--relay", relay)
    first = run(*words)[1]
    run("publish", "two", "--relay", relay)
    second = run(*words)[1]

    assert ("one" in first, "one" in second, "two" in second) == (True, False, True)
    assert run(*words)[1] == ""
    assert run(*words, "--type", "POST")[0] == 2


def test_subscription_outlives_a_relay_that_is_down(run, relay):
    """What cannot be reached at the start is said on stderr, and the reader goes on with who is there."""
    run("publish", "hello", "--relay", relay)
    code, out, err = run("subscribe", "--count", "1", "--relay", NOWHERE, "--relay", relay)

    assert code == 0
    assert "hello" in out
    assert "nobody listens on ws://127.0.0.1:1/strata; is the relay running?; trying again" in err


@pytest.mark.parametrize("follow", ["--follow", "--no-follow"])
def test_reader_of_the_output_may_leave(run, relay, tmp_path, follow):
    """As in `| head -1`: the command ends, and says nothing."""
    for number in range(3):
        run("publish", f"{number} " + "hello " * 20_000, "--relay", relay)
    words = ("strata", "subscribe", follow, "--type", "POST", "--relay", relay, "--json")
    with subprocess.Popen(
        [sys.executable, "-c", "from waystation.cli import main; main()", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True,
    ) as reader:  # fmt: skip
        assert reader.stdout.read(20).startswith('{"packet": ')
        reader.stdout.close()
        try:
            reader.wait(20)
        finally:
            reader.kill()
        said = reader.stderr.read()

    assert said == ""
