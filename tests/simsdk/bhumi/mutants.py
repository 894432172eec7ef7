"""Mistakes that an SDK could have, each as a change to the real one by pytest's ``monkeypatch``."""

import contextlib

from waystation.core.errors import HostError
from waystation.sdk.bhumi.answers import Answers, Done
from waystation.sdk.bhumi.device import Device
from waystation.sdk.bhumi.dialect import Dialect, read_answer
from waystation.sdk.bhumi.sender import Sender
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.reading import AnswerReader, Opened
from waystation.sdk.bhumi.state import BhumiState
from waystation.sdk.errors import AnswerError


def repeats_what_is_in_doubt(patch):
    """A sender takes every content for one that may arrive twice."""
    send = Sender.send
    patch.setattr(Sender, "send", lambda *args, **options: send(*args, **{**options, "repeatable": True}))


def takes_weaker_requests(patch):
    """A device forgets what its peers were paired in."""
    weakest = Answers._weakest_of
    patch.setattr(Answers, "_weakest_of", lambda self, grant: Dialect.NONE if grant.peer else weakest(self, grant))


def takes_invites_without_their_secret(patch):
    """A device lets a legacy handshake use an invite that has a secret."""
    weakest = Answers._weakest_of
    patch.setattr(Answers, "_weakest_of", lambda self, grant: weakest(self, grant) if grant.peer else Dialect.NONE)


def answers_anew(patch):
    """A device keeps neither the answer nor that its preimage was spent."""
    answered = BhumiState.answered

    def forgets(self, preimage, peer, response, issued, joined):
        grant = self.grant_of(preimage)
        answered(self, preimage, peer, response, issued, joined)
        if grant is not None and grant.peer is not None:
            with self.transaction():
                self.run("DELETE FROM last_response WHERE preimage = ?", preimage)
                self._issue(peer, (preimage,))

    patch.setattr(BhumiState, "answered", forgets)


def handles_side_by_side(patch):
    """A device does not see that a request is under way."""

    async def answer_to(self, delivered):
        asked = self._open(delivered.preimage or self._state.find_by_hint(delivered.payload[:8]), delivered.payload)
        return asked if isinstance(asked, Done) else await self._work(asked)

    patch.setattr(Answers, "answer_to", answer_to)


def reads_weaker_answers(patch):
    """A sender takes an answer in whatever form it comes."""
    read = AnswerReader.read

    def reads(self, pending, data):
        for dialect in Dialect:
            with contextlib.suppress(AnswerError):
                if dialect.is_legacy:
                    return Opened(dialect, read_answer(dialect, self._secrets, pending.peer, pending.preimage, data))
        return read(self, pending, data)

    patch.setattr(AnswerReader, "read", reads)


def takes_earlier_answers_for_this_one(patch):
    """A sender takes the answer to a former request under the same preimage for one to this request."""
    read = AnswerReader.read

    def reads(self, pending, data):
        opened = read(self, pending, data)
        return Opened(opened.dialect, opened.answer)

    patch.setattr(AnswerReader, "read", reads)


def keeps_dead_connections(patch):
    """A sender goes on with a connection that has ended."""
    patch.setattr(Channel, "is_open", property(lambda self: self._opened is not None))


def never_dials_again(patch):
    """A device stays away once its relay has cut it."""

    async def pause(self, relay, reason):
        raise HostError(reason)

    patch.setattr(Device, "_pause", pause)
