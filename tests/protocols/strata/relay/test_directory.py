"""Laws of protocols.strata.directory."""

import pytest

from tests.protocols.strata.build import in_force
from tests.protocols.strata.build_keys import (
    DAY,
    NAMED,
    OWN,
    SKEW,
    T0,
    change,
    document,
    event,
    key,
    verification_method,
)
from waystation.core.dids import encode_did
from waystation.protocols.strata.canonical import document_hash
from waystation.protocols.strata.keys.keyring import EventStatus, Method, candidates, check_signer
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError
from waystation.protocols.strata.relay import directory as module
from waystation.protocols.strata.relay.directory import Directory, StaticKey


class Events:
    """Stored key events by author, and how often somebody read them."""

    def __init__(self):
        self.stored = {}
        self.reads = 0

    def __call__(self, did):
        self.reads += 1
        return self.stored.get(did, ())


def build(static=None, documents=(), events=None, limits=None):
    """Return a directory."""
    return Directory(
        static_dids=static or {}, documents=documents, events=events or Events(), skew=SKEW, limits=limits or in_force()
    )


def keys_of(directory, did=NAMED, now=T0):
    """Return the keys that a DID resolves to."""
    ring = directory.ring(did, now)
    return None if ring is None else candidates(ring)


def test_self_certifying_id_is_its_own_document():
    """One method #keys-1, valid from 0, open-ended, for signing."""
    assert build().ring(OWN, T0).methods == (Method(f"{OWN}#keys-1", key("own"), 0),)


def test_name_that_nobody_knows_is_unresolved():
    """A DID that is no key and stands nowhere has no ring, and takes no place in the memory."""
    directory = build()

    assert directory.ring(NAMED, T0) is None
    assert directory.ring("did:ngo:relief", T0) is None
    assert not directory._rings


def test_static_map_comes_first():
    """A pinned DID is what the operator says, documents and its own key notwithstanding."""
    directory = build({NAMED: key("pin"), OWN: key("pin")}, [document("one"), document("own", did=OWN)])

    assert directory.ring(NAMED, T0).methods == (Method(f"{NAMED}#static", key("pin"), 0),)
    assert keys_of(directory, OWN) == (key("pin"),)


def test_static_keys_have_windows():
    """Several static keys keep window and usage, as the vectors' static_keys have them."""
    directory = build({NAMED: [StaticKey(key("a"), 5, 9), StaticKey(key("b"), recovery=True)]})

    assert directory.ring(NAMED, T0).methods == (
        Method(f"{NAMED}#static-1", key("a"), 5, 9),
        Method(f"{NAMED}#static-2", key("b"), 0, recovery=True),
    )


def test_vector_err_recovery_key():
    """A recovery key in the static map cannot post."""
    directory = build({OWN: [StaticKey(key("r"), recovery=True)]})

    refusal = check_signer(directory.ring(OWN, T0), key("r"), "POST", T0, SKEW)

    assert refusal == Refusal(Code.INVALID_SIGNATURE, "recovery_key_not_allowed")


def test_operator_document_resolves_a_name():
    """Methods of the head are the keys of a DID that is no key."""
    first = document("one")
    second = document("two", prev_did_doc_hash=document_hash(first))

    assert keys_of(build(documents=[second, first])) == (key("two"),)


def test_document_must_list_the_key_in_its_genesis_version():
    """A document for a self-certifying DID without its key is ignored; with it, it counts."""
    listed = document("own", "more", did=OWN)
    unlisted = document("thief", did=OWN)

    assert keys_of(build(documents=[unlisted]), OWN) == (key("own"),)
    assert set(keys_of(build(documents=[unlisted, listed]), OWN)) == {key("own"), key("more")}


def test_two_heads_fail_closed():
    """Two unlinked documents leave the DID in conflict: no candidates, did_conflict."""
    ring = build(documents=[document("one"), document("two")]).ring(NAMED, T0)

    assert candidates(ring) == ()
    assert check_signer(ring, key("one"), "POST", T0, SKEW) == Refusal(Code.INVALID_SIGNATURE, "did_conflict")


def test_pointer_lets_a_document_in():
    """A fetched document counts only when a pointer named its hash; then it is served by hash too."""
    value = document("one")
    name = document_hash(value)
    directory = build()

    assert directory.add_document(value) is False
    assert directory.document_by_hash(name) is None
    directory.set_pointers({NAMED: name})
    assert directory.wanted(NAMED) == (name,)
    assert directory.add_document(value) is True
    assert keys_of(directory) == (key("one"),)
    assert directory.document_by_hash(name) == value
    assert directory.wanted(NAMED) == ()


def test_uninvited_document_changes_nothing():
    """Nobody adds a key to, or a conflict for, a DID by publishing a document."""
    directory = build(documents=[document("own", did=OWN)])
    before = keys_of(directory, OWN)

    assert directory.add_document(document("own", "thief", did=OWN)) is False
    assert directory.add_document(document("own", "thief", did=OWN)) is False
    assert keys_of(directory, OWN) == before


def test_pointer_of_another_did_lets_nothing_in():
    """A hash named for one DID is no way in for a document of another."""
    value = document("own", "thief", did=OWN)
    directory = build()
    directory.set_pointers({NAMED: document_hash(value)})

    assert directory.add_document(value) is False


def test_predecessors_are_wanted():
    """The version before a document that counts is wanted, so that its genesis can be shown."""
    first = document("own", did=OWN)
    second = document("next", did=OWN, prev_did_doc_hash=document_hash(first))
    directory = build()
    directory.set_pointers({OWN: document_hash(second)})

    assert directory.add_document(second)
    assert keys_of(directory, OWN) == (key("own"),)
    assert directory.wanted(OWN) == (document_hash(first),)
    assert directory.add_document(first)
    assert keys_of(directory, OWN) == (key("next"),)


def test_new_document_is_seen_at_once():
    """A ring resolved before a document came does not outlive it."""
    directory = build()
    assert keys_of(directory, OWN) == (key("own"),)

    directory.add_document(document("own", "more", did=OWN), pinned=True)

    assert key("more") in keys_of(directory, OWN)


def test_documents_per_did_are_bounded():
    """The 33rd version of a DID is not kept."""
    directory, previous, taken = build(), None, []
    for count in range(33):
        value = document(f"k{count}", prev_did_doc_hash=previous)
        taken.append(directory.add_document(value, pinned=True))
        previous = document_hash(value)

    assert taken == [True] * 32 + [False]
    assert directory.wanted(NAMED) == ()
    assert keys_of(directory) == (key("k31"),)


def test_bad_document_is_refused():
    """What is no document raises its refusal."""
    with pytest.raises(RefusedError):
        build(documents=[document("a", verification_method=[])])


def test_key_events_are_applied():
    """An ADD counts once the directory was told to forget, for pinned DIDs too."""
    events = Events()
    directory = build({NAMED: key("pin")}, events=events)
    assert keys_of(directory) == (key("pin"),)

    events.stored[NAMED] = [event(1, T0, "pin", change("ADD", "two", NAMED))]
    assert keys_of(directory) == (key("pin"),)
    directory.forget(NAMED)

    assert keys_of(directory) == (key("two"), key("pin"))


def test_ring_is_resolved_once():
    """Resolving again reads no events."""
    events = Events()
    directory = build(events=events)

    rings = [directory.ring(OWN, T0 + count) for count in range(5)]

    assert events.reads == 1
    assert all(ring is rings[0] for ring in rings)


def test_ring_is_replayed_when_a_recovery_falls_due():
    """A pending recovery event is applied by the passing of time alone, exactly on time."""
    methods = [verification_method("one"), verification_method("r1", usage="recovery")]
    events = Events()
    events.stored[NAMED] = [event(1, T0, "r1", change("ADD", "two", NAMED))]
    directory = build(documents=[document(verification_method=methods)], events=events)

    assert directory.ring(NAMED, T0).statuses[0][1] is EventStatus.PENDING
    assert directory.ring(NAMED, T0 + DAY - 1).statuses[0][1] is EventStatus.PENDING
    assert directory.ring(NAMED, T0 + DAY).statuses[0][1] is EventStatus.IN_FORCE
    assert key("two") in keys_of(directory, NAMED, T0 + DAY)
    assert events.reads == 2


def test_memory_of_rings_is_bounded():
    """The authors used least recently are forgotten first."""
    events = Events()
    directory = build(events=events, limits=in_force(key_rings=3))
    dids = [encode_did(key(str(count))) for count in range(4)]
    for did in (dids[0], dids[1], dids[2], dids[0], dids[3]):
        directory.ring(did, T0)

    assert list(directory._rings) == [dids[2], dids[0], dids[3]]


def test_pointers_are_bounded(monkeypatch):
    """Pointers past the limit are left out."""
    monkeypatch.setattr(module, "POINTERS_MAX", 1)
    directory = build()
    directory.set_pointers({NAMED: document_hash(document()), OWN: document_hash(document(did=OWN))})

    assert directory.wanted(NAMED)
    assert not directory.wanted(OWN)
