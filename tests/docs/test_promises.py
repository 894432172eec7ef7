"""Sentences of the documents that say never, always, only or kept, and the tests without which they are only words."""

import re
from pathlib import Path

import pytest

from tests.docs.merk_browser_promises import BROWSER, BROWSER_NO_PROMISE, PAGE
from tests.docs.merk_cannot import CANNOT
from tests.docs.merk_promises import MERK, NO_PROMISE, README

ROOT = Path(__file__).parents[2]

PROMISES = {
    "README.md": [
        (
            "never touches whom the operator allows",
            [
                "engine/test_policy.py::test_allowed_are_left_alone",
                "rules/test_policy.py::test_allowed_subject_is_left_alone",
            ],
        ),
        (
            "One send is handled once or never, and gets a result.",
            [
                "sdk/bhumi/test_sender.py::test_no_word_of_a_relay_ends_a_doubt",
                "sdk/bhumi/sending/test_recovery.py::test_killed_program_is_recovered_once",
            ],
        ),
        (
            "only when the caller says that it may arrive twice",
            ["sdk/bhumi/test_sender.py::test_repeatable_content_goes_on_with_the_next_permission"],
        ),
        (
            "The sender stays unknown",
            [
                "sdk/bhumi/test_sender.py::test_the_relay_never_learns_who_sends",
                "protocols/bhumi/test_limits.py::test_network_of_a_sender_stands_in_no_fact",
            ],
        ),
        (
            "so it can make no device act, answer for none and use no invite",
            [
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_forge_a_request",
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_answer_in_the_place_of_a_device",
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_use_an_invite_that_passes_through",
            ],
        ),
        *README,
        ("One seed, one run.", ["sim/test_run.py::test_one_seed_has_one_trace"]),
        (
            "An LPRP packet that was accepted is kept",
            ["server/lprp/test_processes.py::test_what_was_answered_survives_a_kill"],
        ),
        (
            "an acknowledgement leaves only behind the commit",
            [
                "protocols/bsp/device/test_repository.py::test_acknowledgement_leaves_behind_the_commit",
                "server/bsp/test_processes.py::test_message_that_was_acknowledged_survives_a_kill",
            ],
        ),
        (
            "A Strata OK means stored.",
            [
                "server/strata/test_processes.py::test_what_was_acknowledged_survives_a_kill",
                "protocols/strata/relay/test_not_committed.py::test_what_is_ok_is_stored_whatever_is_refused",
            ],
        ),
    ],
    "SECURITY.md": [
        ("never in an exception that ends the node", ["server/test_hub.py::test_bug_of_ours_costs_one_peer"]),
        (
            "wrong ones are limited, and logged once per burst",
            ["server/http/test_credentials.py::test_wrong_tokens_of_an_address_are_limited"],
        ),
        (
            "with a rebound name or from another origin, whatever cookie the browser has",
            [
                "server/http/test_authorisation.py::test_route_with_a_rebound_name",
                "server/http/test_authorisation.py::test_route_from_another_origin",
            ],
        ),
        (
            "a node refuses to start when others may read its keys",
            ["server/home/test_files.py::test_key_that_others_may_read_is_refused"],
        ),
        (
            "no client can name an address",
            ["transport/test_listen_proxies.py::test_client_that_is_no_proxy_cannot_name_an_address"],
        ),
        (
            "what was acknowledged is on disk",
            [
                "server/strata/test_processes.py::test_what_was_acknowledged_survives_a_kill",
                "server/lprp/test_processes.py::test_what_was_answered_survives_a_kill",
                "server/bsp/test_processes.py::test_message_that_was_acknowledged_survives_a_kill",
            ],
        ),
    ],
    "docs/bhumi.md": [
        (
            "nothing was delivered: the preimage is kept and is the next to be used, sending again is safe",
            [
                "protocols/bhumi/relay/test_machine.py::test_status_1_when_nobody_is_there_and_the_commit_stays",
                "sdk/bhumi/test_sender.py::test_offline_inviter_leaves_the_token_good",
                "sdk/bhumi/test_outcome.py::test_only_what_was_not_delivered_may_be_sent_again",
            ],
        ),
        (
            "Nothing that a relay says ends a doubt, only an answer that the peer has sealed",
            ["sdk/bhumi/test_sender.py::test_no_word_of_a_relay_ends_a_doubt"],
        ),
        (
            "requests to different peers go over different connections",
            [
                "sdk/bhumi/sending/test_channels.py::test_slow_peer_delays_nobody",
                "sdk/bhumi/sending/test_channels.py::test_connection_is_one_peers",
            ],
        ),
        (
            "the device reports once how many cannot reach it",
            ["sdk/bhumi/test_crowd.py::test_ten_thousand_peers_are_registered_as_far_as_possible"],
        ),
        (
            "when relays have long forgotten it",
            ["sdk/bhumi/sending/test_holes.py::test_hole_longer_than_relays_remember"],
        ),
        (
            "what a living program works on is left to it",
            ["sdk/bhumi/sending/test_recovery.py::test_two_programs_ask_beside_each_other"],
        ),
        (
            "same preimage and the same bytes, which the device handles once",
            ["sdk/bhumi/test_device.py::test_same_preimage_twice_is_handled_once"],
        ),
        (
            "A sender keeps two spares, which it asks the device for",
            ["sdk/bhumi/test_sender.py::test_pairs_asks_and_keeps_two_spares"],
        ),
        ("and its identity never comes back", ["sdk/bhumi/test_probe.py::test_each_probe_is_somebody_else"]),
        ("a seed: kept until it is removed", ["cli/bhumi/test_relays.py::test_seed_is_added_listed_and_removed"]),
        (
            "An answer is never longer than its query",
            ["protocols/bhumi/test_lan_datagrams.py::test_every_answer_is_shorter_than_its_query"],
        ),
        (
            "a file: only relays of this authority, names checked",
            [
                "server/bhumi/test_outlet.py::test_named_authority_is_demanded",
                "server/bhumi/test_outlet.py::test_foreign_authority_is_refused",
            ],
        ),
        (
            "whether an identity counts only once it has answered BIND",
            ["protocols/bhumi/relay/test_binding.py::test_identity_counts_only_once_it_is_proven"],
        ),
        (
            "with `--e2e suite-1` or `suite-2` it takes only that",
            ["sdk/bhumi/test_suites.py::test_device_that_insists_on_a_suite"],
        ),
        (
            "use an invite that passes through; welcome somebody in the place of the inviter",
            [
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_use_an_invite_that_passes_through",
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_welcome_in_the_place_of_an_inviter",
            ],
        ),
        (
            "forge a request; put its own in the place of another",
            [
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_forge_a_request",
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_put_its_own_request_in_the_place_of_another",
            ],
        ),
        (
            "answer in the place of a device; give the answer of one request to another",
            [
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_answer_in_the_place_of_a_device",
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_give_the_answer_of_one_request_to_another",
            ],
        ),
        (
            "bring two peers to a weaker form than they were paired in; spend a permission with bytes that do not open",
            [
                "sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_downgrade",
                "sdk/bhumi/pairing/test_hostile.py::test_legacy_invite_in_the_name_of_a_paired_peer_is_not_taken",
                "sdk/bhumi/pairing/test_hostile.py::test_preimages_are_registered_again_within_a_bound",
            ],
        ),
        (
            "be delivered without a preimage that the device gave out; pair without a token",
            ["sdk/bhumi/pairing/test_hostile.py::test_stranger_is_not_delivered"],
        ),
        (
            "use it a second time, after its end, or after `invites --cancel`",
            ["sdk/bhumi/pairing/test_hostile.py::test_who_reads_a_token_can_use_it_once_and_in_time"],
        ),
        (
            "send what its role does not name; send in the name of another; go on after `unpair` or `block`",
            [
                "sdk/bhumi/pairing/test_hostile.py::test_peer_sends_what_its_role_names",
                "micropython/test_manage.py::test_role_is_checked_before_the_handler",
                "sdk/bhumi/pairing/test_hostile.py::test_peer_does_not_speak_for_another",
                "sdk/bhumi/pairing/test_hostile.py::test_peer_is_heard_until_unpaired_or_blocked",
            ],
        ),
        (
            "read or forge what passes between its peers and others",
            ["sdk/bhumi/pairing/test_hostile.py::test_thief_of_a_home_has_its_own_pairings_only"],
        ),
        (
            "act in its name; with the help of a relay, answer it in theirs: **there is no forward secrecy**",
            ["sdk/bhumi/pairing/test_hostile.py::test_thief_of_a_home_has_its_own_pairings_only"],
        ),
        (
            "calls no handler for what no paired peer has sent, and none twice",
            [
                "sdk/bhumi/pairing/test_drawn.py::test_no_relay_makes_a_device_act",
                "sdk/bhumi/pairing/test_drawn.py::test_law_finds_a_sender_that_repeats",
                "sdk/bhumi/pairing/test_drawn.py::test_law_finds_a_device_that_takes_weaker_forms",
                "sdk/bhumi/sending/test_handshakes.py::test_call_that_was_given_up_leaves_the_bytes_of_a_later_one",
            ],
        ),
        (
            "A device takes from a peer nothing weaker than the two were paired in",
            ["sdk/bhumi/pairing/test_hostile.py::test_relay_cannot_downgrade"],
        ),
        (
            "the secrets come from the system, never from the program",
            ["sdk/bhumi/pairing/test_admission.py::test_secrets_come_from_the_system"],
        ),
        (
            "The relay never sees a key or a word of the sender",
            ["sdk/bhumi/test_sender.py::test_the_relay_never_learns_who_sends"],
        ),
    ],
    "docs/bsp.md": [
        (
            "An acknowledgement leaves only behind the commit that stores its message",
            ["protocols/bsp/device/test_repository.py::test_acknowledgement_leaves_behind_the_commit"],
        ),
        (
            "`kill -9` costs one repetition at most and no message",
            ["sdk/bsp/test_crash.py::test_kill_between_store_and_acknowledgement_costs_one_repeat"],
        ),
        (
            "gets every message, once, behind all that it depends on",
            [
                "protocols/bsp/device/test_receiving.py::test_message_is_delivered_once_however_often_it_comes",
                "sim/bsp/test_invariants.py::test_once_and_in_ascending_order",
            ],
        ),
        (
            "and so is all that depends on it; its body goes at once",
            ["protocols/bsp/graph/test_order.py::test_invalid_root_takes_its_line_with_it"],
        ),
        (
            "answered as if we had never heard of it",
            [
                "protocols/bsp/device/test_receiving.py::test_message_of_a_group_that_is_not_shared_is_as_of_an_unknown_one"
            ],
        ),
        (
            "the proof is bound to the certificate",
            ["server/bsp/test_processes.py::test_proof_over_another_certificate_is_refused"],
        ),
        (
            "One that is cut, changed, of a stranger or for somebody else is refused as a whole",
            [
                "sdk/bsp/test_files.py::test_file_cut_at_any_length_is_refused_and_the_whole_one_is_read",
                "sdk/bsp/test_peer.py::test_file_of_a_stranger_or_for_another_is_refused",
            ],
        ),
        (
            "they have it keep groups for members who are never online together",
            ["server/bsp/test_processes.py::test_mailbox_keeps_a_message_between_two_who_never_meet"],
        ),
        (
            "A command that the node does not answer is kept until it does",
            ["sdk/bsp/test_mailbox.py::test_silence_ends_and_the_command_is_kept"],
        ),
    ],
    "docs/lprp.md": [
        (
            "answers count only when that key has signed them",
            ["protocols/lprp/client/test_machine.py::test_no_state_listens_to_another_key"],
        ),
        (
            "The host answers only after its commit, and loses nothing that it has accepted, not by `kill -9` either",
            [
                "protocols/lprp/relay/test_machine_restart.py::test_no_promise_leaves_before_its_commit",
                "sdk/lprp/test_with_node.py::test_node_killed_in_mid_queue_loses_nothing_that_it_accepted",
            ],
        ),
        ("only then the host may forget them", ["sdk/lprp/test_tenant.py::test_restart_between_receive_and_confirm"]),
        (
            "Each message comes until it is done, and then never again",
            [
                "sdk/lprp/test_tenant.py::test_message_that_is_not_done_comes_again_and_a_done_one_never",
                "sdk/lprp/test_with_node.py::test_listener_killed_between_messages_gets_each_once",
            ],
        ),
        (
            "A message sent again with its id is one message",
            ["sdk/lprp/test_sender.py::test_same_id_again_does_not_arrive_twice"],
        ),
        (
            "Parts of a long message wait on your disk",
            ["sdk/lprp/test_tenant.py::test_parts_of_a_message_survive_a_restart_of_the_tenant"],
        ),
        (
            '"closed": only who has one already',
            ["protocols/lprp/relay/test_machine_work.py::test_closed_leases_are_renewed_only"],
        ),
    ],
    "docs/merk.md": [*MERK, *CANNOT.items()],
    "docs/merk_browser.md": BROWSER,
    **{f"src/waystation/console/web/page/{name}": promises for name, promises in PAGE.items()},
    "docs/operating.md": [
        (
            "Who is refused at a web port of several protocols before the path is known counts as `web`",
            [
                "server/whole/test_who_met_a_limit.py::test_ceiling_before_the_path_is_known_counts_for_the_port",
                (
                    "server/whole/test_who_met_a_limit.py::"
                    "test_ceiling_on_a_shared_port_counts_for_the_protocol_that_was_asked_for"
                ),
            ],
        ),
        (
            "met in the last six hours and by whom (since the start, where nobody is known to have met one)",
            ["cli/test_status.py::test_limits_of_the_last_six_hours_are_shown"],
        ),
        (
            "a sender of Bhumi or LPRP mail is never named",
            [
                "protocols/bhumi/test_limits.py::test_network_of_a_sender_stands_in_no_fact",
                "protocols/lprp/relay/test_refused.py::test_sender_of_mail_is_never_named",
            ],
        ),
        (
            "it holds on this node only and is announced to nobody",
            ["engine/test_access.py::test_ban_is_announced_to_nobody"],
        ),
        ("A ban wins over `allow`", ["engine/test_access.py::test_deny_wins_over_allow_and_a_ban_over_both"]),
        (
            "A client that is no trusted proxy cannot name an address, whatever it sends",
            [
                "transport/test_listen_proxies.py::test_client_that_is_no_proxy_cannot_name_an_address",
                "server/http/test_port.py::test_request_has_the_client_that_a_trusted_proxy_names",
            ],
        ),
        (
            "Bhumi senders prove none: they are only counted, by network",
            ["cli/test_status.py::test_status_shows_who_is_connected"],
        ),
        ("only these keys lease, and only these send", ["server/whole/test_access.py::test_lprp_leases_to_friends"]),
        (
            "nobody else publishes or subscribes, whatever `strata.anonymous` says, and packets are not served over",
            ["server/whole/test_access.py::test_strata_takes_who_proves_to_be_a_friend"],
        ),
        (
            "a table shrinks by two entries for each that comes",
            ["protocols/test_lowered_limits.py::test_full_table_shrinks_by_one_with_each_entry_that_comes"],
        ),
        (
            "`limits.enabled = false` lifts rates and ceilings per address for load tests, never the size of a table",
            [
                "engine/test_admission.py::test_total_holds_whatever_is_lifted",
                "protocols/lprp/relay/test_machine_limits.py::test_limits_hold_without_rate_limits",
            ],
        ),
        (
            "`/healthz`, `/readyz`, `/` | always, with a Host that is known and no foreign Origin",
            ["server/http/test_authorisation.py::test_index_names_what_is_open"],
        ),
        (
            "A node never ends because its store refuses a write",
            [
                "server/whole/test_store_faults.py::test_disk_that_fills_is_told_and_goes_on_when_there_is_room",
                "server/whole/test_store_faults.py::test_home_that_is_moved_stops_acknowledgements_until_it_is_back",
            ],
        ),
        (
            "A **sender** proves no identity to anybody, so it is never asked for one",
            ["sdk/bhumi/test_sender.py::test_the_relay_never_learns_who_sends"],
        ),
        (
            "configuration refused; the sentence names file, line and what is allowed",
            ["server/whole/test_serve_process.py::test_bad_setting_names_file_line_and_what_is_allowed"],
        ),
    ],
    "docs/strata.md": [
        (
            "a relay that has it says so, and keeps it once",
            ["protocols/strata/relay/test_intake.py::test_a_duplicate_is_one_however_old"],
        ),
        (
            "a packet that never left raises `RelayUnreachableError`",
            ["sdk/strata/test_relay.py::test_packet_that_never_left_is_not_unknown"],
        ),
        (
            "is plain base64 text, and only for the `server_id` that it pinned for that address",
            [
                "protocols/strata/client/test_auth.py::test_row_46_hostile_challenge_is_never_signed",
                "protocols/strata/client/test_auth.py::test_challenge_of_another_relay_is_refused_and_ends",
            ],
        ),
        (
            "A slow reader costs no memory, loses nothing, and is closed only when it takes no byte for 60 s",
            [
                "protocols/strata/test_requirements_26_to_45.py::test_row_45_slow_consumer",
                "protocols/strata/test_abuse.py::test_a_reader_that_takes_nothing_for_a_minute_is_closed",
            ],
        ),
        ("the last one only with `--yes`", ["cli/strata/test_keys.py::test_last_key_is_not_revoked_by_mistake"]),
        (
            "is flagged, never banned",
            [
                "protocols/strata/test_requirements_of_clients.py::test_row_42_a_pinned_relay_is_flagged_and_never_banned"
            ],
        ),
        (
            "what cannot be kept falls back with a notice",
            ["sdk/strata/test_many.py::test_row_47_profile_falls_back_with_a_notice"],
        ),
        (
            "Our relay logs no payloads, and addresses only where `node.connection_log` asks for them",
            [
                "server/strata/test_logs.py::test_row_44_no_payload_in_logs_or_journal",
                "server/test_connection_log.py::test_nothing_is_logged_unless_asked",
                "server/test_connection_log.py::test_reference_stands_in_place_of_identity_and_address",
            ],
        ),
    ],
}
"""By document: a sentence, and the tests that show it, under tests/."""


WORDS = re.compile(r"\b(never|always|only|kept|cannot|each|every|nobody|nothing)\b", re.IGNORECASE)
"""What a sentence that promises something often says."""


def words(text):
    """Return a text with one blank between words, so that a sentence is found over the ends of lines."""
    return re.sub(r"\s+", " ", text)


def unlisted(document, known):
    """Return the sentences and cells of a page, that say such a word and overlap nothing of ``known``."""
    prose = words(re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL))
    spans = [(prose.find(one), prose.find(one) + len(one)) for one in known if one in prose]
    said = re.finditer(r"(?:[^.;:|]|[.;:](?=\S))+", prose)
    return [
        each[0].strip()
        for each in said
        if WORDS.search(each[0]) and not any(start < each.end() and each.start() < end for start, end in spans)
    ]


def is_shown(place):
    """Return whether a test is there: a function of a Python file, or how a title of the browser SDK's tests begins."""
    file, _, name = place.partition("::")
    text = (ROOT / "tests" / file).read_text()
    if file.endswith(".py"):
        return f"def {name}(" in text
    return any(f"test({quote}{name}" in text for quote in "\"'`")


@pytest.mark.parametrize(
    ("document", "sentence", "tests"),
    [
        pytest.param(document, *promise, id=promise[0][:40])
        for document, promises in PROMISES.items()
        for promise in promises
    ],
)
def test_promise_has_a_test(document, sentence, tests):
    """The sentence stands in the document as it is here, and each test that shows it exists."""
    assert sentence in words((ROOT / document).read_text())
    assert tests
    assert [place for place in tests if not is_shown(place)] == []


@pytest.mark.parametrize(
    ("document", "no_promise"), [("docs/merk.md", NO_PROMISE), ("docs/merk_browser.md", BROWSER_NO_PROMISE)]
)
def test_every_sentence_that_promises_is_listed(document, no_promise):
    """A new sentence with such a word needs a test, or is listed as no promise."""
    assert unlisted(document, [*no_promise, *(sentence for sentence, _ in PROMISES[document])]) == []


def test_every_line_of_the_table_of_merk_names_its_tests():
    """What nobody can, as "Who can do what" has it, is what ``CANNOT`` has tests for, item by item."""
    _, _, table = (ROOT / "docs/merk.md").read_text().partition("| who | can | cannot |\n|---|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    said = [item.strip() for row in rows for item in row.split(" | ")[2].rstrip(" |").split(";")]

    assert len(rows) == 5
    assert said == list(CANNOT)
