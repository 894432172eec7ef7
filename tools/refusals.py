"""Generates docs/refusals.md: each protocol's refusal reasons, their meaning, and what the other side receives."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from waystation.engine.admission import AdmissionRefusal
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bsp.refusals import Refusal as BspRefusal
from waystation.protocols.lprp.refusals import Refusal as LprpRefusal
from waystation.protocols.merk.refusals import Refusal as MerkRefusal
from waystation.protocols.strata.refusals import Code, End
from waystation.server.box.refusals import BoxRefusal

__all__ = ["REFUSALS", "refusals", "table"]

_CLOSED: Final = "The connection closes without a frame."
_STAYS: Final = "Nothing; it is counted and the connection stays."
_CODE_2: Final = "DELIVERY 2 to who asked for notices."
_AT_ONCE: Final = "The connection closes before the TLS handshake."

_OR_LISTS: Final = ", or `[access]` keeps it out"
_ADDRESS_REFUSED: Final = f"{_AT_ONCE} One that stands ends, on a WebSocket with 1008. Datagrams are dropped."


def _error(code: str, extra: str = "") -> str:
    return f"ERROR `{code}`{f' with {extra}' if extra else ''}; the connection stays."


_BHUMI: Final[dict[Enum, tuple[str, str]]] = {
    Refusal.TRUNCATED: ("A frame is shorter than the structure it announces.", _CLOSED),
    Refusal.TRAILING_BYTES: ("Bytes follow the structure inside its frame.", _CLOSED),
    Refusal.INNER_LENGTH: ("An inner length disagrees with the frame's.", _CLOSED),
    Refusal.OVERSIZE: ("The header announces more than this type may carry.", _CLOSED),
    Refusal.WRONG_DIRECTION: ("A frame that only the other side may send.", _CLOSED),
    Refusal.UNKNOWN_TYPE: ("A type below 0x40 that no version has.", _CLOSED),
    Refusal.TOO_MANY_COMMITS: ("More than 4 096 commits in one frame.", _CLOSED),
    Refusal.BAD_VERSION: ("HELLO names a version that we do not speak; only a client refuses this.", _CLOSED),
    Refusal.END_INSIDE_FRAME: ("The stream ends in the middle of a frame.", "Nothing; it has closed already."),
    Refusal.BAD_ADDRESS: (
        "An extension frame names a relay by something else than tls://host:port or tcp://host:port.",
        _CLOSED,
    ),
    Refusal.BAD_VERDICT: ("QA_REPORT with a verdict above 4.", _CLOSED),
    Refusal.BAD_WATCH: ("WATCH that neither begins nor ends a watch.", _CLOSED),
    Refusal.BAD_AUTHORITY: ("AUTHORITY without a certificate, or with one of more than 4,096 bytes.", _CLOSED),
    Refusal.BAD_RECORD: ("GOSSIP holds a record of another kind or length.", _CLOSED),
    Refusal.BAD_SIGNATURE: ("I_AM is not signed by the identity over this connection's nonce.", _CLOSED),
    Refusal.OTHER_IDENTITY: (
        "A second I_AM names somebody else; BIND names another relay than the one a client knows there.",
        _CLOSED,
    ),
    Refusal.IDENTITY_BANNED: (f"The operator has banned the identity{_OR_LISTS}.", _CLOSED),
    Refusal.ACK_STRIKES: ("The sixteenth ACK for a number that was never sent.", _CLOSED),
    Refusal.RECORD_STRIKES: ("The sixteenth signed record of a connection that no honest peer would send.", _CLOSED),
    Refusal.BAD_BINDING: ("BIND does not prove the identity to this relay.", _CLOSED),
    Refusal.BINDING_MISSING: (
        "The operator demands BIND, and the identity cannot or does not prove itself within 10 s.",
        _CLOSED,
    ),
    Refusal.FRAME_TIMEOUT: ("A frame took longer than 10 s from its first to its last byte.", _CLOSED),
    Refusal.IDLE_TIMEOUT: ("Silence for 120 s, or for 60 s without an identity or anything outstanding.", _CLOSED),
    Refusal.WRITE_TIMEOUT: ("The peer took none of its bytes for 10 s.", "The connection is cut; cached answers stay."),
    Refusal.REPLACED: ("The same identity has identified itself on a newer connection.", _CLOSED),
    Refusal.SHUTDOWN: ("The node stops.", "The connection closes after what was sent has left."),
    Refusal.DOUBLE_LINK: ("Two links between the same two relays; it is not counted.", _CLOSED),
    Refusal.OWN_KEY: ("A relay that dialled itself; it is not counted.", _CLOSED),
    Refusal.NO_GOSSIP: ("A relay that we dialled does not gossip; only the one that dials refuses this.", _CLOSED),
    Refusal.CONTACTS_FULL: ("64 other relays have dialled us and gossip, 4 of them from its address.", _CLOSED),
    Refusal.UNSOLICITED_ACK: ("An ACK for a number that was never sent to this identity.", _STAYS),
    Refusal.COMMITS_WITHOUT_IDENTITY: ("UPDATE_COMMITS before I_AM.", _STAYS),
    Refusal.COMMITS_OVER_LIMIT: ("Commits beyond 4 096 of one identity.", _STAYS),
    Refusal.CARRIED_OVER_QUOTA: ("Carried answers beyond the quotas of one I_AM or one identity.", _STAYS),
    Refusal.CARRIED_DUPLICATE: ("A carried answer for a preimage that has one.", _STAYS),
    Refusal.LATE_OVER_LIMIT: ("No room to remember a delivery whose ACK is late.", _STAYS),
    Refusal.UNKNOWN_EXTENSION: (
        "An extension frame (0x40 and above) that this relay does not know, or that this connection has not agreed on.",
        _STAYS,
    ),
    Refusal.RECORD_TTL: ("A signed record that lasts longer than one of its kind may, or not at all.", _STAYS),
    Refusal.RECORD_FROM_FUTURE: ("A signed record from more than 120 s ahead of our clock.", _STAYS),
    Refusal.RECORD_EXPIRED: ("A signed record whose time is over.", _STAYS),
    Refusal.RECORD_SIGNATURE: ("A record that its owner has not signed.", _STAYS),
    Refusal.FOREIGN_PRESENCE: ("PRESENCE or RELAY_AD on a connection that is not its owner's.", _STAYS),
    Refusal.PRIVATE_ADDRESS: ("An advert of an address that is not on the open internet.", _STAYS),
    Refusal.TABLE_FULL: ("No room for a signed record; those that stand last longer.", _STAYS),
    Refusal.PRESENCE_FLOOD: ("More PRESENCE or RELAY_AD than 6 a minute and a burst of 16.", _STAYS),
    Refusal.WHERE_FLOOD: ("More WHERE or RELAYS_REQ than 5 a second and a burst of 20.", "An empty answer."),
    Refusal.GOSSIP_FLOOD: ("More frames of a contact, or more new records, than it has an allowance for.", _STAYS),
    Refusal.GOSSIP_WITHOUT_IDENTITY: ("GOSSIP before I_AM.", _STAYS),
    Refusal.UNASKED_REPORT: ("QA_REPORT that answers no request of ours, or too late.", _STAYS),
    Refusal.WATCHES_FULL: ("More watches than 64 of one connection, or 65,536 of all.", "WATCHED 2."),
    Refusal.RECIPIENT_QUEUE_FULL: (
        "The recipient has 32 deliveries without an ACK.",
        "SEND_RESULT 1; the commit stays.",
    ),
    Refusal.TOO_MANY_JOINERS: ("More than 1,024 SENDs wait for one exchange under way.", "SEND_RESULT 3."),
}
_STRATA: Final[dict[Enum, tuple[str, str]]] = {
    Code.INVALID_SIGNATURE: ("The id is wrong, or no key of the author signed.", _error("invalid_signature")),
    Code.INVALID_SCHEMA: ("A frame, message or packet is malformed.", _error("invalid_schema")),
    Code.PACKET_TOO_LARGE: (
        "The canonical packet is larger than this relay takes.",
        _error("packet_too_large", "max_bytes"),
    ),
    Code.RATE_LIMITED: (
        "An allowance or the budget of trust edges is spent.",
        _error("rate_limited", "retry_after, limit, remaining, window_seconds") + " HTTP answers 429.",
    ),
    Code.BLOCKED_AUTHOR: ("The operator declines the author.", _error("blocked_author")),
    Code.UNAUTHENTICATED: ("The connection lacks a capability, or its AUTH failed.", _error("unauthenticated")),
    Code.INTERNAL_ERROR: ("The node stops, or its store takes nothing now.", _error("internal_error")),
    Code.INVALID_PROVENANCE: ("Device or model did not sign what the header claims.", _error("invalid_provenance")),
    Code.MISSING_PROOF: ("A claim of device or model without its proof.", _error("missing_proof")),
    Code.INVALID_ISSUER_CHAIN: ("The chain does not lead to a root of this relay.", _error("invalid_issuer_chain")),
    Code.INVALID_ATTESTATION: ("Evidence that no verifier here understands.", _error("invalid_attestation")),
    Code.INVALID_CURSOR: (
        "The cursor is unreadable, or of another filter, order or store.",
        _error("invalid_cursor") + " An older subscription of that id stays.",
    ),
    Code.KEY_EXPIRED: ("The key that signed was past its end.", _error("key_expired")),
    Code.KEY_REVOKED: ("The key that signed was revoked.", _error("key_revoked")),
    Code.KEY_NOT_YET_VALID: ("The key that signed had not begun.", _error("key_not_yet_valid")),
    Code.INVALID_TIMESTAMP: ("The packet is outside the accepted time.", _error("invalid_timestamp", "server_time")),
    Code.BLOCKED_CONTENT: ("The operator declines the packet or its media.", _error("blocked_content")),
    Code.TOO_MANY_SUBSCRIPTIONS: (
        "32 subscriptions of one connection stand.",
        _error("too_many_subscriptions", "limit"),
    ),
    Code.UNSUPPORTED_PROFILE: ("A replication profile that is not offered.", _error("unsupported_profile")),
}
_STRATA_ENDS: Final[dict[Enum, tuple[str, str]]] = {
    End.SHUTDOWN: ("The node stops.", "Close 1001, after what was sent has left."),
    End.INVALID_TEXT: ("A text frame is no UTF-8.", "Close 1007."),
    End.MALFORMED: (
        "Too many malformed frames in a row (`limits.strata.malformed`, 20).",
        "The last ERROR, then close 1008.",
    ),
    End.AUTH_FAILURES: (
        "Too many failed AUTHs of one connection (`limits.strata.auth_failures`, 5).",
        "The last ERROR, then close 1008.",
    ),
    End.LIMIT_IGNORED: (
        "Too many requests in a row beyond an allowance (`limits.strata.limits_ignored`).",
        "The last ERROR, then close 1008.",
    ),
    End.NOT_READING: ("The peer has taken no byte for 60 s.", "The connection is cut; 1013 if it still reads."),
    End.IDENTITY_BANNED: (
        f"The operator has banned the identity{_OR_LISTS}.",
        "Close 1008, after an ERROR when it was an AUTH.",
    ),
    End.INTEGRITY_VIOLATION: ("An upstream sent what an honest relay could not.", "We close with 1008."),
    End.UPSTREAM_FAILED: ("An upstream does not let us in, or is banned for now.", "We close with 1000."),
    End.NOT_STORED: ("A packet of an upstream could not be stored; it is read again.", "We close with 1000."),
}
_STRATA_DETAILS: Final = {
    Code.INVALID_SIGNATURE: {
        "packet_id_mismatch": "the id is not the hash of the packet",
        "bad_signature": "no key of the author verifies",
        "unresolved_author": "nobody can say what the author's keys are",
        "did_conflict": "two heads of documents, or revocations that undo each other",
        "recovery_key_not_allowed": "recovery keys sign key events and approvals only",
        "recovery_key_demanded": "only a recovery key approves a recovery",
        "recovery_threshold": "the policy asks for more recovery keys than there are",
    },
    Code.INVALID_SCHEMA: {
        "bad_json": "no JSON object, or data behind it",
        "bad_utf8": "no UTF-8; the connection closes",
        "duplicate_key": "a member stands twice",
        "not_ijson": "a number or text that I-JSON has no form for",
        "too_deep": "more than 64 levels in a packet",
        "not_an_object": "the frame is JSON, but no object",
        "unknown_message_type": "a type of message that this relay does not know",
        "unknown_filter": "the SUBSCRIBE says `strict` and has a filter that this relay does not know",
        "binding": "what is said about an identity is not said by it",
        "provenance_header_required": "media without provenance header",
        "key_events_max": "the author's room for key events is used up",
        "key_events_unpublished": "an author of whom no other packet is stored has room for 8; publish something first",
        "a field's name": "that field is missing or wrong; `version` for another version",
    },
    Code.PACKET_TOO_LARGE: {
        "canonical_size": "`max_bytes` is the limit",
        "frame": "no packet in it can be small enough, so it was not parsed; `client_msg_id` is not echoed",
        "key_event": "a key event has at most 8 KiB",
    },
    Code.RATE_LIMITED: {
        "publish, subscribe, auth, bytes, key_events": "which allowance of a minute",
        "key_events_space": "the space of all key events (`strata.key_events_mib`) is used up",
        "trust_edges": "20 strong or 100 weak ones in 24 h",
    },
    Code.UNAUTHENTICATED: {
        "missing_capability": "AUTH first, or this relay does not give it",
        "challenge_unknown": "not the challenge of this connection, or used",
        "challenge_expired": "a new one has been sent",
        "no_capability": "nothing that was asked for is given",
        "already_authenticated": "the session stays as it is",
        "banned": "the connection closes",
    },
    Code.INTERNAL_ERROR: {"shutting_down": "publish elsewhere or later"},
    Code.INVALID_PROVENANCE: {
        "device_signature": "malformed or wrong signature",
        "issuer_signature": "absent or wrong signature of the model",
    },
    Code.MISSING_PROOF: {"device_id, device_signature, issuer_chain": "which part is absent"},
    Code.INVALID_ISSUER_CHAIN: {
        "malformed_chain, chain_too_long": "not a list of 1 to 8 entries with subject, issuer and certificate",
        "broken_link, name_mismatch": "names do not follow each other, or are not the certificate's",
        "unknown_root": "the last issuer is not one of `strata.roots`",
        "bad_certificate, certificate_too_large": "unreadable, or above 16 384 characters",
        "not_an_authority": "an issuer without the CA flag, or with `authority: false`",
        "certificate_not_valid, bad_certificate_signature": "outside its time, or not signed by its issuer",
        "device_not_bound": "the leaf is not the device",
    },
    Code.INVALID_ATTESTATION: {"unsupported_format": "no format of evidence has a verifier here"},
    Code.INVALID_CURSOR: {
        "unreadable, checksum, too_long": "not a cursor of any relay of this kind",
        "other_store": "this store never gave it",
        "other_filter": "it belongs to other filters, or to the other order",
    },
    Code.INVALID_TIMESTAMP: {
        "future": "more than 300 s ahead of `server_time`",
        "too_old": "older than `max_age_s`; replication `max_backfill_s`",
        "expired": "`expires_at` is not in the future",
    },
    Code.TOO_MANY_SUBSCRIPTIONS: {"filters": "8 000 authors and types on one connection"},
    Code.BLOCKED_CONTENT: {"packet_id, media_hash": "which list names it"},
}
"""What ``detail`` says beside a wire code of Strata."""


_MERK_ENDS: Final[dict[MerkRefusal, str]] = {
    MerkRefusal.SHORT: "A message of less than 120 bytes.",
    MerkRefusal.BAD_MAGIC: "Its first byte is not 0x58.",
    MerkRefusal.BAD_VERSION: "Its second byte is not 1.",
    MerkRefusal.BAD_LENGTH: "The header tells another length than the message has.",
    MerkRefusal.TOO_BIG: "Larger than `merk.max_frame_bytes`.",
    MerkRefusal.FRAME_BEFORE_AUTH: "Any frame but the answer to the challenge.",
    MerkRefusal.BAD_ANSWER: "Another challenge, or a signature that does not hold.",
    MerkRefusal.MISPLACED_HANDSHAKE: "A HANDSHAKE frame after the handshake.",
    MerkRefusal.AUTH_TIMEOUT: "No answer within 5 s; at `/mesh` no challenge within 2 s.",
    MerkRefusal.REPLACED: "The same key has connected anew.",
    MerkRefusal.IDENTITY_BANNED: f"The operator has banned the key{_OR_LISTS}.",
    MerkRefusal.CONNECT_RATE: "More than 10 connections a second of one address, 64 at once.",
    MerkRefusal.BAD_PEER_AUTH: "A HELLO of another key, or a proof that does not hold or come.",
    MerkRefusal.WRONG_PEER_KEY: "A node that we dialled has another key than we were told.",
    MerkRefusal.SELF_LINK: "A node that we dialled is ourselves.",
    MerkRefusal.DOUBLE_LINK: "There is another link to this node.",
    MerkRefusal.PEERS_FULL: "A node that `merk.peers` does not name: 32 such are linked, or 4 of its address.",
    MerkRefusal.PEERS_NOT_ACCEPTED: "A node that we do not dial, while `merk.accept_peers` is false.",
    MerkRefusal.UNPROVED: "A client whose key needs AUTH and that has not said it within 5 s; till then frames of it.",
    MerkRefusal.HOSTILE_CHALLENGE: "No challenge, or one that could be read as signed content; we do not answer.",
    MerkRefusal.WRONG_SERVER: "Only in clients: the server has another key than the one pinned.",
    MerkRefusal.STRIKES: "Too many broken rules on one connection (`limits.merk.strikes`).",
    MerkRefusal.NOT_READING: "It has taken nothing for 60 s, or for 10 s while no memory is left for other readers.",
    MerkRefusal.SHUTDOWN: "The node stops.",
}
"""When a connection ends; each with the status of its reason."""

_MERK: Final[dict[Enum, tuple[str, str]]] = {
    **{refusal: (when, f"Close status {refusal.status}.") for refusal, when in _MERK_ENDS.items()},
    MerkRefusal.FORGED_SENDER: ("The sender is not the connection's key.", _STAYS),
    MerkRefusal.NO_TARGET: ("Content with a payload of less than 32 bytes.", _STAYS),
    MerkRefusal.UNKNOWN_TYPE: ("A type of frame that no version has, or not from this side.", _STAYS),
    MerkRefusal.MALFORMED_INFO: ("NODE_INFO with a wrong layout.", _STAYS),
    MerkRefusal.INFO_NOT_ALLOWED: ("NODE_INFO that this side may not say, or not again.", _STAYS),
    MerkRefusal.UNASKED_ANSWER: ("An answer to a question that was not put to this connection.", _STAYS),
    MerkRefusal.LYING_PEER: ("A node speaks for another one.", _STAYS),
    MerkRefusal.BAD_ADVERT: ("A key advert of somebody else, of the future, or not signed by its key.", _STAYS),
    MerkRefusal.BAD_PRESENCE: (
        "A presence of another client or node, of another time, or not signed by its key.",
        _STAYS,
    ),
    MerkRefusal.UNSIGNED: (
        "A node that `merk.peers` does not name forwards a frame that its sender has not signed.",
        "DELIVERY 2 to that node.",
    ),
    MerkRefusal.REPLAYED_FORWARD: ("A forwarded frame whose number has been seen.", _STAYS),
    MerkRefusal.PRIVATE_ADDRESS: ("A peer names an address that must not be dialled.", _STAYS),
    MerkRefusal.RATE: ("Frames beyond the allowance.", "DELIVERY 5 to who asked for notices; the connection stays."),
    MerkRefusal.QUEUE_FULL: (
        "Too much waits for this recipient or node, or too much is searched for.",
        _CODE_2,
    ),
    MerkRefusal.KEY_QUESTIONS: ("Too many questions for keys are open.", "What the relay itself knows of the key."),
    MerkRefusal.MAILBOX_OFF: ("A client asks for a mailbox, and `merk.mailbox` is off.", "MAIL state 2."),
    MerkRefusal.MAILBOXES_FULL: ("No room for another mailbox, of all or of this network.", "MAIL state 2."),
    MerkRefusal.MAILBOX_FULL: ("The recipient's mailbox is full.", _CODE_2),
    MerkRefusal.MAIL_SHARE: ("The sender, its network or its node has its share of the recipient's mailbox.", _CODE_2),
    MerkRefusal.MAIL_FULL: ("All mailboxes are full, or a network has its share, or the disk is slow.", _CODE_2),
    MerkRefusal.MAIL_TOO_LARGE: ("A frame that is too large to be kept.", "DELIVERY 4 to who asked for notices."),
    MerkRefusal.MAIL_NOT_KEPT: ("The store did not take it, or the mailbox was closed.", f"{_CODE_2} MAIL state 2."),
    MerkRefusal.NOT_FOR_US: ("Only in clients: a frame with another target.", "Nothing."),
    MerkRefusal.BAD_SIGNATURE: ("Only in clients: a signature that does not hold.", "Nothing."),
    MerkRefusal.CANNOT_DECRYPT: ("Only in clients: not encrypted to our key, or changed.", "Nothing."),
    MerkRefusal.BAD_CONTENT: ("Only in clients: content that is not what its type byte says.", "Nothing."),
    MerkRefusal.DUPLICATE: ("Only in clients: signed or encrypted content that has come before.", "Nothing."),
    MerkRefusal.STALE: (
        "Only in clients: bound content older than 14 days, a day ahead, or as old as what was forgotten for room.",
        "Nothing.",
    ),
    MerkRefusal.DOWNGRADED: (
        "Only in clients: a legacy form from a sender that is known to use the bound form.",
        "Nothing.",
    ),
}

_LPRP_WHEN: Final[dict[LprpRefusal, str]] = {
    LprpRefusal.LENGTH: "Fewer than 144 or more than 508 bytes.",
    LprpRefusal.UNKNOWN_COMMAND: "A command that no version has.",
    LprpRefusal.WRONG_DIRECTION: "A command that only the other side may send.",
    LprpRefusal.COMMAND_LENGTH: "A payload of a length that the command does not allow.",
    LprpRefusal.CLOCK: "A time more than 2^19 ms (8.7 min) from the reader's clock.",
    LprpRefusal.WRONG_HOST: "Addressed to another host.",
    LprpRefusal.SMALL_ORDER_KEY: "A sender's key for which anybody can sign.",
    LprpRefusal.NOT_A_TENANT: "A command of tenants from a key without a lease.",
    LprpRefusal.IDENTITY_BANNED: f"The operator has banned the key{_OR_LISTS}.",
    LprpRefusal.VERIFY_FAILURES: "Too many wrong signatures of this network lately; none of this address was accepted.",
    LprpRefusal.VERIFY_RATE: "More than 4 000 signatures a second of one network (/24, IPv6 /56).",
    LprpRefusal.VERIFY_BACKLOG: "Too many packets wait for their signature check.",
    LprpRefusal.BAD_SIGNATURE: "The signature does not hold.",
    LprpRefusal.NOT_NEWER: "A state of the sender that is as new or newer is known.",
    LprpRefusal.REBIND_CONFLICT: "The time of the last packet came again from another address.",
    LprpRefusal.UNKNOWN_CHALLENGE: "Work for a challenge that this key was not given, or that is done.",
    LprpRefusal.UNKNOWN_RELAY: "A confirmation of a packet that does not wait for this tenant.",
    LprpRefusal.NO_CREDIT: "The answer is longer than what came from this network: it goes to a repeated request.",
    LprpRefusal.REFUSAL_RATE: "More than 10 refusals of this kind a second to one network; this one was not sent.",
    LprpRefusal.TOO_FEW_BITS: "The work is less than this challenge demands.",
    LprpRefusal.CHALLENGE_EXPIRED: "The challenge is older than 2^19 ms (8.7 min).",
    LprpRefusal.NO_LEASE: "The recipient holds no lease here.",
    LprpRefusal.QUEUE_FULL: "256 packets wait for the recipient.",
    LprpRefusal.STRANGERS_FULL: "64 packets of strangers wait for the recipient, or 16 of this one.",
    LprpRefusal.STORE_FULL: "512 MiB of mail wait in all.",
    LprpRefusal.TENANTS_FULL: "`lprp.tenants_max` keys hold a lease.",
    LprpRefusal.LEASES_CLOSED: 'No lease for newcomers while `lprp.leases` is "closed".',
    LprpRefusal.LEASE_BANNED: "The operator has banned the key.",
    LprpRefusal.WHITELIST_HASH: "The whitelist after the update would not have the hash that the packet names.",
    LprpRefusal.WHITELIST_FULL: "The whitelist would have more than 256 keys.",
    LprpRefusal.ZERO_KEY: "An update that toggles the key of 32 zero bytes.",
    LprpRefusal.OVERTAKEN: "A newer change came while the work for this one was done.",
    LprpRefusal.UNASKED_ANSWER: "Only in clients: an answer to nothing that is under way.",
    LprpRefusal.NOT_FOR_US: "Only in clients: addressed to another key.",
    LprpRefusal.DUPLICATE: "A packet that has come before, or whose first copy is still being judged.",
}

_LPRP: Final[dict[Enum, tuple[str, str]]] = {
    refusal: (when, f"Command {refusal.command:x}." if refusal.command is not None else "Nothing.")
    for refusal, when in _LPRP_WHEN.items()
}
"""Most are dropped in silence: whoever answers a datagram that proves nothing becomes a reflector."""

_CLOSE: Final = "The connection closes."
_NO_ACK: Final = "Nothing: without an acknowledgement its author keeps it."
_MARKED: Final = "An acknowledgement; the message is invalid here, and so is what depends on it."
_ANSWER: Final = "An answer that says so."
_IMPORT: Final = "Nothing; whoever imports the file is told."

_BSP: Final[dict[Enum, tuple[str, str]]] = {
    BspRefusal.VERSION: ("A record of another version, such as one of the other profile.", _CLOSE),
    BspRefusal.EMPTY_LIST: ("An ACK, OFFER or REQUEST without identifiers.", _CLOSE),
    BspRefusal.LIST_LENGTH: ("A list whose length is no multiple of 32.", _CLOSE),
    BspRefusal.TOO_MANY_IDS: ("Profile `briar`: more than 1,536 identifiers in one record.", _CLOSE),
    BspRefusal.MESSAGE_LENGTH: ("A MESSAGE below 40 or above 32,808 bytes; its header is enough.", _CLOSE),
    BspRefusal.TIMESTAMP: ("A timestamp with its top bit set.", _CLOSE),
    BspRefusal.VERSIONS_LENGTH: ("Profile `briar`: VERSIONS without or with more than 10 versions.", _CLOSE),
    BspRefusal.PRIORITY_LENGTH: ("Profile `briar`: PRIORITY whose nonce has not 16 bytes.", _CLOSE),
    BspRefusal.TRUNCATED: ("The stream ends inside a record.", _CLOSE),
    BspRefusal.STALLED: ("A record is not whole after 30 s.", _CLOSE),
    BspRefusal.HANDSHAKE: ("Bytes that are no handshake of this version.", _CLOSE),
    BspRefusal.HANDSHAKE_TIMEOUT: ("The handshake is not over after 10 s.", _CLOSE),
    BspRefusal.BAD_SIGNATURE: ("The proof does not hold, or is about another certificate than ours.", _CLOSE),
    BspRefusal.WRONG_PEER: ("Whom we dialled shows another key than expected.", _CLOSE),
    BspRefusal.UNKNOWN_PEER: (
        "The key is not in the table of peers, or banned.",
        "Status 1, then the connection closes.",
    ),
    BspRefusal.REFUSED_BY_PEER: ("Whom we dialled answered with a status.", _CLOSE),
    BspRefusal.BUSY: (
        "The node drains, or too many handshakes are under way.",
        "Status 2, then the connection closes.",
    ),
    BspRefusal.REPLACED: ("A newer connection of the same peer stands.", _CLOSE),
    BspRefusal.HALF_CLOSED: ("The peer said that it sends no more; all was written.", _CLOSE),
    BspRefusal.DRAINING: ("The node stops.", _CLOSE),
    BspRefusal.IDENTITY_BANNED: (f"The operator has banned the key{_OR_LISTS}.", _CLOSE),
    BspRefusal.SEND_STALLED: ("The peer takes nothing for 60 s.", _CLOSE),
    BspRefusal.UNSHARED_GROUP: ("A MESSAGE of a group that is not shared with its sender.", "Nothing."),
    BspRefusal.PENDING_FULL: ("100,000 messages of the group wait for dependencies, or for 400,000 of them.", _NO_ACK),
    BspRefusal.GROUP_FULL: ("The device knows `bsp.group_messages_max` messages of the group.", _NO_ACK),
    BspRefusal.DEVICE_FULL: ("The device knows 1,000,000 messages.", _NO_ACK),
    BspRefusal.QUOTA_FULL: ("The quota of the mailbox's owner is used up.", _NO_ACK),
    BspRefusal.UNPARSABLE: ("The group's format cannot read the body.", _MARKED),
    BspRefusal.TOO_MANY_DEPENDENCIES: ("More than 64 dependencies.", _MARKED),
    BspRefusal.NAMES_ITSELF: ("A body that names its own message as a dependency.", _MARKED),
    BspRefusal.INVALID_DEPENDENCY: ("A dependency is invalid.", _MARKED),
    BspRefusal.INVALID_IN_CONTEXT: ("The application judges it invalid in the context of its dependencies.", _MARKED),
    BspRefusal.FILE_FORM: ("Bytes that are no bsp file of this version, or end too early.", _IMPORT),
    BspRefusal.FILE_NOT_FOR_US: ("A file for another device.", _IMPORT),
    BspRefusal.FILE_SENDER: ("A file of a key that is not in the table of peers.", _IMPORT),
    BspRefusal.FILE_SIGNATURE: ("The file is not what its sender signed.", _IMPORT),
    BspRefusal.FILE_SEAL: ("A chunk that cannot be opened.", _IMPORT),
    BspRefusal.FILE_TOO_LARGE: ("A file of more than 4 MiB.", _IMPORT),
    BspRefusal.MAILBOX_COMMAND: ("A mailbox command that is none.", _ANSWER),
    BspRefusal.MAILBOX_GROUP_ID: (
        "`host` with a group that client and descriptor do not make.",
        _ANSWER,
    ),
    BspRefusal.MAILBOX_GROUPS_FULL: ("`host` beyond the owner's number of groups.", _ANSWER),
}

_BOX: Final[dict[Enum, tuple[str, str]]] = {
    refusal: (refusal.sentence, f"HTTP status {refusal.status}, the reason and this sentence.")
    for refusal in BoxRefusal
}

_DOOR: Final[dict[Enum, tuple[str, str]]] = {
    AdmissionRefusal.FULL: ("10 000 connections stand; at the file box 256, all of them at work.", _AT_ONCE),
    AdmissionRefusal.ADDRESS_FULL: (
        "64 connections of one address (IPv6: one /64) stand; at the file box 16.",
        _AT_ONCE,
    ),
    AdmissionRefusal.HANDSHAKES_FULL: (
        "256 handshakes are under way, all of them of addresses that have completed one before; this has not.",
        _AT_ONCE,
    ),
    AdmissionRefusal.HANDSHAKE_DISPLACED: (
        "256 handshakes were under way (192 of unknown addresses), and this was the oldest of the largest network.",
        "The connection closes before it is established.",
    ),
    AdmissionRefusal.ADDRESS_HANDSHAKES_FULL: ("16 handshakes of one address are under way.", _AT_ONCE),
    AdmissionRefusal.ADDRESSLESS_FULL: ("256 connections without an address stand.", _AT_ONCE),
    AdmissionRefusal.ADDRESS_BANNED: ("The operator has banned the address or its network.", _ADDRESS_REFUSED),
    AdmissionRefusal.DENIED: ("The address is in `access.deny`.", _ADDRESS_REFUSED),
    AdmissionRefusal.NOT_ALLOWED: ("`access.allow` names networks, and the address is in none.", _ADDRESS_REFUSED),
    AdmissionRefusal.POLICY_BLOCKED: ("A published rule blocks the network.", f"{_AT_ONCE} Datagrams are dropped."),
    AdmissionRefusal.POLICY_RATE: (
        "A published rule leaves the network fewer connections a minute.",
        _AT_ONCE,
    ),
    AdmissionRefusal.RETIRING: ("The node drains before it stops.", _AT_ONCE),
    AdmissionRefusal.PROXY_HEADER: (
        "A trusted proxy sends no PROXY header where one is due, or 1 024 of its connections have not named a client.",
        _AT_ONCE,
    ),
    AdmissionRefusal.PROXY_HEADER_NOT_READ: (
        "A connection begins with a PROXY header where none is read; on a TLS port counted from the second one on.",
        "What the listener answers to bytes that it does not know, which is a close.",
    ),
    AdmissionRefusal.PROXY_NAMES_NOBODY: (
        "A WebSocket through a trusted proxy names no client, or a request to the box does.",
        "Nothing; it counts as the proxy's own.",
    ),
    AdmissionRefusal.GETS_RATE: (
        "More GETs of one address a minute than `limits.gets_per_minute`; counted as `web`, not in the journal.",
        "HTTP status 429 with Retry-After.",
    ),
}

REFUSALS: Final = (
    ("At the door, for every protocol", AdmissionRefusal, _DOOR),
    ("bhumi", Refusal, _BHUMI),
    ("bsp", BspRefusal, _BSP),
    ("bsp: the file box", BoxRefusal, _BOX),
    ("lprp", LprpRefusal, _LPRP),
    ("merk", MerkRefusal, _MERK),
    ("strata", Code, _STRATA),
    ("strata: why a connection ends", End, _STRATA_ENDS),
)
"""Heading, closed set of reasons, and what each means and shows."""

_REFUSALS_HEAD: Final = """\
# Refusals

Every way in which a node says no. The reason is what the journal (kind `refused`, column `reason`), the counter
`waystation_refusals_total` and the logs show; the last column is all that the other side sees.
"""


def refusals() -> str:
    """Return docs/refusals.md."""
    parts = [_REFUSALS_HEAD]
    for heading, reasons, meanings in REFUSALS:
        rows = [(f"`{reason.value}`", *meanings[reason]) for reason in reasons]
        parts.append(f"## {heading}\n\n{table(('reason', 'when', 'what the other side sees'), rows)}")
    return "\n".join([*parts, _strata_details()])


def _strata_details() -> str:
    rows = [
        (f"`{code.value}`", ", ".join(f"`{name}`" if " " not in name else name for name in detail.split(", ")), means)
        for code, details in _STRATA_DETAILS.items()
        for detail, means in details.items()
    ]
    return f"## strata: details\n\n{table(('code', 'detail', 'means'), rows)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))
