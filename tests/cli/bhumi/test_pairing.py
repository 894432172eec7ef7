import json
from dataclasses import replace

import pytest

from tests.cli.bhumi.test_commands import Listening, relay, run
from waystation.protocols.bhumi.payload.invite import decode_invite, encode_invite
from waystation.protocols.bhumi.payload.pairing import PairedSuite

__all__ = ["relay", "run"]


def listed(run, *words):
    """Return the documents that a command prints."""
    return [json.loads(line) for line in run(*words, "--json")[1].splitlines()]


def test_token_is_all_that_is_needed(run, relay):
    """Relay, suite and end are in the token: neither `accept` nor `send` needs an option, and `peers` shows suite-3."""
    listener = Listening("alice", relay, "--echo")
    token = run("invite", "--home", "alice", "--alias", "bob")[1].strip()
    accepted = run("accept", token, "--home", "bob", "--alias", "alice")
    sent = run("send", "alice", "hi", "--home", "bob")
    joined, asked = listener.next(), listener.next()

    assert accepted[0] == 0 and "--relay" not in accepted[2]
    assert sent == (0, "hi\n", "")
    assert (joined["event"], joined["legacy"], asked["legacy"]) == ("joined", False, False)
    (peer,) = listed(run, "peers", "--home", "bob")
    assert (peer["e2e"], peer["legacy"], peer["allow"], peer["blocked"]) == ("suite-3", False, None, False)
    assert listener.stop() == 0


@pytest.mark.parametrize(
    ("words", "seconds"),
    [(("--expires", "30min"), 1_800), (("--expires", "2d"), 172_800), (("--expires", "never"), None)],
)
def test_expires(run, words, seconds):
    """An end is a time from now, or there is none."""
    document = json.loads(run("invite", *words, "--json")[1])
    invite = decode_invite(document["token"])
    (waiting,) = listed(run, "invites")

    assert document["expires"] == waiting["expires"] == (invite.expires_s or None)
    assert (seconds is None) is (invite.expires_s == 0)
    assert seconds is None or invite.expires_s - waiting["created"] in {seconds - 1, seconds}


@pytest.mark.parametrize(
    "words", [("--expires", "0d"), ("--expires", "soon"), ("--e2e", "suite-2"), ("--allow", "a\nb")]
)
def test_impossible_invites(run, words):
    """What cannot be invited with is a sentence and exit code 2; no invite is made."""
    code, out, err = run("invite", *words)

    assert (code, out) == (2, "")
    assert err.startswith("waystation: ")


def test_suite_4(run):
    """--e2e suite-4 makes a token for devices that prefer AES."""
    assert decode_invite(run("invite", "--e2e", "suite-4")[1].strip()).suite is PairedSuite.AES_CTR


def test_legacy_invite_says_what_it_costs(run):
    """--legacy makes the token of the first version, and stderr says what a relay can do with it."""
    code, out, err = run("invite", "--legacy", "--relay", "tls://relay.example:8443")

    assert (code, len(out.strip())) == (0, 86)
    assert "a relay that carries its use can pair in the place of its holder" in err
    assert "--relay tls://relay.example:8443" in err


def test_late_token_is_refused_at_home(run):
    """A token whose end has come is refused before anything is sent, though its relay is away."""
    token = encode_invite(replace(decode_invite(run("invite")[1].strip()), expires_s=1_000_000_000))
    code, _, err = run("accept", token, "--home", "bob")

    assert code == 1
    assert "the invitation ended on 2001-09-09" in err


def test_invites_are_listed_and_cancelled(run):
    """`invites` names those that wait, with role and end, `--cancel` removes them, and an unknown name is said."""
    run("invite", "--alias", "bob", "--allow", "led,text")
    run("invite", "--alias", "eve", "--legacy", "--expires", "never")
    code, out, _ = run("invites")
    cancelled = run("invites", "--cancel", "bob")
    left = listed(run, "invites")
    unknown = run("invites", "--cancel", "bob")

    assert code == 0 and "may send led, text" in out and "ends in 6 d 23 h" in out
    assert "never ends  legacy" in out
    assert cancelled[0] == 0 and cancelled[1].startswith("cancelled bob")
    assert [(each["alias"], each["legacy"], each["expires"]) for each in left] == [("eve", True, None)]
    assert unknown[0] == 2 and "no invite is called 'bob'" in unknown[2]


def test_roles_blocks_and_unpairing_work_while_listening(run, relay):
    """A role refuses with its reason; a changed role, a block and an unpairing count at once for the next request."""
    listener = Listening("alice", relay, "--echo")
    token = run("invite", "--home", "alice", "--alias", "bob", "--allow", "reading")[1].strip()
    run("accept", token, "--home", "bob", "--alias", "alice")
    listener.next()
    refused = run("send", "alice", "--command", "led", "--home", "bob")
    denied = listener.next()
    changed = listed(run, "peers", "bob", "--allow", "reading,led", "--home", "alice")
    allowed = run("send", "alice", "--command", "led", "--home", "bob")
    blocked = run("block", "bob", "--home", "alice")
    shown = run("peers", "--home", "alice")[1]
    unblocked = listed(run, "unblock", "bob", "--home", "alice")
    unpaired = listed(run, "unpair", "bob", "--home", "alice")
    gone = run("unpair", "bob", "--home", "alice")

    assert refused[0] == 1 and "this peer may not send 'led'" in refused[2]
    assert (denied["event"], denied["reason"]) == ("denied", "this peer may not send 'led'")
    assert changed[0]["allow"] == ["led", "reading"] and allowed[0] == 0
    assert blocked[:2] == (0, blocked[1]) and blocked[1].startswith("blocked bob (")
    assert "may send led, reading" in shown and shown.rstrip().endswith("blocked")
    assert (unblocked[0]["status"], unpaired[0]["status"]) == ("unblocked", "unpaired")
    assert gone[0] == 2 and listed(run, "peers", "--home", "alice") == []
    assert listener.stop() == 0


@pytest.mark.parametrize("allow", [("*", None), ("", []), ("text", ["text"])])
def test_allow_is_lifted_or_emptied(run, relay, allow):
    """* permits everything, an empty text nothing."""
    listener = Listening("alice", relay)
    token = run("invite", "--home", "alice", "--alias", "bob", "--allow", "led")[1].strip()
    run("accept", token, "--home", "bob")

    assert listed(run, "peers", "bob", "--allow", allow[0], "--home", "alice")[0]["allow"] == allow[1]
    assert listener.stop() == 0


def test_allow_needs_a_peer(run):
    """--allow without a peer changes nothing and says how it is written."""
    run("invite")
    code, _, err = run("peers", "--allow", "led")

    assert code == 2 and "peers PEER --allow" in err
