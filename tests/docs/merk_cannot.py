"""What nobody can, by the table of docs/merk.md, with the tests that hold it to that; ``test_promises`` reads it."""

_MACHINE = "protocols/merk/client/test_machine"
_PAGE = "console/test_page.py"
_PAYLOAD = "protocols/merk/payload"
_PROMISES = "sdk/merk/test_client_promises.py"
_RELAY = "protocols/merk/relay"
_WEB = "console/web"

CANNOT = {
    "read an encrypted message": [
        "sdk/merk/test_client.py::test_encrypted_content_is_not_on_the_wire",
        f"{_PAGE}::test_nothing_that_is_written_can_be_read_on_the_way",
    ],
    "sign it as another author's": [
        f"{_PAYLOAD}/test_bound_form.py::test_nobody_can_pass_a_bound_message_off_as_his_own",
        f"{_PAYLOAD}/test_sealing.py::test_every_byte_of_a_bound_frame_is_covered",
        f"{_WEB}/bound.test.mjs::who signs a ciphertext as his own, or aims it at another identity",
    ],
    "hand it out twice, a restart in between": [
        f"{_PROMISES}::test_replay_after_a_restart_is_dropped",
        f"{_WEB}/delivery.test.mjs::a message of before the restart is a repeat after it",
    ],
    "say `read`": [
        f"{_PROMISES}::test_read_is_never_said_without_the_recipients_signature",
        f"{_PROMISES}::test_read_is_said_when_the_program_takes_a_message_and_not_before",
        f"{_WEB}/delivery.test.mjs::a receipt that is not bound, or from somebody else, makes nothing read",
    ],
    "talk your client back to the legacy form": [
        f"{_PROMISES}::test_relay_that_hides_an_advert_gets_no_legacy_form",
        f"{_PROMISES}::test_legacy_form_of_an_able_sender_is_not_taken",
    ],
    "have it use a relay that does not prove the key that was named": [
        f"{_PROMISES}::test_named_relay_is_used_last_and_only_with_the_key_that_was_named",
        f"{_WEB}/arguments.test.mjs::a server pushed by another is known by the key that the list names, and",
    ],
    "learn a proof that holds elsewhere": [
        f"{_MACHINE}_proofs.py::test_relay_that_proves_nothing_gets_no_proof",
        f"{_RELAY}/test_machine_hostile.py::test_a_proof_made_for_one_node_is_worth_nothing_at_another",
        f"{_RELAY}/test_machine_strangers.py::test_the_proof_of_another_relay_is_none",
    ],
    "answer with your plaintext as its own author, since a bot does not get what it signed anew": [
        f"{_PROMISES}::test_stranger_cannot_have_a_message_answered_as_his_own",
    ],
    "draw mail of a client whose presence it cannot show": [
        f"{_RELAY}/test_machine_strangers.py::test_a_strangers_claim_draws_no_mail",
        f"{_RELAY}/test_presences.py::test_a_false_presence_draws_no_mail",
        f"{_RELAY}/test_mailing_nodes.py::test_a_node_that_claims_a_mailbox_without_the_owners_word_gets_nothing",
    ],
    "bring a frame that its sender has not signed": [
        f"{_RELAY}/test_machine_strangers.py::test_a_stranger_brings_no_invented_sender",
    ],
    "send faster than a client": [
        f"{_RELAY}/test_machine_strangers.py::test_a_stranger_has_the_rates_of_a_client",
    ],
    "take the place of a node of `merk.peers`": [
        f"{_RELAY}/test_handshake.py::test_peers_of_the_operator_have_room_when_strangers_have_taken_theirs",
        f"{_RELAY}/test_handshake.py::test_strangers_have_half_of_the_places",
    ],
    "send your clients to an address that your node's own dial has not proved": [
        f"{_RELAY}/test_machine_strangers.py::test_clients_get_no_address_that_only_a_stranger_says",
        f"{_RELAY}/test_mesh.py::test_a_claim_that_another_key_answers_is_given_to_no_client",
    ],
    "write in another's name": [
        f"{_RELAY}/test_machine_hostile.py::test_a_forged_sender_is_dropped_and_counted",
        f"{_PAYLOAD}/test_sealing.py::test_other_sender_is_refused",
    ],
    "be told what others wrote by signing it anew": [
        f"{_PROMISES}::test_stranger_cannot_have_a_message_answered_as_his_own",
    ],
    "send a receipt for a message to somebody else": [
        f"{_PROMISES}::test_read_is_never_said_without_the_recipients_signature",
    ],
    "cut a slow reader, or fill more than his part of its queue": [
        f"{_RELAY}/test_machine_floods.py::test_a_slow_reader_is_not_cut_for_what_others_send",
        f"{_RELAY}/test_delivery.py::test_one_sender_fills_no_more_than_its_share",
    ],
    "fill, with readers of one network that take nothing, more than an eighth of what waits for all": [
        f"{_RELAY}/test_outbox.py::test_large_frames_of_one_turn_are_bounded_over_one_network",
        f"{_RELAY}/test_outbox.py::test_bytes_of_a_network_are_counted_once_and_given_back",
    ],
    "get your mail by a login that a hostile relay passed on": [
        f"{_RELAY}/test_machine_strangers.py::test_a_relayed_login_never_replaces_a_proved_session",
        f"{_RELAY}/test_machine_strangers.py::test_a_relayed_login_of_a_key_that_is_able_gets_no_mail",
    ],
    "read what you had sent": [
        f"{_PAYLOAD}/test_bound_form.py::test_thief_of_a_home_reads_what_was_recorded_for_it_and_not_what_it_sent",
    ],
    "sign in another's name": [f"{_PAYLOAD}/test_bound_form.py::test_thief_of_a_home_signs_in_no_other_name"],
}
"""What the last column of "Who can do what" says, one by one."""
