"""Laws of questions and answers: what is taken for an answer, and what is not, whoever sends it."""

import asyncio

import pytest

from tests.sdk.merk.build import ALICE, BOB, CAROL, RelayServer, client, first
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.protocols.merk.messages import MessageType
from waystation.protocols.merk.payload.contents import Answer, Extended, Json, Raw, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, encrypted_frame, signed_frame
from waystation.sdk.errors import CannotAnswerError, ClosedError, KeyUnknownError, NotTakenError, UncertainError
from waystation.sdk.merk import asks as merk_asks
from waystation.sdk.merk.recipients import Recipients

A, B, C = (keys.signing.public for keys in (ALICE, BOB, CAROL))


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(30):
            return await scenario()

    return asyncio.run(bounded())


async def question_at(bob, count=1):
    """Return what Bob was asked."""
    return (await first(bob, count))[-1]


@pytest.mark.parametrize(
    ("asked", "said"), [("21 °C?", Text("yes")), (b"\x01", Raw(b"")), (Json.of({"n": 1}), Json("2"))]
)
def test_answer_is_returned_to_who_asked(asked, said):
    """The reply names the question, is read by its sender's own client, and is no message beside that."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            asking = asyncio.create_task(alice.ask(B, asked))
            question = await question_at(bob)
            sent = await bob.answer(question, said)
            reply = await asking
            return question, sent, reply, await sent.read(10), alice.waiting_count

    question, sent, reply, was_read, waiting = run(scenario)

    assert (reply.answers, reply.id, reply.sender, reply.content) == (question.id, sent.id, B, said)
    assert (question.answers, was_read, waiting) == (None, True, 0)


def test_many_questions_get_each_its_own_answer():
    """Answers that come in another order than the questions are not mixed up."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            asking = [asyncio.create_task(alice.ask(B, str(number))) for number in range(20)]
            for question in reversed(await first(bob, 20)):
                await bob.answer(question, f"{question.text} it is")
            return [reply.text for reply in await asyncio.gather(*asking)]

    assert run(scenario) == [f"{number} it is" for number in range(20)]


def test_answer_of_another_is_none():
    """Carol names Bob's question, whose id she has learnt: it is a message of Carol's, and Bob's own answer counts."""

    async def scenario():
        async with (
            RelayServer() as relay,
            client(relay) as alice,
            client(relay, BOB) as bob,
            client(relay, CAROL) as carol,
        ):
            asking = asyncio.create_task(alice.ask(B, "whose turn is it?"))
            question = await question_at(bob)
            await carol.answer(question._replace(sender=A), "mine")
            await eventually(lambda: alice.waiting_count == 1, "Carol's word")
            was_done = asking.done()
            await bob.answer(question, "yours")
            (stray,) = await first(alice)
            return was_done, (await asking).text, stray.sender, stray.answers == question.id

    assert run(scenario) == (False, "yours", C, True)


@pytest.mark.parametrize("form", ["legacy", "signed", "other id"])
def test_answer_that_is_not_bound_to_the_question_is_none(form):
    """What a relay could replay or have from elsewhere, and an answer to something else, leave the question open."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            asking = asyncio.create_task(alice.ask(B, "?"))
            question = await question_at(bob)
            at = b"o" * 16 if form == "other id" else question.id
            said = Extended(question.time_ms, b"n" * 16, Answer(at, Text("forged")))
            if form == "signed":
                frame = signed_frame(BOB.signing, A, said)
            else:
                inner = said.content.content if form == "legacy" else said
                secrets = {"ephemeral_secret": b"\x0e" * 32, "nonce": bytes(12)}
                frame = encrypted_frame(BOB.signing, A, ALICE.agreement_public, inner, **secrets)
            await next(iter(relay.connections.values())).send(frame)
            await bob.send(A, "behind it")
            await eventually(lambda: alice.waiting_count >= 1, "what is no answer")
            was_done = asking.done()
            await bob.answer(question, "true")
            return was_done, (await asking).text

    assert run(scenario) == (False, "true")


def test_late_answer_is_a_message_that_says_what_it_answers():
    """Who has given up gets it from messages(), and it is the answer to no later question."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            with pytest.raises(UncertainError, match=r"has not answered within 0\.2 s"):
                await alice.ask(B, "first", timeout_s=0.2)
            asking = asyncio.create_task(alice.ask(B, "second"))
            early, later = await first(bob, 2)
            await bob.answer(early, "to the first")
            await bob.answer(later, "to the second")
            (late,) = await first(alice)
            return (await asking).text, late.text, late.answers == early.id

    assert run(scenario) == ("to the second", "to the first", True)


def test_who_cannot_answer_is_not_asked():
    """A client of the original, known by its key alone, gets nothing; nor does somebody whom nobody knows."""

    async def scenario():
        recipients = Recipients()
        recipients.set_by_hand(B, BOB.agreement_public)
        async with RelayServer() as relay, client(relay, recipients=recipients) as alice:
            async with client(relay, BOB, extensions=False):
                with pytest.raises(CannotAnswerError, match="not known to use a client of waystation"):
                    await alice.ask(B, "?")
            with pytest.raises(KeyUnknownError):
                await alice.ask(C, "?")
            return relay.of_kind(MessageType.ENCRYPTED_DATA)

    assert run(scenario) == []


def test_question_that_was_not_delivered_ends_at_once():
    """Nobody waits for the answer of somebody whom the relay could not reach."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            async with client(relay, BOB) as bob:
                await alice.send(B, "are you there")
                await first(bob)
            with pytest.raises(NotTakenError, match="no node linked with yours has the recipient"):
                await alice.ask(B, "and now?", timeout_s=25)

    run(scenario)


def test_what_has_no_answer_is_refused():
    """A legacy or signed message, and a file, are refused with a sentence, and nothing leaves."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            await alice.send(B, "signed", mode=Mode.SIGNED)
            (signed,) = await first(bob)
            legacy = signed._replace(mode=Mode.ENCRYPTED, auth=Auth.LEGACY)
            for message, content in [(signed, "x"), (legacy, "x"), (legacy._replace(auth=Auth.BOUND), 5)]:
                with pytest.raises(LocalError):
                    await bob.answer(message, content)
            return relay.of_kind(MessageType.ENCRYPTED_DATA)

    assert run(scenario) == []


def test_questions_that_wait_are_bounded_and_end_with_the_client(monkeypatch):
    """One too many is refused, and what waits when the client closes says so."""
    monkeypatch.setattr(merk_asks, "ASKS_MAX", 2)

    async def scenario():
        async with RelayServer() as relay, client(relay, BOB) as bob:
            async with client(relay) as alice:
                asking = [asyncio.create_task(alice.ask(B, "?")) for _ in range(2)]
                await first(bob, 2)
                with pytest.raises(LocalError, match="2 questions wait"):
                    await alice.ask(B, "?")
            return await asyncio.gather(*asking, return_exceptions=True)

    assert [type(each) for each in run(scenario)] == [ClosedError, ClosedError]
