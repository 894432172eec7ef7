"""Laws of cli.bans, against a node in a process of its own."""

import json
from typing import NamedTuple

import pytest

from tests.cli.build import caller
from tests.server.build import NodeProcess, key_pair
from waystation.cli.bans import seconds_of
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52

KEY = key_pair(5).public


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = NodeProcess(tmp_path_factory.mktemp("bans") / "home").start()
    yield running
    assert running.stop() == 0


class Said(NamedTuple):
    """What a command ended with."""

    exit_code: int
    output: str
    error: str


@pytest.fixture
def bans(node, capfd):
    """Return what runs ``waystation bans`` on the node's home."""
    call = caller("bans", capfd)
    return lambda *words: Said(*call(*words, "--home", str(node.home)))


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::/64"),
        (encode_id52(KEY), encode_id52(KEY)),
        (KEY.hex(), encode_id52(KEY)),
    ],
)
def test_ban_is_listed_and_lifted_by_what_is_shown(bans, subject, shown):
    """The list has the spelling that other commands print, the reason and both times."""
    before = bans()
    added = bans("add", subject, "--reason", "it floods", "--for", "24h")
    listed = bans()
    lifted = bans("lift", shown)

    assert before.output == "nobody is banned\n"
    assert (added.exit_code, added.output) == (0, f"{subject} is banned for 24h\n")
    assert listed.output.startswith(shown)
    assert all(word in listed.output for word in ("until ", "since ", "it floods"))
    assert (lifted.exit_code, lifted.output) == (0, f"{shown} is not banned any more\n")
    assert bans("list").output == "nobody is banned\n"


def test_ban_without_an_end_is_for_good(bans):
    """--for is left out."""
    added = bans("add", "192.0.2.9", "--reason", "x")
    listed = json.loads(bans("--json").output)
    lifted = json.loads(bans("lift", "192.0.2.9", "--json").output)

    assert added.output == "192.0.2.9 is banned for good\n"
    assert [(ban["subject"], ban["expires_us"]) for ban in listed["bans"]] == [("address:192.0.2.9", None)]
    assert lifted == {"ok": True}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("add", "bob", "--reason", "x"), 2, "neither an IP address, nor a network such as"),
        (("add", "192.0.2.1/24", "--reason", "x"), 2, "host bits"),
        (("add", "192.0.2.1", "--reason", "x", "--for", "1 day"), 2, "such as 30m, 24h or 7d"),
        (("add", "192.0.2.1", "--reason", "x", "--for", "99999999w"), 2, "from 1 to 315360000"),
        (("add", "0.0.0.0/0", "--reason", "x"), 2, "--force"),
        (("lift", "192.0.2.1"), 1, "there is no such ban"),
    ],
)
def test_mistakes_are_sentences(bans, words, code, says):
    """Each names the way out, and nothing is banned."""
    refused = bans(*words)

    assert (refused.exit_code, says in refused.error) == (code, True), refused.error
    assert bans().output == "nobody is banned\n"


def test_force_bans_this_machine(bans):
    """Who means it can."""
    added = bans("add", "127.0.0.0/8", "--reason", "x", "--force")
    lifted = bans("lift", "127.0.0.0/8")

    assert (added.exit_code, lifted.exit_code) == (0, 0)


def test_options_may_stand_before_the_command(node, capfd):
    """The node that is named there is the one that is asked, not that of this folder."""
    call = caller("bans", capfd)
    answers = [
        call("--home", str(node.home), "--json", *words)
        for words in (("add", "192.0.2.3", "--reason", "x"), ("list",), ("lift", "192.0.2.3"))
    ]

    assert [code for code, _, _ in answers] == [0, 0, 0]
    assert [json.loads(text)["ok"] for _, text, _ in answers] == [True] * 3


def test_home_without_a_node_says_what_to_do(tmp_path, capfd):
    """Nobody is asked."""
    code, _, error = caller("bans", capfd)("--home", str(tmp_path))

    assert code != 0
    assert "waystation serve" in error


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_durations_are_numbers_with_a_letter(text, seconds):
    """Seconds to weeks."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0h", "h", "1.5h", "-1h", "1y", "24", "٣h", "1h30m"])
def test_other_durations_are_refused(text):
    """Nothing is guessed."""
    with pytest.raises(LocalError, match="is no duration"):
        seconds_of(text)
