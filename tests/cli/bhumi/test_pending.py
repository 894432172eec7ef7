"""Laws of ``waystation bhumi pending``: what has no outcome is listed, asked for, and cancelled; errors lead there."""

import json
from pathlib import Path

from tests.cli.bhumi.test_commands import Listening, relay, run
from waystation.sdk.bhumi import BhumiState

__all__ = ["relay", "run"]


def paired(run, relay, program):
    """Return a listening device "alice" whose answers a program gives, with which "bob" is paired."""
    listener = Listening("alice", relay, "--exec", program)
    token = run("invite", "--home", "alice", "--alias", "bob")[1].strip()
    assert run("accept", token, "--home", "bob", "--alias", "alice")[0] == 0
    return listener


def listed(run, *words):
    """Return the documents that the command prints for bob."""
    return [json.loads(line) for line in run("pending", "--home", "bob", "--json", *words)[1].splitlines()]


def test_request_in_doubt_is_listed_and_asked_for(run, relay):
    """The error of `send` names the command, which lists the request, and with --ask prints its answer."""
    listener = paired(run, relay, 'sh -c "sleep 1.5; echo late"')
    code, _, err = run("send", "alice", "hi", "--home", "bob", "--timeout", "0.7")
    (waiting,) = listed(run)
    asked = run("pending", "--ask", "--home", "bob")
    left = run("pending", "--home", "bob")
    listener.stop()

    assert code == 1 and "pending --ask --home bob` asks what became of it" in err
    assert (waiting["alias"], waiting["kind"], waiting["working"]) == ("alice", "message", False)
    assert asked == (0, "alice: the message was answered: late\n", "") or asked[1].startswith("alice: the message was")
    assert left == (0, "", "every request has an outcome\n")


def test_cancelled_request_is_not_asked_for(run, relay):
    """By its name or its peer's; what is not there is a sentence, and the permission stays spent."""
    listener = paired(run, relay, "sleep 60")
    run("send", "alice", "hi", "--home", "bob", "--timeout", "0.7")
    state = BhumiState(Path("bob"))
    before = state.find_peer("alice").rights
    state.close()
    unknown = run("pending", "--cancel", "nobody", "--home", "bob")
    (waiting,) = listed(run)
    cancelled = run("pending", "--cancel", waiting["request"], "--home", "bob")
    again = run("pending", "--cancel", "alice", "--home", "bob")
    listener.stop()

    assert unknown[0] == again[0] == 2 and "no request is called 'nobody'" in unknown[2]
    assert cancelled == (0, f"cancelled {waiting['request']} to alice: it may have been handled\n", "")
    assert listed(run) == []
    state = BhumiState(Path("bob"))
    assert state.find_peer("alice").rights == before
    state.close()


def test_sender_that_was_unpaired_learns_it(run, relay):
    """The relay knows none of its permissions: the sentence says what that means and what to do."""
    listener = paired(run, relay, "cat")
    run("unpair", "bob", "--home", "alice")
    err = ""
    while "takes none of the permissions" not in err:
        code, out, err = run("send", "alice", "hi", "--home", "bob")
        assert (code, out) == (1, "") or "hi" in out
    listener.stop()

    assert "It has unpaired or blocked this identity, or lost its state; ask for a new invite" in err


def test_ask_and_cancel_exclude_each_other(run, relay):
    """One of them at a time."""
    paired(run, relay, "cat").stop()
    code, _, err = run("pending", "--ask", "--cancel", "alice", "--home", "bob")

    assert code == 2 and "exclude each other" in err
