"""Homes that a node has used."""

import shutil
from contextlib import closing

from waystation.core.records import Record
from waystation.server.home import Home
from waystation.server.home.mark import adopt_home, prepare_home, store_mark, write_mark
from waystation.store.sqlite import SqliteStore

NAMES = ("localhost",)


def commit_some(store, first=0, count=3):
    """Commit records, each in a group of its own."""
    for number in range(first, first + count):
        store.commit([Record("things", b"%d" % number, b"value")])


def ended_home(path):
    """Return a home whose node has ended in order after a few commits."""
    home = Home(path)
    prepare_home(home, NAMES)
    with closing(SqliteStore(home.store_path)) as store:
        commit_some(store)
        write_mark(home, adopt_home(home)._replace(store=store_mark(store.state(), in_use=False)))
    return home


def killed_home(path, aside):
    """Return a home whose node was killed after its log was folded in and more was committed; ``aside`` is spare."""
    home = Home(path)
    prepare_home(home, NAMES)
    with closing(SqliteStore(home.store_path)) as store:
        commit_some(store)
        write_mark(home, adopt_home(home)._replace(store=store_mark(store.fold(), in_use=True, path=home.store_path)))
        commit_some(store, first=10)
        shutil.copytree(home.path, aside)
    shutil.rmtree(home.path)
    aside.rename(home.path)
    return home
