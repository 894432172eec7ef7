"""Laws of how events are told."""

import asyncio
import contextlib

import pytest

from waystation.core.errors import HostError
from waystation.sdk.bsp import news as bsp_news
from waystation.sdk.bsp.news import News, NewsMissed


def heard(news, report):
    """Return what a listener hears that is there before ``tell`` is called."""

    async def main():
        listening = news.listen()
        report()
        return [event async for event in listening]

    return asyncio.run(main())


def test_every_listener_hears_everything_in_order():
    """Two listeners hear the same events, from when they began."""
    news = News()

    async def main():
        first = news.listen()
        news.report("a")
        second = news.listen()
        news.report("b")
        news.end()
        return [event async for event in first], [event async for event in second]

    assert asyncio.run(main()) == (["a", "b"], ["b"])


def test_slow_listener_is_told_how_much_it_missed(monkeypatch):
    """Beyond the bound the oldest events go, and their number is told first."""
    monkeypatch.setattr(bsp_news, "NEWS_MAX", 2)
    news = News()

    def report():
        for event in "abcde":
            news.report(event)
        news.end()

    assert heard(news, report) == [NewsMissed(3), "d", "e"]


def test_failure_ends_listening_behind_what_was_told():
    """What was told before a failure is heard, then its reason."""
    news, heard_events = News(), []

    async def main():
        listening = news.listen()
        news.report("a")
        news.end(HostError("disk full"))
        heard_events.append(await anext(listening))
        await anext(listening)

    with pytest.raises(HostError, match="disk full"):
        asyncio.run(main())
    assert heard_events == ["a"]


def test_who_stops_listening_costs_nothing():
    """A listener that left is not kept."""
    news = News()

    async def main():
        async with contextlib.aclosing(news.listen()) as listening:
            news.report("a")
            return await anext(listening)

    assert asyncio.run(main()) == "a"
    assert news.listeners_count == 0
