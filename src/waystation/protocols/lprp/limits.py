"""Limits of the LPRP host: the table ``[limits.lprp]`` of the node's configuration.

The parts of the relay read them at each use, so a reload applies at once.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import limit
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX

__all__ = ["DEFAULT_LIMITS", "LprpLimits"]


@dataclass(frozen=True, slots=True)
class LprpLimits:
    """What one tenant, sender, network and all of them together may have and do; specs/lprp.md 7.

    A lower limit takes nothing that was accepted: full queues and tables only shrink as their entries go.
    """

    whitelist_keys: int = limit(
        WHITELIST_KEYS_MAX,
        "Keys on the whitelist of one tenant; clients of waystation list 256 at most.",
        at_most=4_096,
        refusal=Refusal.WHITELIST_FULL,
    )
    # Spec: lprp 7; beyond them 402 (LPRP-FULL).
    queue_packets: int = limit(256, "Packets in the queue of one tenant.", at_most=4_096, refusal=Refusal.QUEUE_FULL)
    unlisted_packets: int = limit(
        64, "Those of them of all senders outside its whitelist.", at_most=4_096, refusal=Refusal.STRANGERS_FULL
    )
    unlisted_packets_per_sender: int = limit(
        16, "Those of them of one such sender.", at_most=4_096, refusal=Refusal.STRANGERS_FULL
    )
    mail_bytes: int = limit(
        512 * 1_048_576,
        "Packets in all queues together, in memory and on disk.",
        unit="bytes",
        at_least=65_536,
        at_most=8_192 * 1_048_576,
        refusal=Refusal.STORE_FULL,
        use="packet_bytes",
    )
    # Spec: lprp 7.
    challenges: int = limit(
        16_384,
        "Open demands for work; beyond it the network with most loses its oldest.",
        at_most=262_144,
        use="challenges",
    )
    challenges_per_network: int = limit(
        32, "Those of one network, IPv4 /24 or IPv6 /56; beyond it the oldest goes.", at_most=512
    )
    challenges_per_key: int = limit(4, "Those of one key; beyond it the oldest goes.", at_most=64)
    challenges_per_recipient: int = limit(
        64, "Those for mail to one tenant; beyond it the network with most loses its oldest.", at_most=1_024
    )
    work_refusals_per_challenge: int = limit(
        32, "Answers 401 for one challenge; beyond it there is silence.", at_most=512
    )
    # Spec: lprp 7, of each kind (LPRP-REFUSALS).
    refusals_per_second: int = limit(
        10,
        "Answers 401, 402 and 404, each, for one network.",
        unit="per s",
        at_most=10_000,
        refusal=Refusal.REFUSAL_RATE,
    )
    # Spec: lprp 7.
    stored_answers: int = limit(
        32_768,
        "Answers that are repeated for a repeated packet; beyond it the oldest goes.",
        at_most=524_288,
        use="answers",
    )
    known_packets: int = limit(
        262_144,
        "Accepted packets whose copies are recognized; beyond it the oldest goes, and its recipient filters.",
        at_most=4_194_304,
        use="seen",
    )
    # Ours: as many as tenants, and as prefixes.
    sources: int = limit(
        65_536,
        "Addresses that are accounted for; beyond it the one that was silent longest begins anew.",
        at_most=1_048_576,
        use="sources",
    )
    networks: int = limit(
        65_536,
        "Networks that are accounted for; beyond it the one that was silent longest begins anew.",
        at_most=1_048_576,
        use="prefixes",
    )
    checks_waiting: int = limit(
        4_096,
        "Packets that wait for their signature check or for the disk.",
        at_most=65_536,
        refusal=Refusal.VERIFY_BACKLOG,
        use="under_way",
    )
    checks_waiting_per_network: int = limit(
        1_024, "Signature checks of one network that wait.", at_most=16_384, refusal=Refusal.VERIFY_BACKLOG
    )
    # So that no tenant waits for more than 30 ms of visitors' checks.
    checks_waiting_untrusted: int = limit(
        512,
        "Signature checks that wait for all sources of which nothing was accepted.",
        at_most=8_192,
        refusal=Refusal.VERIFY_BACKLOG,
        use="doubted",
    )
    # LPRP-RATION: a fifth of what a core can check, for one prefix.
    checks_per_second: int = limit(
        4_000,
        "Signature checks of one network; as many at once.",
        unit="per s",
        at_most=64_000,
        refusal=Refusal.VERIFY_RATE,
    )
    # LPRP-RATION: bad signatures; half a per cent of what a core can check.
    bad_signatures_per_second: int = limit(
        100,
        "Bad signatures of one network; beyond it only trusted sources get a check.",
        unit="per s",
        at_most=1_600,
        refusal=Refusal.VERIFY_FAILURES,
    )
    bad_signatures_burst: int = limit(
        256, "Bad signatures of one network at once.", at_most=4_096, refusal=Refusal.VERIFY_FAILURES
    )
    vouches_per_packet: int = limit(
        8, "Packets that one challenge or queued packet vouches for before their signature check.", at_most=128
    )


DEFAULT_LIMITS: Final = LprpLimits()
