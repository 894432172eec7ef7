"""Sentences of docs/merk.md that promise something, with the tests that hold it to them; ``test_promises`` reads it."""

from tests.docs.merk_cannot import CANNOT

_CLI = "cli/merk/test_commands.py"
_MACHINE = "protocols/merk/client/test_machine"
_MAILBOX = "sdk/merk/test_mailbox.py"
_PAGE = "console/test_page.py"
_HISTORY = "console/test_page_history.py"
_PAYLOAD = "protocols/merk/payload"
_PROMISES = "sdk/merk/test_client_promises.py"
_RELAY = "protocols/merk/relay"
_SEEN = "protocols/merk/client/test_seen_messages.py"
_WEB = "console/web"

MERK = [
    (
        "two people of one name are told apart by their keys",
        [f"{_HISTORY}::test_own_label_wins_over_what_somebody_says"],
    ),
    (
        "it is your word and proves nothing",
        [f"{_WEB}/page_memory.test.mjs::a label wins over what a person says, and equal names are doubtful"],
    ),
    (
        "waiting for a connection, through a reload too",
        [f"{_PAGE}::test_what_is_written_without_a_connection_goes_out_later"],
    ),
    ("box: kept for them; two ticks: read by their program", [f"{_PAGE}::test_mail_waits_for_who_is_away"]),
    (
        "What failed says so in a sentence and can be sent again",
        [f"{_PAGE}::test_message_to_nobody_says_why_and_can_be_sent_again"],
    ),
    (
        "by their first bytes) are shown, a stranger's only after a press",
        [
            f"{_WEB}/page_shapes.test.mjs::a picture is known by its first bytes, never by what it is called",
            f"{_PAGE}::test_picture_of_a_stranger_waits_for_a_press",
        ],
    ),
    (
        "then the oldest of whoever has most give way, those of people you never answered before others",
        [
            f"{_WEB}/page_memory.test.mjs::history keeps its bound by letting the oldest go",
            f"{_WEB}/page_memory.test.mjs::bytes of the oldest files go first, their entries stay and say so",
            f"{_WEB}/page_memory.test.mjs::a flood of people never answered pushes out no message of others, and",
            f"{_WEB}/page_memory.test.mjs::strangers give way to strangers, never those one has written to or",
        ],
    ),
    (
        "they stand there encrypted; how many rows there are and how long they are can be seen",
        [f"{_HISTORY}::test_passphrase_keeps_the_history_from_a_thief"],
    ),
    (
        "keys and name, in the file the people too, never messages",
        [f"{_HISTORY}::test_backup_restores_a_person_in_a_fresh_profile"],
    ),
    (
        "Of two devices with one identity the one that connected last gets the messages",
        [f"{_RELAY}/test_handshake.py::test_a_newer_connection_of_a_key_replaces_the_older"],
    ),
    (
        "from then on no script can take the keys out of the browser, and there is no backup any more",
        [f"{_HISTORY}::test_locked_keys_cannot_be_taken_out"],
    ),
    (
        "the same on both sides, or somebody stands between",
        [
            f"{_HISTORY}::test_two_people_see_one_safety_number",
            f"{_WEB}/page_memory.test.mjs::both sides see one safety number, and no other pair sees it",
        ],
    ),
    (
        "what a blocked key sends is neither shown nor kept",
        [f"{_HISTORY}::test_blocked_person_reaches_nobody_until_unblocked"],
    ),
    (
        "the page says so and leads to the node's https address",
        ["console/test_page_insecure.py::test_page_without_cryptography_leads_to_https"],
    ),
    (
        "reconnects for ever and at once when the page is looked at again; tabs of one identity share one connection",
        [
            f"{_WEB}/link.test.mjs::an unreachable server is tried for ever, with growing waits",
            f"{_PAGE}::test_hidden_page_comes_back_after_its_node_did",
            f"{_PAGE}::test_tabs_of_one_identity_share_one_connection",
        ],
    ),
    (
        "as the page itself uses it, never changes and may be cached for ever",
        [
            "console/test_site.py::test_sdk_under_its_hash_is_kept_for_ever",
            "console/test_site.py::test_hash_changes_with_any_file",
        ],
    ),
    (
        "exit code 0 only when it was accepted or stored",
        [
            f"{_CLI}::test_text_json_and_file_arrive_encrypted",
            f"{_CLI}::test_nobody_there_is_a_failure_with_a_sentence",
        ],
    ),
    ("exit code 0 only when alice's program took it", [f"{_CLI}::test_send_waits_for_the_reader"]),
    ("a second one with the same home is refused", [f"{_CLI}::test_second_program_with_the_same_home_is_refused"]),
    ("[cli.md](cli.md) lists every option", ["tools/test_docs.py::test_every_command_has_a_section"]),
    (
        "yours first, then told ones, 64 at most, and the key that each must prove",
        [
            "sdk/merk/test_servers.py::test_added_ones_go_first_and_the_selected_one_before_them",
            "sdk/merk/test_servers.py::test_told_ones_are_taken_while_there_is_room",
            "sdk/merk/test_servers.py::test_first_proved_key_is_pinned_until_the_server_is_removed",
        ],
    ),
    (
        "A receipt that finds nobody goes again three times within half a minute, and not when it may have arrived",
        [
            "sdk/merk/test_receipts.py::test_receipt_that_finds_nobody_goes_again",
            "sdk/merk/test_receipts.py::test_receipt_that_never_finds_anybody_is_given_up",
        ],
    ),
    (
        "A power cut makes no message new that was reported to its sender as read, or to your mailbox as taken",
        [
            "sdk/merk/test_seen_store.py::test_nobody_learns_of_a_message_that_a_power_cut_makes_new",
            "sdk/merk/test_seen_store.py::test_names_are_synced_soon_where_nobody_learns_of_them",
        ],
    ),
    (
        "no connected node has the recipient, or nobody knows its key",
        [
            "sdk/merk/test_client.py::test_message_to_nobody",
            "sdk/merk/test_client.py::test_nobody_knows_the_key",
        ],
    ),
    (
        "The client paces itself below a relay's default rates and has at most 64 MiB under way",
        [
            f"{_PROMISES}::test_sends_at_once_stay_below_the_relays_rate",
            f"{_PROMISES}::test_original_relay_holds_back_who_sends_faster_than_it_reads",
        ],
    ),
    (
        "what is larger is `too_large`, nothing of it leaves, and nothing else is lost",
        [
            f"{_PROMISES}::test_message_too_large_loses_no_other",
            f"{_MACHINE}_proofs.py::test_frame_larger_than_the_relay_takes_is_not_sent",
        ],
    ),
    (
        "an encrypted, bound message of the peer that was asked, which names the question, is taken for the answer",
        [
            "sdk/merk/test_asks.py::test_answer_of_another_is_none",
            "sdk/merk/test_asks.py::test_answer_that_is_not_bound_to_the_question_is_none",
            "sdk/merk/test_asks.py::test_late_answer_is_a_message_that_says_what_it_answers",
        ],
    ),
    (
        "A peer that is not known to use a client of ours is not asked (`CannotAnswerError`), a message that is not",
        [
            "sdk/merk/test_asks.py::test_who_cannot_answer_is_not_asked",
            "sdk/merk/test_asks.py::test_what_has_no_answer_is_refused",
        ],
    ),
    (
        "certainly did not arrive; `UncertainError`",
        ["sdk/merk/test_asks.py::test_question_that_was_not_delivered_ends_at_once"],
    ),
    (
        "A bound message is taken once, restarts included, and not when it is older than 14 days",
        [
            f"{_PROMISES}::test_replay_after_a_restart_is_dropped",
            f"{_SEEN}::test_replay_at_any_later_time_is_refused",
            f"{_MACHINE}_proofs.py::test_bound_message_of_another_time_is_dropped",
        ],
    ),
    (
        "never those of somebody whose messages were taken before it",
        [f"{_SEEN}::test_new_keys_make_no_friend_too_old"],
    ),
    (
        "within ten minutes count as one, since nothing tells them from a replay",
        [f"{_SEEN}::test_signed_words_of_an_original_count_once_in_ten_minutes"],
    ),
    (
        "less than the bound form is neither sent to it nor taken from it",
        [
            f"{_PROMISES}::test_legacy_form_of_an_able_sender_is_not_taken",
            f"{_PROMISES}::test_relay_that_hides_an_advert_gets_no_legacy_form",
            "sdk/merk/test_recipients.py::test_who_was_once_able_stays_able",
        ],
    ),
    (
        "Each client of ours publishes its own after connecting",
        ["sdk/merk/test_relays.py::test_own_key_is_advertised_after_each_connection"],
    ),
    (
        "raises `KeyChangedError` and nothing is sent, until `accept_key` (`send --accept-new-key`)",
        [
            "sdk/merk/test_client.py::test_changed_key_stops_the_message_until_it_is_accepted",
            f"{_CLI}::test_changed_agreement_key_warns_and_sends_nothing",
        ],
    ),
    (
        "An older one counts for nothing",
        ["sdk/merk/test_recipients.py::test_older_advert_counts_for_nothing"],
    ),
    (
        "it is pinned, unless its owner has published another",
        ["sdk/merk/test_directory.py::test_given_key_that_is_not_the_published_one_is_not_pinned"],
    ),
    (
        "To a recipient that is not known to be one of ours they are refused, not altered",
        [f"{_PROMISES}::test_signed_bytes_that_an_original_would_misread_are_refused"],
    ),
    (
        "at most 16 under way, each paced by the notice of the one before",
        [f"{_PAYLOAD}/test_transfers.py::test_window_begins_with_one_and_grows_to_its_limit"],
    ),
    (
        "refused parts go again after a pause, and a broken connection costs only the parts under way",
        [
            f"{_PAYLOAD}/test_transfers.py::test_refused_part_is_sent_again_after_a_pause",
            "sdk/merk/test_client.py::test_file_survives_a_broken_connection",
        ],
    ),
    (
        "the whole is checked against its SHA-256",
        ["sdk/merk/test_download_buffer.py::test_wrong_digest_is_refused_and_removed"],
    ),
    (
        "cleans the name and overwrites nothing",
        [
            "sdk/merk/test_message.py::test_nothing_is_overwritten",
            f"{_PAYLOAD}/test_file_names.py::test_names_lead_nowhere_else",
        ],
    ),
    (
        "prove nothing about themselves and tell no outcomes",
        [
            f"{_MACHINE}.py::test_original_relay_is_known_by_its_silence",
            f"{_MACHINE}.py::test_original_relay_tells_no_outcome",
        ],
    ),
    (
        "none that reads as signed content; after four such in a row the relay is not used any more",
        [
            f"{_MACHINE}_hostile.py::test_second_challenge_is_not_answered",
            f"{_MACHINE}_hostile.py::test_challenge_that_reads_as_signed_content_is_refused",
            "sdk/merk/test_relays.py::test_hostile_challenge_is_tried_three_times_again_and_never_signed",
        ],
    ),
    (
        "A relay that has proved its key must prove the same one next time",
        [
            f"{_MACHINE}_hostile.py::test_pinned_relay_must_be_the_one",
            "sdk/merk/test_servers.py::test_first_proved_key_is_pinned_until_the_server_is_removed",
        ],
    ),
    (
        "never in plain when the connection was encrypted, and never inside your network when the relay is not",
        ["protocols/merk/client/test_addresses.py::test_told_address_must_not_lead_to_worse_places"],
    ),
    (
        "the relay there must prove the key that was told with the address, and the client goes back to",
        [
            f"{_PROMISES}::test_named_relay_is_used_last_and_only_with_the_key_that_was_named",
            f"{_PROMISES}::test_client_returns_to_the_users_own_relay",
        ],
    ),
    (
        "so a relay that passes challenges on cannot show that proof elsewhere",
        [
            f"{_MACHINE}_proofs.py::test_proof_of_the_relay_is_answered_with_ours",
            f"{_MACHINE}_proofs.py::test_relay_that_proves_nothing_gets_no_proof",
        ],
    ),
    (
        "with an original at either end a message is `legacy` or `none`",
        [
            f"{_PAYLOAD}/test_sealing.py::test_legacy_form_is_legacy_whatever_its_signature_covers",
            f"{_PROMISES}::test_legacy_message_has_one_id_on_both_sides",
        ],
    ),
    (
        "`stored` means that the frame is on the disk of that relay",
        [
            f"{_RELAY}/test_mailing.py::test_a_sender_hears_stored_once_the_frame_is_on_disk",
            f"{_MAILBOX}::test_stored_survives_a_killed_node",
        ],
    ),
    (
        "It stays there until the recipient's program has taken it, for 7 days; newer messages never push it out",
        [
            f"{_RELAY}/test_mailboxes_random.py::test_what_was_said_to_be_kept_is_kept_until_it_is_taken_or_over",
            f"{_RELAY}/test_mailboxes.py::test_at_each_limit_the_next_frame_is_refused",
            f"{_RELAY}/test_mailboxes.py::test_a_frame_expires",
        ],
    ),
    (
        "also when it has been restarted meanwhile",
        [f"{_MAILBOX}::test_a_sender_that_was_restarted_learns_that_its_message_was_read"],
    ),
    (
        "What was not handed out when the program ends comes again to the next one",
        [
            f"{_MAILBOX}::test_what_the_program_did_not_take_comes_again",
            f"{_MAILBOX}::test_a_file_is_kept_in_parts_and_taken_whole",
        ],
    ),
    (
        "The relay reads nothing of it",
        ["sdk/merk/test_client.py::test_encrypted_content_is_not_on_the_wire"],
    ),
    (
        "only encrypted messages are kept",
        [f"{_RELAY}/test_mailing.py::test_what_is_written_in_clear_is_not_kept"],
    ),
    (
        "A stranger fills no mailbox",
        [
            f"{_RELAY}/test_mailing.py::test_a_hostile_sender_fills_its_share_and_others_are_stored",
            f"{_RELAY}/test_mailboxes.py::test_a_stranger_with_many_keys_leaves_room_for_others",
            f"{_RELAY}/test_mailing_nodes.py::test_frames_that_one_node_brings_have_a_share",
        ],
    ),
    (
        "when its owner does not come for 30 days",
        [
            f"{_RELAY}/test_mailboxes.py::test_a_mailbox_ends_with_its_owners_word_or_after_a_month_alone",
            f"{_RELAY}/test_mailboxes.py::test_an_owner_that_comes_keeps_its_mailbox",
        ],
    ),
    (
        "gives no mailbox and takes no more mail; what was accepted is given out",
        [f"{_RELAY}/test_mailing.py::test_a_node_without_mailboxes_names_no_such_feature_and_refuses"],
    ),
    (
        "`backup`, `restore` and `check` have them",
        [
            "server/merk/test_mail_on_disk.py::test_a_backup_of_a_live_node_has_the_mail",
            "server/merk/test_mail_on_disk.py::test_check_names_a_damaged_letter",
        ],
    ),
    (
        "so a new sender can encrypt to it after a restart of the node",
        [f"{_MAILBOX}::test_a_new_sender_writes_to_who_is_away_after_a_killed_node"],
    ),
    (
        "false: only those in peers, whoever of the two dials",
        [
            f"{_RELAY}/test_handshake.py::test_who_takes_no_peers_takes_no_peers",
            "server/merk/test_bridging.py::test_node_that_accepts_nobody_turns_an_original_away",
        ],
    ),
    (
        "Keys and addresses that are pinned meanwhile hold in memory and are written with the next change",
        ["sdk/test_refusing_disks.py::test_merk_delivers_while_its_lists_cannot_be_written"],
    ),
    (
        "Nodes prove their keys to each other, tell each other whom they know, and link directly",
        [
            f"{_RELAY}/test_handshake.py::test_a_node_that_proves_itself_is_a_peer",
            f"{_RELAY}/test_mesh_links.py::test_nodes_of_a_line_find_each_other",
        ],
    ),
    (
        "a frame crosses one link at most",
        [f"{_RELAY}/test_routing_nodes.py::test_a_forwarded_frame_for_nobody_here_is_never_sent_on"],
    ),
    (
        "One name in `peers` is enough when every node has a `public_url`",
        [f"{_RELAY}/test_mesh_links.py::test_nodes_of_a_line_find_each_other"],
    ),
    (
        "keeps the addresses of nodes that proved themselves over a restart",
        [
            f"{_RELAY}/test_mesh_links.py::test_the_table_survives_a_restart",
            f"{_RELAY}/test_mesh_links.py::test_nothing_is_told_of_a_node_that_proved_nothing",
        ],
    ),
    (
        "our clients then reach its clients, not the other way round",
        ["server/merk/test_bridging.py::test_original_that_we_dial_gets_our_frames"],
    ),
    (
        "gets both ways",
        ["server/merk/test_bridging.py::test_original_that_dials_us_is_bridged_both_ways"],
    ),
    (
        "each limit is a setting of `[limits.merk]`",
        [f"{_RELAY}/test_machine_floods.py::test_limits_are_those_of_the_wire_reference"],
    ),
]

NO_PROMISE = [
    "of others, taken within 0.2 s before it, the names can be lost",
    "The [wire reference](../specs/merk.md) has every byte",
    "What they and others can and cannot do beside that stands in",
    "**Your disk refuses** (full, read-only)",
    "Without, name every node",
    "Three on one machine, each with its own terminal",
    "| who | can | cannot |",
]
"""Sentences of docs/merk.md that have one of the words and promise nothing."""

README = [
    (
        "learns what its relay says of every frame**, and whether the recipient's program read it",
        [
            "sdk/merk/test_client.py::test_many_messages_at_once_have_an_outcome_each",
            "sdk/merk/test_client_promises.py::test_read_is_said_when_the_program_takes_a_message_and_not_before",
            "sdk/merk/test_client_promises.py::test_read_is_never_said_without_the_recipients_signature",
        ],
    ),
    (
        "No relay can read an encrypted message or make one of another author",
        [*CANNOT["read an encrypted message"], *CANNOT["sign it as another author's"]],
    ),
    (
        "**What a MERK mailbox has `stored` is on its disk** until the recipient's program takes it, for 7 days",
        [
            "sdk/merk/test_mailbox.py::test_stored_survives_a_killed_node",
            (
                "protocols/merk/relay/test_mailboxes_random.py::"
                "test_what_was_said_to_be_kept_is_kept_until_it_is_taken_or_over"
            ),
        ],
    ),
    (
        "MERK keeps no message for a recipient who is away without a mailbox",
        ["protocols/merk/relay/test_mailing.py::test_without_a_mailbox_nothing_is_kept"],
    ),
]
