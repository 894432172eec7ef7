"""Laws of server.written: journal and archive are separate switches over one pair of folders."""

import asyncio

import pytest

from tests.protocols.strata.build import ALICE, NOW, post
from waystation.journal.archive import ArchivedPacket, read_packets
from waystation.journal.events import NodeStarted
from waystation.server.config.settings import JournalSettings
from waystation.server.home import Home
from waystation.server.written import Written

NODE_ID = bytes(8)


def write(tmp_path, settings):
    """Note one event and keep one packet, as far as ``settings`` let; return the home and the counts."""
    home = Home(tmp_path)
    home.ensure()

    async def story():
        written = Written(settings, home, NODE_ID)
        if written.note is not None:
            written.note(NodeStarted(1_767_225_600_000_000, "1.0"))
        if written.keep is not None:
            written.keep(packet())
        await written.close()
        return written.counts()

    return home, asyncio.run(story())


def packet():
    """Return a stored packet as the archive takes it."""
    stored = post()
    return ArchivedPacket(
        NOW * 1_000_000,
        "strata",
        stored.packet_id,
        NOW,
        stored.author_id,
        stored.content_type,
        stored.timestamp,
        None,
        ALICE.public,
        stored.canonical,
    )


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (JournalSettings(), {"journal", "archive"}),
        (JournalSettings(archive=False), {"journal"}),
        (JournalSettings(enabled=False), set()),
    ],
)
def test_each_writer_has_its_switch(tmp_path, settings, names):
    """Without the journal there is no archive; without the archive the journal goes on."""
    _, counts = write(tmp_path, settings)

    assert set(counts) == names
    assert all(count["rows_written"] == 1 for count in counts.values())


def test_closed_segments_lie_in_the_home(tmp_path):
    """After closing, both folders hold one segment, and the archive's packet reads back."""
    home, _ = write(tmp_path, JournalSettings())
    archived, noted = (
        [path for path in folder.rglob("*.jsonl*") if path.is_file()]
        for folder in (home.archive_path, home.journal_path)
    )

    assert (len(archived), len(noted)) == (1, 1)
    assert [bytes.fromhex(row["packet_id"]) for row in read_packets(archived[0].read_bytes())] == [post().packet_id]


def test_retention_may_change_while_running(tmp_path):
    """New settings reach both writers without an error."""
    home = Home(tmp_path)
    home.ensure()

    async def story():
        written = Written(JournalSettings(), home, NODE_ID)
        written.use(JournalSettings(retention_days=1, archive_retention_mib=1))
        await written.close()
        return written.counts()

    assert asyncio.run(story())["archive"]["segments_deleted"] == 0


def test_sealed_bytes_are_those_of_both_folders(tmp_path):
    """What is still open counts nothing; what is sealed counts as it lies there, after a restart too."""
    home, _ = write(tmp_path, JournalSettings())
    sealed = sum(
        path.stat().st_size
        for folder in (home.archive_path, home.journal_path)
        for path in folder.rglob("*.jsonl*")
        if path.is_file()
    )

    async def again():
        written = Written(JournalSettings(), home, NODE_ID)
        written.note(NodeStarted(1_767_225_600_000_000, "1.0"))
        found = written.sealed_bytes
        await written.close()
        return found

    assert asyncio.run(again()) == sealed > 0
