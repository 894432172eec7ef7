"""Laws of protocols.strata.settings."""

import dataclasses

import pytest

from tests.protocols.strata.build import BOB
from waystation.core.errors import LocalError
from waystation.core.settings import check
from waystation.protocols.strata import settings as module
from waystation.protocols.strata.settings import StrataSettings

KEY = BOB.public.hex()


def test_defaults_are_those_of_the_digest():
    """specs/strata.md 5.1, 7, 9.1 and 12 give these numbers."""
    settings = StrataSettings()

    assert (settings.max_packet_bytes, settings.max_age_s, settings.max_backfill_s) == (262_144, 86_400, 604_800)
    assert (settings.clock_skew_s, settings.auth_challenge_s) == (300, 120)
    assert settings.provenance_downgrade_mode == "annotate"
    assert settings.anonymous == settings.auth_grants == ["publish", "subscribe"]
    assert settings.replicate_allow == settings.roots == []


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(StrataSettings)])
def test_defaults_pass_their_own_check(field):
    """What we ship is allowed."""
    check(StrataSettings, field, getattr(StrataSettings(), field))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_packet_bytes", 1_048_577),
        ("max_packet_bytes", 1_023),
        ("clock_skew_s", 59),
        ("clock_skew_s", 301),
        ("auth_challenge_s", 59),
        ("auth_challenge_s", 601),
        ("provenance_downgrade_mode", "hide"),
        ("max_backfill_s", 86_399),
        ("retention_days", 6),
        ("trust_edge_budget", 1),
    ],
)
def test_values_outside_are_refused(field, value):
    """A bound that is declared holds; D23 asks it of challenges, 5.1 of packets, 4.2 of the skew."""
    with pytest.raises(LocalError, match="allowed"):
        check(StrataSettings, field, value)


def test_a_root_may_be_a_point_of_a_nist_curve():
    """Hardware makers' roots are ECDSA: what certificate chains can be checked with can be configured."""
    point = bytes.fromhex(
        "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    )

    assert module.read_roots([f"did:root:p256={point.hex()}"]) == {"did:root:p256": point}


def test_roots_are_names_and_keys():
    """A root is a DID, an equals sign and a public key; the name itself may hold none."""
    assert module.read_roots([f"did:root:r={KEY}"]) == {"did:root:r": BOB.public}


@pytest.mark.parametrize("entry", ["", KEY, f"={KEY}", "did:root:r=", "did:root:r=12"])
def test_bad_roots_are_refused(entry):
    """A root that cannot be read is a mistake of the operator, told at start."""
    with pytest.raises(LocalError):
        module.read_roots([entry])


def test_static_dids_are_read():
    """A pinned DID has one key in hex."""
    assert module.read_static_dids({"did:strata:zero_cool": KEY}) == {"did:strata:zero_cool": BOB.public}


@pytest.mark.parametrize(("name", "value"), [("zero_cool", KEY), ("did:strata:zero_cool", "12")])
def test_bad_static_dids_are_refused(name, value):
    """Neither a name without method nor half a key is taken."""
    with pytest.raises(LocalError):
        module.read_static_dids({name: value})


def test_upstreams_are_read():
    """The profile is FULL_ARCHIVE unless another is named."""
    entry = {"url": "wss://relay.example/strata", "relay_id": "did:strata:r"}
    found = module.read_upstreams([entry, entry | {"relay_id": "did:strata:s", "profile": "PUBLIC_SOCIAL"}])

    assert [(each.relay_id, each.profile) for each in found] == [
        ("did:strata:r", "FULL_ARCHIVE"),
        ("did:strata:s", "PUBLIC_SOCIAL"),
    ]


@pytest.mark.parametrize(
    "change", [{"url": "http://x"}, {"relay_id": "x"}, {"profile": "ALL"}, {"colour": "red"}, {"url": ""}]
)
def test_bad_upstreams_are_refused(change):
    """Each key has its form, and an unknown one is a mistake."""
    with pytest.raises(LocalError, match="upstreams"):
        module.read_upstreams([{"url": "wss://relay.example/strata", "relay_id": "did:strata:r"} | change])


def test_an_upstream_stands_once():
    """One relay cannot be read twice at a time."""
    entry = {"url": "wss://relay.example/strata", "relay_id": "did:strata:r"}

    with pytest.raises(LocalError, match="twice"):
        module.read_upstreams([entry, entry])


def test_capabilities_for_anybody():
    """Nobody can be given replicate by these lists."""
    module.check_capabilities("anonymous", ["publish", "subscribe"])

    with pytest.raises(LocalError, match="anonymous"):
        module.check_capabilities("anonymous", ["replicate"])
