"""Sentences of docs/merk.md that promise something, with the tests that hold it to them; ``test_promises`` reads it."""

_PROMISES = "sdk/merk/test_client_promises.py"
MERK = [
    (
        "exit code 0 only when it was accepted or stored",
        [
            "cli/merk/test_commands.py::test_text_json_and_file_arrive_encrypted",
            "cli/merk/test_commands.py::test_nobody_there_is_a_failure_with_a_sentence",
        ],
    ),
    (
        "A bound message is taken once, restarts included, and not when it is older than 14 days",
        [
            f"{_PROMISES}::test_replay_after_a_restart_is_dropped",
            "protocols/merk/client/test_seen_messages.py::test_replay_at_any_later_time_is_refused",
            "protocols/merk/client/test_machine_proofs.py::test_bound_message_of_another_time_is_dropped",
        ],
    ),
    (
        "never those of somebody whose messages were taken before it",
        ["protocols/merk/client/test_seen_messages.py::test_new_keys_make_no_friend_too_old"],
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
        "To a recipient that is not known to be one of ours they are refused, not altered",
        [f"{_PROMISES}::test_signed_bytes_that_an_original_would_misread_are_refused"],
    ),
    (
        "exit code 0 only when alice's program took it",
        ["cli/merk/test_commands.py::test_send_waits_for_the_reader"],
    ),
    (
        "what is larger is `too_large`, nothing of it leaves, and nothing else is lost",
        [
            f"{_PROMISES}::test_message_too_large_loses_no_other",
            "protocols/merk/client/test_machine_proofs.py::test_frame_larger_than_the_relay_takes_is_not_sent",
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
        "the relay there must prove the key that was told with the address, and the client goes back to",
        [
            f"{_PROMISES}::test_named_relay_is_used_last_and_only_with_the_key_that_was_named",
            f"{_PROMISES}::test_client_returns_to_the_users_own_relay",
        ],
    ),
    (
        "so a relay that passes challenges on cannot show that proof elsewhere",
        [
            "protocols/merk/client/test_machine_proofs.py::test_proof_of_the_relay_is_answered_with_ours",
            "protocols/merk/client/test_machine_proofs.py::test_relay_that_proves_nothing_gets_no_proof",
        ],
    ),
    (
        "| any relay on the way |",
        [
            "sdk/merk/test_client.py::test_encrypted_content_is_not_on_the_wire",
            "protocols/merk/payload/test_bound_form.py::test_nobody_can_pass_a_bound_message_off_as_his_own",
            f"{_PROMISES}::test_replay_after_a_restart_is_dropped",
            f"{_PROMISES}::test_read_is_said_when_the_program_takes_a_message_and_not_before",
        ],
    ),
    (
        "| a relay that you use |",
        [
            f"{_PROMISES}::test_relay_that_hides_an_advert_gets_no_legacy_form",
            f"{_PROMISES}::test_named_relay_is_used_last_and_only_with_the_key_that_was_named",
            "protocols/merk/client/test_machine_proofs.py::test_proof_of_the_relay_is_answered_with_ours",
        ],
    ),
    (
        "| a stranger's node that joins the mesh |",
        [f"{_PROMISES}::test_stranger_cannot_have_a_message_answered_as_his_own"],
    ),
    (
        "| a stranger's client |",
        [
            "protocols/merk/payload/test_sealing.py::test_other_sender_is_refused",
            f"{_PROMISES}::test_stranger_cannot_have_a_message_answered_as_his_own",
            f"{_PROMISES}::test_read_is_never_said_without_the_recipients_signature",
            "protocols/merk/client/test_seen_messages.py::test_flood_of_one_sender_costs_that_sender",
        ],
    ),
    (
        "| who steals your home |",
        ["sdk/merk/test_keys.py::test_damaged_or_open_file_is_refused"],
    ),
    (
        "refused parts go again after a pause",
        ["protocols/merk/payload/test_transfers.py::test_refused_part_is_sent_again_after_a_pause"],
    ),
    ("cleans the name and overwrites nothing", ["sdk/merk/test_message.py::test_nothing_is_overwritten"]),
    (
        "none that reads as signed content; after four such in a row the relay is not used any more",
        [
            "protocols/merk/client/test_machine_hostile.py::test_second_challenge_is_not_answered",
            "protocols/merk/client/test_machine_hostile.py::test_challenge_that_reads_as_signed_content_is_refused",
            "sdk/merk/test_relays.py::test_hostile_challenge_is_tried_three_times_again_and_never_signed",
        ],
    ),
    (
        "A relay that has proved its key must prove the same one next time",
        [
            "protocols/merk/client/test_machine_hostile.py::test_pinned_relay_must_be_the_one",
            "sdk/merk/test_servers.py::test_first_proved_key_is_pinned_until_the_server_is_removed",
        ],
    ),
    (
        "never in plain when the connection was encrypted, and never inside your network when the relay is not",
        ["protocols/merk/client/test_addresses.py::test_told_address_must_not_lead_to_worse_places"],
    ),
    (
        "false: only those in peers, whoever of the two dials",
        [
            "protocols/merk/relay/test_handshake.py::test_who_takes_no_peers_takes_no_peers",
            "server/merk/test_bridging.py::test_node_that_accepts_nobody_turns_an_original_away",
        ],
    ),
]
