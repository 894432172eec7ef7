"""Laws of sdk.strata.fan_out: every relay is waited for, and no relay for ever once another has the packet."""

import asyncio

import pytest

from waystation.sdk.errors import OutcomeUnknownError, RelayUnreachableError
from waystation.sdk.strata import fan_out as module
from waystation.sdk.strata.fan_out import fan_out


async def stored(result):
    """Return a receipt."""
    return result


async def failed(error):
    """Raise an error."""
    raise error


async def mute():
    """Never return."""
    await asyncio.Event().wait()


def test_outcomes_are_in_order():
    """Receipts and failures stand beside each other, by relay."""
    away = RelayUnreachableError("away")

    assert asyncio.run(fan_out({"b": failed(away), "a": stored("receipt")})) == {"b": away, "a": "receipt"}


def test_mute_relay_is_not_waited_for_long_once_another_has_it(monkeypatch):
    """It is unknown there, and its task is over."""
    monkeypatch.setattr(module, "OTHERS_S", 0.01)

    async def story():
        outcomes = await fan_out({"mute": mute(), "a": stored("receipt")})
        return outcomes, len(asyncio.all_tasks())

    outcomes, tasks = asyncio.run(story())

    assert outcomes["a"] == "receipt" and isinstance(outcomes["mute"], OutcomeUnknownError)
    assert tasks == 1


def test_relay_that_answers_is_waited_for_after_one_has_failed(monkeypatch):
    """A failure is no receipt: the others keep all of their time."""
    monkeypatch.setattr(module, "OTHERS_S", 0.0)
    away = RelayUnreachableError("away")

    async def story():
        gate = asyncio.Event()

        async def late():
            await gate.wait()
            return "late"

        work = asyncio.create_task(fan_out({"away": failed(away), "late": late()}))
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        return await work

    assert asyncio.run(story()) == {"away": away, "late": "late"}


def test_fault_of_ours_is_raised():
    """What is no failure of a relay is no outcome."""
    with pytest.raises(KeyError):
        asyncio.run(fan_out({"a": failed(KeyError("bug"))}))
