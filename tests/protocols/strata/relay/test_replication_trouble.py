"""Laws of strata.replica about upstreams that do not let us in, make us wait, or must be left."""

from tests.protocols.strata.build import BOB, NOW, did, key, post
from tests.protocols.strata.pair import Node, Script, event, join, reads, run

DAY = 86_400
UP = key(1)


def reader():
    """Return a relay that reads UP."""
    return Node(key=key(0), upstreams=reads(UP))


def failures(down):
    """Return how many connections to UP have failed running."""
    return down.relay._replication._replicas[did(UP)].upstream_score.standing.failures_running


def test_auth_refused_is_a_failure_and_asks_for_nothing():
    """Without AUTH_OK nothing is subscribed; in the end the connection is given up, as one failure."""
    refuses = {"type": "ERROR", "code": "unauthenticated", "detail": "no_capability"}
    script = Script(UP)
    challenge = {"type": "AUTH_CHALLENGE", "challenge": "A" * 44, "server_id": did(UP), "expires_at": NOW}
    script.on["AUTH"] = lambda message: [refuses | {"client_msg_id": message["client_msg_id"]}, challenge]
    down = reader()
    link = join(down, script)
    while link.is_open:
        down.pass_time(1)
        run(link)

    assert {message["type"] for message in script.heard} == {"AUTH"}
    assert len(script.heard) <= 4
    assert down.relay.upstreams(down.now)[did(UP)].trouble.startswith("it does not authenticate us: unauthenticated")
    assert failures(down) == 1


def test_an_upstream_that_never_greets_is_left():
    """Whoever has not let us in after a minute does not do so."""
    script = Script(UP)
    script.challenges = False
    down = reader()
    link = join(down, script)
    down.pass_time(59)
    run(link)
    assert link.is_open
    down.pass_time(1)
    run(link)

    assert link.end() == ("upstream_failed", 1000)
    assert failures(down) == 1


def test_another_relay_at_the_address_is_not_believed():
    """A server with another DID gets no signature from us and is left at once."""
    script = Script(BOB)
    down = reader()
    link = join(down, _named(script))

    assert script.heard == []
    assert link.end() == ("upstream_failed", 1000)
    assert down.ids() == []


def _named(script):
    """Return an upstream that is dialled as UP and names itself differently."""

    class Other:
        key = UP
        out, held, closed = script.out, script.held, script.closed
        accept, hear, drop = script.accept, script.hear, script.drop

    return Other()


def test_rate_limited_waits_and_asks_again():
    """A refused SUBSCRIBE is sent again, not before the time it was told; the score knows of it."""
    script = Script(UP, event(post(), NOW, "k"))
    answer, refused = script.on["SUBSCRIBE"], []

    def limited(message):
        if refused:
            return answer(message)
        refused.append(message)
        fields = {"subscription_id": message["subscription_id"], "retry_after": 20}
        return [{"type": "ERROR", "code": "rate_limited", "reason": "later"} | fields]

    script.on["SUBSCRIBE"] = limited
    down = reader()
    link = join(down, script)
    poor = down.score_of(UP)[0]
    down.pass_time(19)
    run(link)
    assert len(script.asked()) == 1
    down.pass_time(6)
    run(link)

    assert len(script.asked()) == 2
    assert down.ids() == [post().body["packet_id"]]
    down.pass_time(DAY)
    assert down.score_of(UP)[0] > poor


def test_unreachable_upstream_is_never_banned_for_it():
    """The operator named it, and it may only be down: however often it fails, it is dialled again (STRATA-REPLICA)."""
    down = reader()
    for _ in range(40):
        down.relay.upstream_failed(did(UP), down.now)

    assert down.rest_of(UP) == 0


def test_shutdown_is_nobodys_failure():
    """Our own end closes with 1001 and leaves the upstream's standing as it was, let in or not."""
    script = Script(UP)
    script.challenges = False
    down = reader()
    link = join(down, script)
    down.relay.shut(down.now)
    down.settle()

    assert link.end() == ("shutdown", 1001)
    assert failures(down) == 0


def test_a_ban_by_score_ends_the_connection():
    """An upstream that is bad for ten minutes running is left while it is connected."""
    down = reader()
    for number in range(2):
        join(down, Script(UP, event(post(f"{number}").body | {"version": "one"}, NOW)))
    script = Script(UP)
    link = join(down, script)
    for _ in range(12):
        script.say(link.up_peer, {"type": "ERROR", "code": "internal_error", "reason": "again"})
        run(link)
        down.pass_time(60)
        run(link)

    assert link.end() == ("upstream_failed", 1000)
    assert down.rest_of(UP) > 0


def test_an_upstream_with_another_name_is_said_to_be_one():
    """A relay_id that is not the upstream's DID shows in its view, in words that name the setting."""
    script = Script(UP)
    script.challenges = False
    down = reader()
    link = join(down, script)
    challenge = {"type": "AUTH_CHALLENGE", "challenge": "A" * 44, "server_id": did(key(5)), "expires_at": NOW}
    script.say(1, challenge)
    run(link)
    view = down.relay.upstreams(down.now)[did(UP)]

    assert not view.reads
    assert "relay_id" in view.trouble


def test_an_upstream_that_serves_has_no_trouble():
    """Once it lets us in the view says so, and how far we have come."""
    up = Node(key=UP, replicate_allow=[did(key(0))])
    up.fill(2)
    down = reader()
    join(down, up)
    view = down.relay.upstreams(down.now)[did(UP)]

    assert (view.reads, view.trouble, view.received_at) == (True, "", NOW)
