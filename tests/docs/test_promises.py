"""Sentences of the documents that say never, always, only or kept, and the tests without which they are only words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROMISES = [
    (
        "docs/operating.md",
        "met in the last six hours and by whom (since the start, where nobody is known to have met one)",
        ["tests/cli/test_status.py::test_limits_of_the_last_six_hours_are_shown"],
    ),
    (
        "docs/operating.md",
        "a sender of Bhumi or LPRP mail is never named",
        [
            "tests/protocols/bhumi/test_limits.py::test_network_of_a_sender_stands_in_no_fact",
            "tests/protocols/lprp/relay/test_refused.py::test_sender_of_mail_is_never_named",
        ],
    ),
    (
        "docs/operating.md",
        "it holds on this node only and is announced to nobody",
        ["tests/engine/test_access.py::test_ban_is_announced_to_nobody"],
    ),
    (
        "docs/operating.md",
        "A ban wins over `allow`",
        ["tests/engine/test_access.py::test_deny_wins_over_allow_and_a_ban_over_both"],
    ),
    (
        "docs/operating.md",
        "A client that is no trusted proxy cannot name an address, whatever it sends",
        [
            "tests/transport/test_listen_proxies.py::test_client_that_is_no_proxy_cannot_name_an_address",
            "tests/server/http/test_port.py::test_request_has_the_client_that_a_trusted_proxy_names",
        ],
    ),
    (
        "docs/operating.md",
        "Bhumi senders prove none: they are only counted, by network",
        ["tests/cli/test_status.py::test_status_shows_who_is_connected"],
    ),
    (
        "docs/operating.md",
        "only these keys lease, and only these send",
        ["tests/server/whole/test_access.py::test_lprp_leases_to_friends"],
    ),
    (
        "docs/operating.md",
        "nobody else publishes or subscribes, whatever `strata.anonymous` says, and packets are not served over plain",
        ["tests/server/whole/test_access.py::test_strata_takes_who_proves_to_be_a_friend"],
    ),
    (
        "docs/operating.md",
        "a table shrinks by two entries for each that comes",
        ["tests/protocols/test_lowered_limits.py::test_full_table_shrinks_by_one_with_each_entry_that_comes"],
    ),
    (
        "docs/operating.md",
        "`limits.enabled = false` lifts rates and ceilings per address for load tests, never the size of a table",
        [
            "tests/engine/test_admission.py::test_total_holds_whatever_is_lifted",
            "tests/protocols/lprp/relay/test_machine_limits.py::test_limits_hold_without_rate_limits",
        ],
    ),
    (
        "docs/operating.md",
        "`/healthz`, `/readyz`, `/` | always, with a Host that is known and no foreign Origin",
        ["tests/server/http/test_authorisation.py::test_index_names_what_is_open"],
    ),
    (
        "README.md",
        "never touches whom the operator allows",
        [
            "tests/engine/test_policy.py::test_allowed_are_left_alone",
            "tests/rules/test_policy.py::test_allowed_subject_is_left_alone",
        ],
    ),
    (
        "SECURITY.md",
        "never in an exception that ends the node",
        ["tests/server/test_hub.py::test_bug_of_ours_costs_one_peer"],
    ),
    (
        "SECURITY.md",
        "wrong ones are limited, and logged once per burst",
        ["tests/server/http/test_credentials.py::test_wrong_tokens_of_an_address_are_limited"],
    ),
]


def words(text):
    """Return a text with one blank between words, so that a sentence is found over the ends of lines."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("document", "sentence", "tests"), PROMISES, ids=[sentence[:40] for _, sentence, _ in PROMISES]
)
def test_promise_has_a_test(document, sentence, tests):
    """The sentence stands in the document as it is here, and each test that shows it exists."""
    assert sentence in words((ROOT / document).read_text())
    for place in tests:
        file, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), place
