"""Laws of protocols.strata.documents."""

import pytest

from tests.protocols.strata.build_keys import NAMED, OWN, document, key, verification_method
from waystation.core.dids import encode_key_multibase
from waystation.protocols.strata.canonical import document_hash
from waystation.protocols.strata.keys.keyring import Method, RecoveryPolicy
from waystation.protocols.strata.refusals import Code, RefusedError
from waystation.protocols.strata.relay.documents import chain_of, head_of, read_document, rooted_in


def refusal_of(value):
    """Return code and detail of what a document is refused for."""
    with pytest.raises(RefusedError) as caught:
        read_document(value)
    return caught.value.refusal.code, caught.value.refusal.detail


def with_method(**fields):
    """Return a document whose one method has these fields; a None takes the field away."""
    method = verification_method("one") | fields
    return document(verification_method=[{name: value for name, value in method.items() if value is not None}])


def test_document_gives_its_methods_newest_first():
    """Windows, usage and policy of a document become the ring of its DID."""
    recovery = verification_method("spare", usage="recovery", valid_from=5)
    value = document(
        verification_method=[verification_method("one", valid_until=90), recovery],
        recovery_policy={"threshold": 1, "key_ids": [f"{NAMED}#spare"]},
    )

    ring = read_document(value).ring()

    assert ring.did == NAMED
    assert ring.methods == (
        Method(f"{NAMED}#spare", key("spare"), 5, recovery=True),
        Method(f"{NAMED}#one", key("one"), 0, 90),
    )
    assert ring.policy == RecoveryPolicy(1, (f"{NAMED}#spare",))


def test_document_is_named_by_the_hash_of_its_content():
    """The name is the multihash text of its canonical form, unknown fields included."""
    value = document(services=[{"id": "x"}])

    assert read_document(value).document_hash == document_hash(value)
    assert read_document(value).document_hash != read_document(document()).document_hash


@pytest.mark.parametrize(
    "fields",
    [
        {"public_key_hex": key("one").hex()},
        {"public_key_hex": None, "public_key_multibase": encode_key_multibase(key("one"))},
        {"public_key_multibase": encode_key_multibase(key("one"))},
        {"valid_until": 0},
        {"valid_from": 0.0},
        {"usage": "signing"},
    ],
)
def test_every_spelling_of_a_method_is_read(fields):
    """Hex with or without 0x, multibase, both; 0 leaves the window open; a whole number is an int."""
    (method,) = read_document(with_method(**fields)).methods

    assert method == Method(f"{NAMED}#one", key("one"), 0)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ([], "document"),
        (document(id="nobody"), "id"),
        (document(id=7), "id"),
        (document(verification_method=[]), "verification_method"),
        (document(verification_method=None), "verification_method"),
        (document(verification_method=["x"]), "verification_method"),
        (document(*(f"k{count}" for count in range(65))), "verification_method"),
        (document("one", "one"), "verification_method"),
        (with_method(id=f"{OWN}#one"), "binding"),
        (with_method(id=NAMED), "verification_method"),
        (with_method(type=None), "verification_method"),
        (with_method(type="X25519KeyAgreementKey2020"), "verification_method"),
        (with_method(usage="exotic"), "verification_method"),
        (with_method(usage=3), "usage"),
        (with_method(valid_from=None), "valid_from"),
        (with_method(valid_from=-1), "valid_from"),
        (with_method(valid_from=True), "valid_from"),
        (with_method(valid_from="0"), "valid_from"),
        (with_method(valid_from=0.5), "valid_from"),
        (with_method(valid_from=9, valid_until=8), "valid_until"),
        (with_method(public_key_hex="00"), "public_key_hex"),
        (with_method(public_key_hex=5), "public_key_hex"),
        (with_method(public_key_hex=None), "public_key_multibase"),
        (with_method(public_key_multibase="zzz"), "public_key_multibase"),
        (with_method(public_key_multibase=encode_key_multibase(key("two"))), "public_key_multibase"),
        (document(prev_did_doc_hash="0x" + "ab" * 32), "prev_did_doc_hash"),
        (document(prev_did_doc_hash="ab" * 32), "prev_did_doc_hash"),
        (document(prev_did_doc_hash=4), "prev_did_doc_hash"),
        (document(recovery_policy={"threshold": 0}), "recovery_policy"),
        (document(recovery_policy={"key_ids": []}), "recovery_policy"),
        (document(recovery_policy={"threshold": 1, "key_ids": "x"}), "recovery_policy"),
        (document(recovery_policy=[]), "recovery_policy"),
        (document(authentication="x"), "authentication"),
        (document(created_at="x"), "created_at"),
        (document(note="x" * 65_536), "too_large"),
    ],
)
def test_malformed_document_is_refused(value, detail):
    """Each broken field is named by the refusal."""
    assert refusal_of(value) == (Code.INVALID_SCHEMA, detail)


def test_unusable_methods_are_left_out():
    """A key of another type beside a good one does no harm."""
    other = verification_method("chat", type="X25519KeyAgreementKey2020")
    value = document(verification_method=[verification_method("one"), other])

    assert [method.public for method in read_document(value).methods] == [key("one")]


def versions(*steps, did=NAMED):
    """Return linked documents; each step is the key names of one version."""
    chain, previous = [], None
    for count, names in enumerate(steps):
        value = document(*names, did=did, prev_did_doc_hash=previous, created_at=count)
        chain.append(read_document(value))
        previous = chain[-1].document_hash
    return chain


def test_updates_are_linked():
    """The last of a chain is the head, in whatever order the versions came."""
    one, two, three = versions(("a",), ("b",), ("c",))

    assert chain_of([three, one, two, one]) == (one, two, three)
    assert head_of([two, three, one]) == three
    assert head_of([]) is None


def test_two_heads_with_one_predecessor_fail_closed():
    """Two documents with the same prev_did_doc_hash leave no head."""
    one, two = versions(("a",), ("b",))
    rival = read_document(document("c", prev_did_doc_hash=one.document_hash))

    assert head_of([one, two, rival]) is None


def test_unlinked_documents_fail_closed():
    """Two first versions, or a gap between two, leave no head."""
    one, _, three = versions(("a",), ("b",), ("c",))

    assert head_of([one, three]) is None
    assert head_of([one, *versions(("x",))]) is None


def test_updates_are_monotonic():
    """A version older than the one before it leaves no head."""
    one = read_document(document("a", created_at=10))
    older = read_document(document("b", created_at=9, prev_did_doc_hash=one.document_hash))
    same = read_document(document("b", created_at=10, prev_did_doc_hash=one.document_hash))

    assert head_of([one, older]) is None
    assert head_of([one, same]) == same


def test_lone_newer_version_is_a_head():
    """A version whose predecessor we have not got is a chain of one."""
    _, two = versions(("a",), ("b",))

    assert head_of([two]) == two


def test_versions_that_do_not_descend_from_the_key_are_ignored():
    """Of documents for a DID that is a key, those rooted in a first version that lists it are kept."""
    good = versions(("own",), ("b",), did=OWN)
    bad = versions(("thief",), ("own",), did=OWN)

    assert rooted_in([*bad, *good], key("own")) == tuple(good)
    assert rooted_in([good[1], *bad], key("own")) == ()
