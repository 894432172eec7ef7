"""Laws of ``waystation bsp group``."""

import json

import pytest

from tests.cli.build import caller


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("bsp", capfd)


def test_group_is_joined_elsewhere_by_one_line(run):
    """The line that ``new`` gives makes another home a member of the very same group."""
    new = json.loads(
        run("group", "new", "talk", "--format", "deps_v1", "--descriptor", "ab", "--home", "a", "--json")[1]
    )
    joined = json.loads(run("group", "join", new["join"], "--name", "ours", "--home", "b", "--json")[1])
    listed = run("group", "list", "--home", "b")[1]

    assert joined == new | {"name": "ours"}
    assert new["id"][:8] in listed
    assert new["join"] in listed


def test_group_is_left_with_its_messages(run):
    """After ``leave`` the group is gone, and joining again finds nothing of it."""
    new = json.loads(run("group", "new", "talk", "--json")[1])
    run("add", "--group", "talk", "--body", "x")
    left = json.loads(run("group", "leave", "talk", "--json")[1])
    gone = run("group", "list", "--json")[1]
    run("group", "join", new["join"], "--name", "talk")

    assert (left["id"], gone) == (new["id"], "")
    assert run("list", "--group", "talk", "--json")[1] == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("new", "talk"), "another group of the name"),
        (("new", "x", "--format", "chess"), "no format 'chess'"),
        (("new", "x", "--descriptor", "zz"), "--descriptor is hexadecimal"),
        (("new", "x" * 65), "at most 64"),
        (("join", "talk"), "not a group"),
        (("leave", "nowhere"), "no group 'nowhere'"),
    ],
)
def test_impossible_group_is_told(run, words, why):
    """What cannot be is told in one sentence, with exit code 2."""
    run("group", "new", "talk")
    code, _, err = run("group", *words)

    assert code == 2
    assert why in err


def test_group_is_not_joined_again_with_another_format(run):
    """What the messages of a group mean does not change under its members; nothing is changed."""
    new = json.loads(run("group", "new", "talk", "--format", "deps_v1", "--json")[1])
    code, _, err = run("group", "join", new["join"].replace("deps_v1", "opaque"), "--name", "other")
    (listed,) = [json.loads(line) for line in run("group", "list", "--json")[1].splitlines()]

    assert (code, "in this group already, with format deps_v1" in err) == (2, True)
    assert (listed["format"], listed["name"]) == ("deps_v1", "talk")


def test_group_keeps_its_name_when_it_is_joined_again_without_one(run):
    """``join`` without --name changes nothing of a group that is there."""
    new = json.loads(run("group", "new", "talk", "--json")[1])
    again = json.loads(run("group", "join", new["join"], "--json")[1])

    assert again == new
    assert json.loads(run("group", "list", "--json")[1])["name"] == "talk"
