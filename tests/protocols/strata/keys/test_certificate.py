"""Laws of protocols.strata.certificate."""

import base64
import datetime
import json

import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from tests.protocols.strata.build import NOW, certified, entry, key, refused
from waystation.protocols.strata.keys.certificate import CERTIFICATE_CHARS_MAX, CHAIN_MAX, check_chain
from waystation.protocols.strata.refusals import Code

BROKEN = Code.INVALID_ISSUER_CHAIN
ROOT, MAKER, DEVICE = key(1), key(2), key(3)
ROOTS = {"did:root:r": ROOT.public}
SKEW = 300


def good_chain():
    """Return a chain of device and maker under the root."""
    return [
        certified("did:device:d", "did:maker:m", DEVICE, MAKER),
        certified("did:maker:m", "did:root:r", MAKER, ROOT),
    ]


def check(chain, now=NOW, roots=ROOTS):
    """Judge a chain."""
    return check_chain(chain, roots, now, SKEW)


def test_good_chain_gives_its_leaf():
    """A chain that holds vouches for the leaf's subject and key."""
    assert check(good_chain()) == ("did:device:d", DEVICE.public)


def test_root_may_vouch_directly():
    """One certificate under a root is a chain."""
    assert check([certified("did:device:d", "did:root:r", DEVICE, ROOT)]).public_key == DEVICE.public


def test_longest_chain():
    """Eight certificates are a chain, nine are refused before any is opened."""

    def chain(length):
        keys = [ROOT, *(key(10 + n) for n in range(length))]
        names = ["did:root:r", *(f"did:maker:{n}" for n in range(length))]
        return [certified(names[n], names[n - 1], keys[n], keys[n - 1]) for n in range(length, 0, -1)]

    assert check(chain(CHAIN_MAX)).subject == "did:maker:7"
    with refused(BROKEN, "chain_too_long"):
        check(chain(CHAIN_MAX + 1))


def test_padding_and_pretty_json_are_taken():
    """base64url with or without padding, and any spelling of the signed members."""
    chain = good_chain()
    for link in chain:
        raw = base64.urlsafe_b64decode(link["certificate"] + "==")
        link["certificate"] = base64.urlsafe_b64encode(json.dumps(json.loads(raw), indent=1).encode()).decode()

    assert check(chain).subject == "did:device:d"


@pytest.mark.parametrize(
    "chain",
    [
        None,
        "x",
        {},
        [],
        [None],
        ["x"],
        [{}],
        [{"subject": "a", "issuer": "b"}],
        [{"subject": 1, "issuer": 2, "certificate": 3}],
        [{"subject": "", "issuer": "did:root:r", "certificate": "e30"}],
        [entry("s" * 513, "did:root:r", b"{}")],
    ],
)
def test_malformed_chain(chain):
    """Entries are objects with subject, issuer and certificate."""
    with refused(BROKEN, "malformed_chain"):
        check(chain)


def test_broken_link():
    """Each issuer is the subject of the next entry."""
    with refused(BROKEN, "broken_link"):
        check([certified("did:device:d", "did:maker:other", DEVICE, MAKER), good_chain()[1]])


def test_unknown_root():
    """The last issuer is a root of the operator; without roots every chain ends here."""
    with refused(BROKEN, "unknown_root"):
        check(good_chain(), roots={})
    with refused(BROKEN, "unknown_root"):
        check(good_chain()[:1])


def test_wrong_root_key():
    """A root's name alone vouches for nothing."""
    with refused(BROKEN, "bad_certificate_signature"):
        check(good_chain(), roots={"did:root:r": key(9).public})


def test_leaf_signed_by_a_stranger():
    """Every certificate is signed by the key of the one above it."""
    with refused(BROKEN, "bad_certificate_signature"):
        check([certified("did:device:d", "did:maker:m", DEVICE, key(9)), good_chain()[1]])


@pytest.mark.parametrize("link", [0, 1])
@pytest.mark.parametrize(("window", "now"), [("valid_from", NOW - 1_000), ("valid_until", NOW + 1_000)])
def test_validity_with_skew(link, window, now):
    """Every certificate of the chain is valid now, give or take the skew."""
    far = {"valid_from": 0, "valid_until": NOW * 2}
    edges = [far, far]
    edges[link] = far | {window: now}
    chain = [
        certified("did:device:d", "did:maker:m", DEVICE, MAKER, **edges[0]),
        certified("did:maker:m", "did:root:r", MAKER, ROOT, **edges[1]),
    ]
    outside = -SKEW if window == "valid_from" else SKEW

    assert check(chain, now + outside).subject == "did:device:d"
    with refused(BROKEN, "certificate_not_valid"):
        check(chain, now + outside + (1 if outside > 0 else -1))


@pytest.mark.parametrize(
    "certificate",
    [b"{}", b"", b"{", b"x", b'{"format":"strata-cert-v2"}', b'{"a":1,"a":1}', b"[]", b'{"a":1e400}', b"\x30\x00"],
)
def test_bad_certificate(certificate):
    """What is neither form is refused."""
    link = entry("did:device:d", "did:root:r", certificate) | ({} if certificate else {"certificate": "===="})
    with refused(BROKEN, "bad_certificate"):
        check([link])


@pytest.mark.parametrize("text", ["!!!!", "a", "e30 ", "\u00e9"])
def test_certificate_that_is_no_base64(text):
    """Nothing outside the alphabet is passed over."""
    with refused(BROKEN, "bad_certificate"):
        check([{"subject": "did:device:d", "issuer": "did:root:r", "certificate": text}])


@pytest.mark.parametrize(
    "field",
    [
        {"subject_public_key": "0x" + "g" * 64},
        {"subject_public_key": "ab" * 33},
        {"subject_public_key": None},
        {"valid_from": "0"},
        {"valid_until": 1.5},
        {"valid_until": None},
    ],
)
def test_certificate_with_a_wrong_field(field):
    """Signed or not, a member of the wrong kind makes it no certificate."""
    with refused(BROKEN, "bad_certificate"):
        check([certified("did:device:d", "did:root:r", DEVICE, ROOT, **field)])


def test_certificate_about_somebody_else():
    """Entry and certificate name the same subject and issuer."""
    link = certified("did:device:d", "did:root:r", DEVICE, ROOT)
    for fields in ({"subject": "did:device:other"}, {"issuer": "did:root:o"}):
        with refused(BROKEN, "name_mismatch"):
            check([link | fields], roots=ROOTS | {"did:root:o": ROOT.public})


def test_changed_certificate():
    """The signature covers every member, also those nobody knows."""
    link = certified("did:device:d", "did:root:r", DEVICE, ROOT, note="a")
    raw = json.loads(base64.urlsafe_b64decode(link["certificate"] + "=="))

    assert check([link]).subject == "did:device:d"
    with refused(BROKEN, "bad_certificate_signature"):
        check([entry("did:device:d", "did:root:r", rfc8785.dumps(raw | {"note": "b"}))])


def test_certificate_without_authority_vouches_for_nobody():
    """A device whose certificate says so cannot make other devices."""
    maker = certified("did:maker:m", "did:root:r", MAKER, ROOT, authority=False)
    with refused(BROKEN, "not_an_authority"):
        check([good_chain()[0], maker])


def test_certificate_over_the_limit():
    """16 KiB of text and not one more."""
    link = {"subject": "did:device:d", "issuer": "did:root:r", "certificate": "A" * (CERTIFICATE_CHARS_MAX + 1)}
    with refused(BROKEN, "certificate_too_large"):
        check([link])


def issue(subject, issuer, public, issuer_key, *, authority):
    """Return an entry with an X.509 certificate."""
    instant = datetime.datetime.fromtimestamp(NOW, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(1)
        .not_valid_before(instant)
        .not_valid_after(instant + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(issuer_key, None if isinstance(issuer_key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return entry(subject, issuer, certificate.public_bytes(Encoding.DER))


def x509_chain(*, authority=True):
    """Return an X.509 chain of an Ed25519 device under an ECDSA maker under the root."""
    maker, root = ec.derive_private_key(7, ec.SECP256R1()), ed25519.Ed25519PrivateKey.from_private_bytes(ROOT.seed)
    device = ed25519.Ed25519PrivateKey.from_private_bytes(DEVICE.seed)
    return [
        issue("did:device:d", "did:maker:m", device.public_key(), maker, authority=False),
        issue("did:maker:m", "did:root:r", maker.public_key(), root, authority=authority),
    ]


def test_x509_chain():
    """DER certificates with Ed25519 and ECDSA keys make a chain, leaf first."""
    assert check(x509_chain()) == ("did:device:d", DEVICE.public)


def test_x509_without_the_ca_flag_vouches_for_nobody():
    """The certificate of a device signs no other device."""
    with refused(BROKEN, "not_an_authority"):
        check(x509_chain(authority=False))


def test_x509_outside_its_window():
    """X.509 validity is judged like the other."""
    with refused(BROKEN, "certificate_not_valid"):
        check(x509_chain(), NOW + 86_400 + SKEW + 1)


def test_ecdsa_root():
    """A root may be a point of P-256."""
    root = ec.derive_private_key(11, ec.SECP256R1())
    device = ec.derive_private_key(12, ec.SECP256R1())
    point = root.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    chain = [issue("did:device:d", "did:root:r", device.public_key(), root, authority=False)]

    assert len(check(chain, roots={"did:root:r": point}).public_key) == 65
    with refused(BROKEN, "bad_certificate_signature"):
        check(chain)
