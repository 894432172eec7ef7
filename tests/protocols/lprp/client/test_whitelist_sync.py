"""Laws of protocols.lprp.whitelist_sync, against a host that really keeps a list."""

import random

import pytest

from tests.protocols.lprp.build_client import EASY, US, Stage
from tests.protocols.lprp.build_dumb_host import DumbHost, Net
from waystation.core.errors import LocalError
from waystation.protocols.lprp.client.events import (
    RequestOutcome,
    WhitelistAgreed,
    WhitelistDiffers,
    WhitelistFailed,
    WorkWanted,
)
from waystation.protocols.lprp.client.whitelist_sync import REFUSALS_MAX, SILENCES_MAX
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.whitelist import comparison, read_update


def keys(*numbers):
    return frozenset(bytes([number >> 8, number & 255]) + b"k" * 30 for number in numbers)


def tenant_net(**how):
    """A host that knows us as a tenant, and a client that holds nothing but the key."""
    settings = how.pop("settings", None)
    options = {name: how.pop(name) for name in ("known_whitelist",) if name in how}
    net_how = {name: how.pop(name) for name in ("seed", "loss", "doubling", "delay_ms") if name in how}
    host = DumbHost(**how)
    host.tenants.add(US.public)
    return Net(host, settings=settings, **net_how, **options)


def changes(net):
    """Commands that the client sends from now on, in order."""
    said = []
    original = net.host.hear

    def hear(data, wall_ms):
        command = Command(int.from_bytes(data[136:144], "big"))
        said.append((command, data[144:]))
        return original(data, wall_ms)

    net.host.hear = hear
    return said


def want(net, wanted, duration_ms=3_000):
    net.stage.client.want_whitelist(wanted, net.stage.now)
    net.run(duration_ms)


def test_known_set_is_changed_by_toggles():
    """From a set that both know, only the difference is sent."""
    net = tenant_net(known_whitelist=keys(1, 2, 3))
    net.host.whitelist = keys(1, 2, 3)
    said = changes(net)
    want(net, keys(2, 3, 4))

    assert net.host.whitelist == keys(2, 3, 4)
    assert [set(read_update(payload).keys) for _, payload in said] == [set(keys(1, 4))]
    assert net.told(WhitelistAgreed) == [WhitelistAgreed(keys(2, 3, 4))]
    assert net.stage.client.whitelist == keys(2, 3, 4)


def test_set_that_is_there_already_is_not_sent_again():
    """Known and equal: agreed at once, without a word to the host."""
    net = tenant_net(known_whitelist=keys(1))
    want(net, keys(1))

    assert net.told(WhitelistAgreed) == [WhitelistAgreed(keys(1))]
    assert net.said_count == 0


def test_256_keys_go_in_steps_of_ten():
    """The largest list takes 26 updates, one after the other."""
    net = tenant_net(known_whitelist=frozenset())
    wanted = keys(*range(256))
    said = changes(net)
    want(net, wanted, 20_000)

    assert net.host.whitelist == wanted
    assert [len(read_update(payload).keys) for _, payload in said] == [10] * 25 + [6]


def test_every_update_may_cost_work():
    """Updates soon after each other are worked for, and still arrive."""
    net = tenant_net(charges=True, known_whitelist=frozenset())
    want(net, keys(*range(25)))

    assert net.host.whitelist == keys(*range(25))
    assert len({event.challenge for event in net.told(WorkWanted)}) == 3


def test_unknown_set_is_found_by_asking():
    """Nobody knows what the host has: it is asked about the wanted and the empty set before anything is changed."""
    net = tenant_net()
    said = changes(net)
    want(net, keys(1))

    assert [payload for _, payload in said[:2]] == [comparison(keys(1)), comparison(frozenset())]
    assert net.host.whitelist == keys(1)
    assert Command.CLEAR_WHITELIST not in [command for command, _ in said]


def test_set_that_nobody_guesses_is_cleared_and_built_anew():
    """The host has something else altogether: 808, then toggles from nothing."""
    net = tenant_net(known_whitelist=keys(1))
    net.host.whitelist = keys(7, 8, 9)
    said = changes(net)
    want(net, keys(1, 2))

    assert net.host.whitelist == keys(1, 2)
    assert [command for command, _ in said].count(Command.CLEAR_WHITELIST) == 1
    assert net.told(WhitelistAgreed) == [WhitelistAgreed(keys(1, 2))]


def test_lost_answer_is_made_up_for_by_asking():
    """An update that the host made and whose answers were all lost: found out, not undone, and not made twice."""
    net = tenant_net(known_whitelist=frozenset())
    answers = net.host.hear
    net.host.hear = lambda data, wall_ms: (answers(data, wall_ms), [])[1]
    want(net, keys(1, 2), 80_000)
    net.host.hear = answers
    said = changes(net)
    net.run(80_000)

    assert net.host.whitelist == keys(1, 2)
    assert {payload for _, payload in said} <= {comparison(keys(1, 2))}
    assert net.told(WhitelistAgreed) == [WhitelistAgreed(keys(1, 2))]


def test_lost_answer_in_the_middle_goes_on_from_there():
    """The first of two updates was made and its answers lost: found out, and only the second is sent."""
    net = tenant_net(known_whitelist=frozenset())
    answers = net.host.hear
    net.host.hear = lambda data, wall_ms: (answers(data, wall_ms), [])[1]
    want(net, keys(*range(15)), 80_000)
    net.host.hear = answers
    said = changes(net)
    net.run(20_000)

    assert net.host.whitelist == keys(*range(15))
    assert Command.CLEAR_WHITELIST not in [command for command, _ in said]
    assert [len(payload) for _, payload in said].count(32 + 5 * 32) == 1


def test_question_without_an_answer_is_asked_again():
    """Three silences, but never two in a row: each question is put again, and nothing is cleared or given up."""
    stage = Stage()
    stage.client.want_whitelist(keys(1), stage.now)
    asked = []
    for command in (None, Command.WHITELIST_DIFFERS, None, Command.WHITELIST_DONE, None, Command.WHITELIST_DONE):
        packet = stage.said()
        asked.append(packet.payload)
        if command is None:
            stage.pass_ms(78_999)
            stage.now_ms += 1
            stage.client.wake(stage.now)
        else:
            stage.reply(command, packet)

    wanted, nothing = comparison(keys(1)), comparison(frozenset())
    assert asked == [wanted, wanted, nothing, nothing, asked[4], wanted]
    assert read_update(asked[4]).keys == tuple(keys(1))
    assert stage.told(WhitelistAgreed) == [WhitelistAgreed(keys(1))]


def test_every_answer_ends_a_silence():
    """Three questions, each unanswered at first and then answered with 408: the host is not silent, only slow."""
    stage = Stage(known_whitelist=keys(5))
    stage.client.want_whitelist(keys(1), stage.now)
    stage.reply(Command.WHITELIST_DIFFERS, stage.said())
    for _ in range(3):
        stage.said()
        stage.pass_ms(78_999)
        stage.now_ms += 1
        stage.client.wake(stage.now)
        stage.reply(Command.WHITELIST_DIFFERS, stage.said())

    assert stage.told(WhitelistFailed) == []
    assert stage.said().command is Command.CLEAR_WHITELIST


def test_silent_host_ends_in_failure():
    """So many requests in a row without an answer, and the owner is told; nothing goes on."""
    net = tenant_net(known_whitelist=frozenset())
    net.host.hear = lambda data, wall_ms: []
    want(net, keys(1), 79_000 * SILENCES_MAX + 100)

    assert net.told(WhitelistFailed) == [WhitelistFailed(RequestOutcome.UNANSWERED)]
    assert net.stage.client.whitelist is None
    assert net.stage.client.deadline() is None


def test_host_that_always_differs_ends_in_failure():
    """408 to every update and every question: cleared and tried so many times, then told."""
    net = tenant_net(known_whitelist=frozenset())
    net.host._hash = lambda keys: b"never"
    said = changes(net)
    want(net, keys(1), 20_000)

    assert net.told(WhitelistFailed) == [WhitelistFailed(RequestOutcome.REFUSED)]
    assert [command for command, _ in said].count(Command.CLEAR_WHITELIST) == REFUSALS_MAX - 1
    assert net.stage.client.deadline() is None


def test_each_wish_has_its_own_patience():
    """After a failure the next wish may be refused as often as the first."""
    net = tenant_net(known_whitelist=frozenset())
    net.host._hash = lambda keys: b"never"
    want(net, keys(1), 20_000)
    said = changes(net)
    want(net, keys(2), 20_000)

    toggles = [payload for command, payload in said if payload[32:] == next(iter(keys(2)))]
    assert len(toggles) == REFUSALS_MAX
    assert len(net.told(WhitelistFailed)) == 2


def test_host_that_agrees_to_questions_only_ends_in_failure():
    """A host that has each set we ask about and takes no update cannot keep us busy."""
    stage = Stage(known_whitelist=frozenset())
    stage.client.want_whitelist(keys(1), stage.now)
    count = 0
    while said := stage.sent():
        for packet in said:
            count += 1
            is_question = packet.payload == comparison(frozenset()) or packet.command is Command.CLEAR_WHITELIST
            stage.reply(Command.WHITELIST_DONE if is_question else Command.WHITELIST_DIFFERS, packet)

    assert stage.told(WhitelistFailed) == [WhitelistFailed(RequestOutcome.REFUSED)]
    assert count < 20


def test_work_given_up_ends_in_failure_and_in_doubt():
    """The owner stops the search: nobody knows what the host has."""
    stage = Stage(known_whitelist=frozenset())
    stage.client.want_whitelist(keys(1), stage.now)
    demand = stage.reply(Command.WHITELIST_DEMANDS_WORK, stage.said())
    stage.client.work_stopped(demand.signature, stage.now)

    assert stage.told(WhitelistFailed) == [WhitelistFailed(RequestOutcome.WORK_FAILED)]
    assert stage.client.whitelist is None


def test_last_wish_holds():
    """Three wishes in a row while the first is under way: the host ends with the last one."""
    net = tenant_net(known_whitelist=frozenset())
    for wanted in (keys(1), keys(2), keys(3, 4)):
        net.stage.client.want_whitelist(wanted, net.stage.now)
    net.run(3_000)

    assert net.host.whitelist == keys(3, 4)
    assert net.told(WhitelistAgreed)[-1] == WhitelistAgreed(keys(3, 4))


def test_clear_empties_whatever_is_there():
    """808 without a question, answered as a wish for nothing."""
    net = tenant_net()
    net.host.whitelist = keys(7, 8)
    said = changes(net)
    net.stage.client.clear_whitelist(net.stage.now)
    net.run(1_000)

    assert net.host.whitelist == frozenset()
    assert [(command, len(payload)) for command, payload in said] == [(Command.CLEAR_WHITELIST, 64)]
    assert net.told(WhitelistAgreed) == [WhitelistAgreed(frozenset())]


def test_wish_after_clear_starts_from_nothing():
    """Cleared, then filled: the host ends with the wish."""
    net = tenant_net()
    net.host.whitelist = keys(7, 8)
    net.stage.client.clear_whitelist(net.stage.now)
    want(net, keys(1))

    assert net.host.whitelist == keys(1)


@pytest.mark.parametrize(
    ("has", "told"),
    [(keys(1), WhitelistAgreed(keys(1))), (keys(2), WhitelistDiffers(keys(1)))],
)
def test_compare_asks_and_changes_nothing(has, told):
    """One question about the known set; the answer is told, the host's list stays."""
    net = tenant_net(known_whitelist=keys(1))
    net.host.whitelist = has
    said = changes(net)
    net.stage.client.compare_whitelist(net.stage.now)
    net.run(2_000)

    assert net.events == [told]
    assert [payload for _, payload in said] == [comparison(keys(1))]
    assert net.host.whitelist == has
    assert net.stage.client.whitelist == (keys(1) if has == keys(1) else None)


def test_compare_with_nothing_known_asks_about_nothing():
    """Neither wanted nor known: the empty set is meant."""
    net = tenant_net()
    net.stage.client.compare_whitelist(net.stage.now)
    net.run(2_000)

    assert net.events == [WhitelistAgreed(frozenset())]


def test_compare_after_a_new_lease_asks_about_what_was_known():
    """What the host had before is the best guess, though a new lease makes it one."""
    net = tenant_net(known_whitelist=keys(1))
    net.host.whitelist = keys(1)
    net.stage.client.ask_lease(net.stage.now)
    net.run(2_000)
    assert net.stage.client.whitelist is None
    net.stage.client.compare_whitelist(net.stage.now)
    net.run(2_000)

    assert net.told(WhitelistAgreed) == [WhitelistAgreed(keys(1))]
    assert net.stage.client.whitelist == keys(1)


def test_compare_with_a_new_wish_under_way_doubts_nothing_else():
    """A host that differs from the wish still has what it agreed to: toggles go on from there."""
    net = tenant_net(known_whitelist=keys(1))
    net.host.whitelist = keys(1)
    said = changes(net)
    net.stage.client.compare_whitelist(net.stage.now)
    net.stage.client.compare_whitelist(net.stage.now)
    want(net, keys(1, 2))

    assert net.told(WhitelistDiffers) == [WhitelistDiffers(keys(1, 2))]
    assert net.host.whitelist == keys(1, 2)
    assert Command.CLEAR_WHITELIST not in [command for command, _ in said]


def test_compare_that_nobody_answers_fails():
    """One question, no answer: told, and not asked again."""
    net = tenant_net()
    net.host.hear = lambda data, wall_ms: []
    net.stage.client.compare_whitelist(net.stage.now)
    net.run(80_000)

    assert net.events == [WhitelistFailed(RequestOutcome.UNANSWERED)]
    assert net.stage.client.deadline() is None


def test_wish_waits_for_the_lease():
    """A visitor has no whitelist: while a lease is asked for, the wish waits, and then it is met."""
    stage = Stage()
    stage.client.ask_lease(stage.now)
    ask = stage.said()
    stage.client.want_whitelist(keys(1), stage.now)
    assert stage.pass_ms(900) == []
    stage.reply(Command.LEASE_GRANTED, ask)

    assert stage.said().command is Command.UPDATE_WHITELIST


def test_wish_waits_while_the_lease_is_refused():
    """Between a 404 and the next try we are no tenant either, and the host would not listen."""
    stage = Stage()
    stage.client.ask_lease(stage.now)
    stage.reply(Command.LEASE_REFUSED, stage.said())
    stage.client.want_whitelist(keys(1), stage.now)

    assert stage.sent() == []
    stage.client.let_go(stage.now)
    assert stage.said().command is Command.UPDATE_WHITELIST


def test_new_lease_looks_at_the_list_again():
    """A lease that ran out took its list along: after a new one the wish is checked, and met once more."""
    net = tenant_net(known_whitelist=frozenset())
    want(net, keys(1, 2))
    net.host.whitelist = frozenset()
    net.stage.client.ask_lease(net.stage.now)
    net.run(3_000)

    assert net.host.whitelist == keys(1, 2)
    assert len(net.told(WhitelistAgreed)) == 2


def test_restarted_client_without_memory_finds_its_way():
    """Whatever the host has, a client that knows nothing brings it to what is wanted."""
    for number, has in enumerate([keys(), keys(1), keys(1, 2), keys(5, 6, 7)]):
        net = tenant_net(seed=number)
        net.host.whitelist = has
        want(net, keys(1, 2))

        assert net.host.whitelist == keys(1, 2)


@pytest.mark.parametrize("seed", range(4))
def test_lists_agree_over_loss_doubling_and_reordering(seed):
    """A third of all datagrams lost, some doubled, all delayed: each wish told as agreed is what the host has."""
    net = tenant_net(seed=seed, loss=0.3, doubling=0.2, delay_ms=400, charges=seed % 2 == 1, settings=EASY)
    rng = random.Random(seed)
    for _ in range(3):
        wanted = keys(*rng.sample(range(40), rng.randrange(25)))
        net.stage.client.want_whitelist(wanted, net.stage.now)
        for _ in range(60):
            net.run(10_000, step_ms=200)
            if net.told(WhitelistAgreed)[-1:] == [WhitelistAgreed(wanted)]:
                break

        assert net.host.whitelist == wanted
    assert net.told(WhitelistFailed) == []


@pytest.mark.parametrize("bad", [[bytes(32)], [b"short"], [number.to_bytes(32, "big") for number in range(1, 258)]])
def test_list_that_cannot_be_is_refused_at_once(bad):
    """The zero key, a key of another length, 257 keys: the caller's mistake, and the last wish stands."""
    stage = Stage(known_whitelist=keys(1))
    with pytest.raises(LocalError):
        stage.client.want_whitelist(bad, stage.now)

    assert stage.sent() == []
    assert stage.client.whitelist == keys(1)
