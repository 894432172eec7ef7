"""Sentences of the browser SDK's guide and of the page itself, with the tests that hold them to them."""

_PAGE = "console/test_page.py"
_HISTORY = "console/test_page_history.py"
_WEB = "console/web"
_CLIENT = f"{_WEB}/client.test.mjs"
_DELIVERY = f"{_WEB}/delivery.test.mjs"
_LINK = f"{_WEB}/link.test.mjs"
_MAILBOXES = "protocols/merk/relay/test_mailboxes.py"
_MEMORY = f"{_WEB}/page_memory.test.mjs"
_SHARED = f"{_WEB}/shared_link.test.mjs"

BROWSER = [
    (
        "What a caller got wrong, or what cannot be done, rejects with a `LocalError`",
        [
            f"{_CLIENT}::bad keys, modes and values are the caller's errors",
            f"{_WEB}/arguments.test.mjs::wrong types throw at once, whatever the connection does, and nothing is",
        ],
    ),
    (
        "Tabs that begin at once get one identity",
        [f"{_SHARED}::tabs that begin at once make one identity, and another maker of the"],
    ),
    (
        "kept here and said to nobody",
        [f"{_WEB}/arguments.test.mjs::a nick is kept with its identity, and said to nobody"],
    ),
    (
        "no script can read them, but any script of the same origin can use them",
        [f"{_WEB}/crypto.test.mjs::keys, made or imported, are not exportable unless that was asked"],
    ),
    (
        "only a server that proves it is taken for this one",
        [f"{_WEB}/arguments.test.mjs::a server pushed by another is known by the key that the list names, and"],
    ),
    (
        "a page of https takes `wss://` only, and `ws://` to its own machine",
        [f"{_CLIENT}::a page of https takes wss addresses only, but for the machine itself"],
    ),
    (
        "the client proves its own (AUTH, for this node and this connection only)",
        [
            f"{_WEB}/session.test.mjs::a client proves itself to a server that proved its key, to this one and",
            f"{_DELIVERY}::a client says where it is, signed, on every connection and every five",
        ],
    ),
    (
        "`follower` in the others, `alone` where tabs cannot share. Each message reaches every tab.",
        [
            f"{_SHARED}::the first tab owns the socket, the second follows; both see one",
            f"{_SHARED}::without locks each tab is alone and says what that means",
            f"{_SHARED}::what arrives reaches every tab, byte for byte",
        ],
    ),
    (
        "Anything else is refused at once with a `LocalError`, before something is made or sent",
        [f"{_WEB}/arguments.test.mjs::wrong types throw at once, whatever the connection does, and nothing is"],
    ),
    (
        "leaves in the order of the calls, and no faster than a node takes it",
        [
            f"{_LINK}::frames leave in the order of the calls, whatever their size",
            f"{_DELIVERY}::frames leave at the server's pace: a burst at once, the rest as time",
            f"{_LINK}::what waits for the pace is bounded",
        ],
    ),
    (
        "`id` is the one that the recipient's `message` has",
        [f"{_DELIVERY}::a message that the recipient's program took is read, under the same id"],
    ),
    (
        "`outcome` is a promise that never rejects",
        [
            f"{_LINK}::what was sent when the connection ends is lost, and said so; after",
            f"{_WEB}/small.test.mjs::frames that wait for their outcome are bounded, and all end together",
        ],
    ),
    (
        "A call rejects, and nothing is sent, for a wrong key or mode, for what is larger than the server takes",
        [
            f"{_CLIENT}::bad keys, modes and values are the caller's errors",
            f"{_DELIVERY}::what the server takes is known before sending, and files are cut to fit",
            f"{_CLIENT}::raw bytes that an original would take for something else are refused",
            f"{_CLIENT}::to a recipient that nobody knows an encrypted message is the caller's",
        ],
    ),
    (
        "so that nobody can sign a ciphertext as his own, aim it at another, or send it again",
        [
            f"{_WEB}/bound.test.mjs::who signs a ciphertext as his own, or aims it at another identity",
            f"{_DELIVERY}::a message of before the restart is a repeat after it",
        ],
    ),
    (
        "a message in the weaker form is then neither sent to that key nor taken from it, whatever a server says later",
        [
            f"{_DELIVERY}::to a recipient known as able no legacy form is sent, not even when",
            f"{_DELIVERY}::a message of a sender known as able that comes in the legacy form, or",
        ],
    ),
    (
        "Whether a program took it, only `read` says",
        [f"{_DELIVERY}::a receipt that is not bound, or from somebody else, makes nothing read"],
    ),
    (
        "the connection ended first; nothing was told within 30 s",
        [f"{_LINK}::what was sent when the connection ends is lost, and said so; after"],
    ),
    (
        "sent by an original relay, which tells nothing",
        [f"{_LINK}::an original relay becomes ready unauthenticated, and tells no outcomes"],
    ),
    ("parts of it, never the file", [f"{_CLIENT}::a file that is cancelled stops and says so"]),
    (
        "null when nobody knows one. Kept for ten minutes; a newer one that the key has signed replaces an older one",
        [
            f"{_CLIENT}::a key of the directory is asked for again after ten minutes, and a",
            f"{_CLIENT}::a forged advert is not taken",
            f"{_CLIENT}::an older advert does not replace a newer one",
        ],
    ),
    (
        "every sender, once the listeners of `message` have [taken](#taking) it; nobody while there is none",
        [
            f"{_DELIVERY}::a ${{what}} that a program has not taken yet stays in the mailbox, is",
            f"{_DELIVERY}::nobody who only signed, wrote the legacy form, or is not listened to",
        ],
    ),
    (
        "Only an encrypted, bound message of whom was asked, which names the question, is the answer",
        [
            f"{_WEB}/asks.test.mjs::an answer of another, to another message, or not bound is none",
            f"{_WEB}/asks.test.mjs::an answer that comes late is a message that says what it answers",
        ],
    ),
    (
        "the recipient is not known to use a client of ours; nothing was sent",
        [f"{_WEB}/asks.test.mjs::who is not known to be able is not asked"],
    ),
    ('| `"never"` | nobody |', [f'{_DELIVERY}::with receipts "${{rule}}" nobody gets one unasked']),
    (
        "nobody but their recipient can read them",
        [f"{_WEB}/sealing.test.mjs::an encrypted frame goes to its recipient, whose agreement key must not"],
    ),
    (
        "It is renewed on each connection to it, for 30 days, and what came meanwhile follows by itself",
        [f"{_DELIVERY}::mail waits where its owner chose, comes once, and is deleted when the"],
    ),
    (
        "when the program has [taken](#taking) it, also one that was taken before or cannot be read",
        [
            f"{_DELIVERY}::mail waits where its owner chose, comes once, and is deleted when the",
            f"{_DELIVERY}::mail that came before is dropped as a repeat, and deleted all the same",
            f"{_DELIVERY}::mail that cannot be read is dropped, and deleted all the same",
        ],
    ),
    (
        "`dropped` with `not_taken`, nothing is remembered, and the mailbox gives it again on the next connection",
        [f"{_DELIVERY}::a ${{what}} that a program refuses is neither taken nor remembered"],
    ),
    (
        "what is beyond that is not taken (`queue_full`)",
        [f"{_DELIVERY}::what a program has and does not take is bounded: beyond that messages"],
    ),
    ("plain messages are always raw", [f"{_CLIENT}::${{mode}}: text, JSON and bytes arrive and their outcome is told"]),
    (
        "so that a message counts once across restarts too",
        [
            f"{_WEB}/seen.test.mjs::a message counts once, also after a restart, and each sender and owner",
            f"{_WEB}/seen.test.mjs::room is taken from whoever holds most of it, and a flood makes no other",
        ],
    ),
    (
        "`Math.random`, for waiting times only; keys and nonces come from WebCrypto",
        [f"{_WEB}/files.test.mjs::Math.random serves waiting times alone"],
    ),
    (
        "Where it cannot, keys are written as their secret bytes and are exportable",
        [f"{_WEB}/storage.test.mjs::${{name}}: an identity is the same when it is opened again, and its"],
    ),
    (
        "one program at a time uses it",
        [f"{_WEB}/storage.test.mjs::one program at a time uses a folder, and a program that died holds it"],
    ),
    (
        "The SDK computes nothing itself: Ed25519, X25519, SHA-256 and AES-GCM are the browser's",
        [f"{_WEB}/crypto.test.mjs::a page with ${{name}} gets one error of the SDK's own, which is a"],
    ),
    (
        "Browsers lend them to pages of https and of the own machine only",
        ["console/test_page_insecure.py::test_page_without_cryptography_leads_to_https"],
    ),
    (
        "where a browser stores nothing, so that keys are gone with the page",
        [f"{_WEB}/small.test.mjs::without a database, or where the browser forbids it, memory serves and"],
    ),
]

BROWSER_NO_PROMISE = [
    "Each resolves with `{ id, outcome, read }` when the frame is made",
    "only for original clients; ours find it in the key directory",
    "never use it as a path or as markup",
    "null for a client that shares nothing",
    "Keys are readable for every script of the origin",
]
"""Sentences of docs/merk_browser.md that have one of the words and promise nothing."""

PAGE = {
    "index.html": [
        (
            "It loads no script from anywhere but this relay",
            [
                "console/test_page_files.py::test_everything_comes_from_this_node",
                "console/test_site.py::test_policy_of_the_page_names_no_other_place",
            ],
        ),
        (
            "When they open it, you can write to each other; only the two of you can read it",
            [
                f"{_PAGE}::test_invitation_names_text_and_answer",
                f"{_PAGE}::test_nothing_that_is_written_can_be_read_on_the_way",
            ],
        ),
        (
            "When they open the link, or point a camera at the code, the conversation begins",
            [
                f"{_PAGE}::test_link_opened_in_a_browser_begins_the_conversation",
                "console/test_page_qr.py::test_camera_reads_the_invitation",
            ],
        ),
        ("so nothing can be encrypted for them", [f"{_PAGE}::test_message_that_cannot_be_encrypted_is_not_sent"]),
        (
            "What you write is encrypted in this page, and only they can open it",
            [f"{_PAGE}::test_nothing_that_is_written_can_be_read_on_the_way"],
        ),
        (
            "If it is the same for both of you, nobody stands in between",
            [f"{_MEMORY}::both sides see one safety number, and no other pair sees it"],
        ),
        (
            "of encrypted messages it sees no content",
            [f"{_PAGE}::test_nothing_that_is_written_can_be_read_on_the_way"],
        ),
    ],
    "settings.js": [
        (
            "When it loses them, only a backup brings them back",
            [f"{_HISTORY}::test_backup_restores_a_person_in_a_fresh_profile"],
        ),
        (
            "no script can take them out, and there is no backup of them",
            [f"{_HISTORY}::test_locked_keys_cannot_be_taken_out"],
        ),
        (
            "people are encrypted in this browser. The page asks for the passphrase when it is opened",
            [
                f"{_HISTORY}::test_passphrase_keeps_the_history_from_a_thief",
                f"{_MEMORY}::a passphrase seals every row, opens all again, and can be changed and",
            ],
        ),
        (
            "The file holds your keys and your people, no messages. Only this passphrase opens it; nobody can reset it",
            [f"{_HISTORY}::test_backup_restores_a_person_in_a_fresh_profile"],
        ),
        (
            "The link holds your keys. Only this passphrase opens it",
            [
                f"{_HISTORY}::test_second_device_takes_the_identity_by_a_link",
                "console/test_page_qr.py::test_camera_reads_the_second_devices_link",
                f"{_MEMORY}::every changed byte of what a passphrase seals is noticed, and a hostile",
            ],
        ),
        (
            "its messages are deleted from this browser",
            [f"{_HISTORY}::test_key_file_of_the_original_is_taken"],
        ),
        (
            "All messages and files of all conversations are deleted from this browser. People stay",
            [f"{_HISTORY}::test_deleted_messages_are_gone_and_people_stay"],
        ),
    ],
    "thread.js": [
        (
            "Blocked: nothing that they send reaches you",
            [f"{_HISTORY}::test_blocked_person_reaches_nobody_until_unblocked"],
        ),
    ],
    "message.js": [
        (
            "Its bytes are not kept here any more",
            [f"{_MEMORY}::bytes of the oldest files go first, their entries stay and say so"],
        ),
    ],
    "mailbox.js": [
        (
            "each usually for a week, and none when you stay away for 30 days",
            [
                f"{_MAILBOXES}::test_a_frame_expires",
                f"{_MAILBOXES}::test_a_mailbox_ends_with_its_owners_word_or_after_a_month_alone",
            ],
        ),
    ],
    "words.js": [
        (
            "It goes out by itself when there is one",
            [f"{_PAGE}::test_what_is_written_without_a_connection_goes_out_later"],
        ),
        ("keeps the message, encrypted, usually for a week", [f"{_PAGE}::test_mail_waits_for_who_is_away"]),
        (
            "its receipt is signed with their key",
            [f"{_DELIVERY}::a receipt that is not bound, or from somebody else, makes nothing read"],
        ),
        (
            "Every relay on the way can read it",
            [
                f"{_PAGE}::test_nothing_that_is_written_can_be_read_on_the_way",
                f"{_PAGE}::test_plain_message_says_that_it_is_plain",
            ],
        ),
    ],
}
"""By file of the page below src/waystation/console/web/page."""
