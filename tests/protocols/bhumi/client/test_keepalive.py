"""Laws of protocols.bhumi.client.keepalive: when a relay is asked, and when it is gone."""

import pytest

from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi.client.keepalive import KEEPALIVE_MS, SILENCE_MS, KeepaliveTimer

START = Instant(5_000_000)


@pytest.mark.parametrize("silence_ms", [1_000, 3_000, 30_000, 600_000])
def test_an_echo_has_time_to_travel(silence_ms):
    """NODE-SILENCE: who is asked is not gone before the answer can be there, and gone within the limit."""
    timer = KeepaliveTimer(silence_ms)
    timer.sent(START)

    assert timer.due_at(START, echoes=True) <= timer.gone_at(START) <= after_ms(START, silence_ms)


def test_every_byte_puts_the_question_off():
    """A relay that has just spoken is not asked; the regular KEEPALIVE stays where it is."""
    timer = KeepaliveTimer()
    timer.sent(START)
    later = after_ms(START, 10_000)

    assert timer.due_at(later, echoes=True) == after_ms(later, SILENCE_MS * 2 // 3)
    assert timer.due_at(after_ms(START, 40_000), echoes=True) == after_ms(START, KEEPALIVE_MS)


def test_relay_that_never_echoes_gets_the_regular_ones():
    """Its silence proves nothing, so asking sooner would tell nothing."""
    timer = KeepaliveTimer()
    timer.sent(START)

    assert timer.due_at(START, echoes=False) == after_ms(START, KEEPALIVE_MS)
