"""Laws of protocols.bsp.mailbox_rounds."""

from waystation.protocols.bsp.mailbox.sweep import Sweep

GROUPS = {b"a": [b"1", b"2", b"3"], b"b": [], b"c": [b"4", b"5"]}


def looked_at(rounds, count_max, groups=GROUPS):
    """Return what one step looks at."""
    seen = []
    rounds.step(count_max, lambda group: groups[group], lambda group, message: seen.append(group + message))
    return seen


def test_every_message_is_looked_at_once():
    """Steps of any size look at all of a round, each once, and at no more than they may."""
    for count_max in range(1, 8):
        rounds = Sweep()
        rounds.begin(list(GROUPS))
        steps = []
        while not rounds.is_over:
            steps.append(looked_at(rounds, count_max))

        assert [each for step in steps for each in step] == [b"c4", b"c5", b"a1", b"a2", b"a3"]
        assert max(map(len, steps)) <= count_max


def test_nothing_to_do_is_over_at_once():
    """Without a round, and in one without messages."""
    rounds = Sweep()
    before = (rounds.is_over, looked_at(rounds, 5))
    rounds.begin([b"b"])
    is_begun = not rounds.is_over

    assert before == (True, [])
    assert (is_begun, looked_at(rounds, 5), rounds.is_over) == (True, [], True)


def test_added_group_comes_next():
    """It is looked at behind the group that is under way, also when there is no round."""
    rounds = Sweep()
    rounds.begin([b"c", b"a"])
    first = looked_at(rounds, 1)
    rounds.add(b"c")
    rest = looked_at(rounds, 9)
    rounds.add(b"c")

    assert (first, rest) == ([b"a1"], [b"a2", b"a3", b"c4", b"c5", b"c4", b"c5"])
    assert looked_at(rounds, 9) == [b"c4", b"c5"]


def test_what_goes_meanwhile_is_no_trouble():
    """Looking may remove messages: the round goes by what there was when it came to the group."""
    kept = {b"a": [b"1", b"2", b"3"]}
    rounds = Sweep()
    rounds.begin([b"a"])
    rounds.step(9, lambda group: kept[group], lambda group, message: kept[group].remove(message))

    assert kept == {b"a": []}


def test_added_groups_are_no_round():
    """Whoever adds groups can tell them from a round, which may begin in between."""
    rounds = Sweep()
    rounds.add(b"a")
    added = (rounds.is_over, rounds.is_whole)
    looked_at(rounds, 1)
    rounds.begin([b"c"])
    begun = (rounds.is_over, rounds.is_whole)
    seen = looked_at(rounds, 9)

    assert (added, begun, (rounds.is_over, rounds.is_whole)) == ((False, False), (False, True), (True, False))
    assert seen == [b"a2", b"a3", b"c4", b"c5"]
