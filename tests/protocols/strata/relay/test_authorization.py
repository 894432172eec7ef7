"""Laws of protocols.strata.relay.authorization; rows 16 to 19 of the requirements try them over a connection."""

import random

import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, RELAY, did, in_force, sign_bytes, vector, vectors
from waystation.core.effects import Peer
from waystation.protocols.strata.messages import Auth
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.authorization import Authorizer
from waystation.protocols.strata.relay.authors import Authors
from waystation.protocols.strata.relay.directory import Directory
from waystation.protocols.strata.session import Session
from waystation.protocols.strata.settings import StrataSettings
from waystation.protocols.strata.wire import read_message
from waystation.store.memory import MemoryStore


def authorizer_of(server_id, **settings):
    """Return the authorizer of a relay that knows self-certifying DIDs alone."""
    store = MemoryStore()
    authors = Authors(store, store.packets)
    authors.use(Directory(static_dids={}, documents=(), events=authors.events, skew=300, limits=in_force()))
    return Authorizer(StrataSettings(**settings), server_id, authors)


def judged(capabilities=None, signer=ALICE, author=None, server=None, seconds=0, **settings):
    """Return the verdict of an authorizer on an answer of Alice."""
    session = Session(Peer(1), "", frozenset(), in_force())
    session.new_challenge(random.Random(1), NOW, 120)
    signed = (session.challenge + (server or did(RELAY))).encode()
    signature = bytes.fromhex(sign_bytes(signer, signed)[2:])
    message = Auth(author or did(ALICE), session.challenge, signature, capabilities, None)
    return authorizer_of(did(RELAY), **settings).authorize(session, message, NOW + seconds)


@pytest.mark.parametrize(
    ("wanted", "settings", "granted"),
    [
        (None, {}, ("publish", "subscribe")),
        (("subscribe",), {}, ("subscribe",)),
        (("subscribe", "publish"), {}, ("publish", "subscribe")),
        (("publish", "fly", "replicate"), {}, ("publish",)),
        (("replicate",), {"replicate_allow": [did(ALICE)]}, ("replicate",)),
        (None, {"replicate_allow": [did(ALICE)]}, ("publish", "subscribe")),
        (("publish", "subscribe"), {"auth_grants": ["subscribe"]}, ("subscribe",)),
    ],
)
def test_what_is_granted(wanted, settings, granted):
    """What was asked for and policy allows, in one order; replicate only by name and to those on the list."""
    assert judged(wanted, **settings) == granted


@pytest.mark.parametrize(
    ("fields", "code", "detail"),
    [
        ({"capabilities": ("replicate",)}, Code.UNAUTHENTICATED, "no_capability"),
        ({"capabilities": ()}, Code.UNAUTHENTICATED, "no_capability"),
        ({"capabilities": ("replicate",), "replicate_allow": [did(BOB)]}, Code.UNAUTHENTICATED, "no_capability"),
        ({"signer": BOB}, Code.INVALID_SIGNATURE, "bad_signature"),
        ({"server": did(BOB)}, Code.INVALID_SIGNATURE, "bad_signature"),
        ({"author": "did:strata:zero_cool"}, Code.INVALID_SIGNATURE, "unresolved_author"),
        ({"seconds": 121}, Code.UNAUTHENTICATED, "challenge_expired"),
        ({"seconds": 121, "signer": BOB}, Code.UNAUTHENTICATED, "challenge_expired"),
    ],
)
def test_who_is_not_let_in(fields, code, detail):
    """The challenge is looked at first, then the signature, and an answer that gives nothing is refused."""
    assert judged(**fields) == Refusal(code, detail)


@pytest.mark.parametrize("name", vectors("auth"))
def test_row_16_vectors_get_their_verdicts(name):
    """The AUTH of each vector, as the answer to its own challenge, ends as listed beside it."""
    entry = vector(name)
    asked = entry["challenge_message"]
    session = Session(Peer(1), "", frozenset(), in_force())
    session.challenge, session.challenge_expires_at = asked["challenge"], asked["expires_at"]
    verdict = authorizer_of(asked["server_id"]).authorize(session, read_message(entry["auth_message"]), entry["now"])

    if isinstance(verdict, Refusal):
        told = {"result": "ERROR", "code": verdict.code.value, "detail": verdict.detail}
    else:
        told = {"result": "AUTH_OK"}
    assert told == entry["expect"]
