"""Laws of core.commits: one at a time, and what was refused is asked for again, in its place and not at once."""

import pytest

from waystation.core.commits import COMMIT_AGAIN_MS, Commits
from waystation.core.effects import Commit
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Record

NOW = Instant(7_000_000)
LATER = after_ms(NOW, COMMIT_AGAIN_MS)


def record(key, value):
    return Record("t", key, value)


def test_commits_have_numbers_and_are_one_at_a_time():
    """The second may begin once the first is on disk."""
    commits = Commits()
    first = commits.begin([record(b"a", b"1")])
    under_way = commits.may_begin, commits.is_settled
    commits.committed(1)
    second = commits.begin([], ticket=9)

    assert (first, second) == (Commit(1, (record(b"a", b"1"),)), Commit(9, ()))
    assert under_way == (False, False)
    assert (commits.saved, commits.ticket) == (1, 9)


def test_refused_changes_are_part_of_the_next_commit_a_second_later():
    """They come before those that are younger, whose records replace theirs; nothing is asked before the time."""
    commits = Commits()
    commits.begin([record(b"a", b"old"), record(b"b", b"old")])
    commits.not_committed(1, NOW)
    refused = commits.may_begin, commits.is_refused, commits.is_settled, commits.again_at
    commits.wake(Instant(LATER - 1))
    early = commits.may_begin
    commits.wake(LATER)
    again = commits.begin([record(b"a", b"new"), record(b"c", None)])

    assert refused == (False, True, False, LATER)
    assert (early, commits.is_refused, commits.again_at) == (False, False, None)
    assert again.changes == (record(b"b", b"old"), record(b"a", b"new"), record(b"c", None))


def test_what_is_on_disk_is_not_asked_for_again():
    """After a refusal and a success nothing is left over."""
    commits = Commits()
    commits.begin([record(b"a", b"1")])
    commits.not_committed(1, NOW)
    commits.wake(LATER)
    commits.begin([])
    commits.committed(2)

    assert commits.begin([]).changes == ()


def test_answer_to_no_question_is_a_bug():
    """An answer must have the number of the commit under way."""
    commits = Commits()

    for answer in (lambda: commits.committed(1), lambda: commits.not_committed(1, NOW)):
        with pytest.raises(AssertionError):
            answer()
    commits.begin([])
    with pytest.raises(AssertionError):
        commits.committed(5)
