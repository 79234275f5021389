"""Both of our stores pass the suite that ships for all stores; and they are compared with each other, step by step."""

from __future__ import annotations

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.store.local import LocalStore
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing.store_suite import StoreSuite


class TestEveryStore(StoreSuite):
    """Runs over the fixture `store`, which is of each kind in turn."""


PATHS = st.sampled_from(["a/1", "a/2", "a/b/3", ".hoodie/x/4", "5"])
FOLDERS = st.sampled_from(["", "a", "a/b", ".hoodie/x", "c"])
STEPS = st.one_of(
    st.tuples(st.just("put"), PATHS, st.binary(max_size=4)),
    st.tuples(st.sampled_from(["read", "delete", "touch"]), PATHS),
    st.tuples(st.sampled_from(["list", "walk"]), FOLDERS),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_disk_and_memory_give_the_same_answers(steps: list[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        disk, memory = LocalStore(root), MemoryStore()
        for name, *arguments in steps:
            answers = [getattr(store, name)(*arguments) for store in (disk, memory)]
            if name in {"list", "walk"}:
                answers = [[(stat.path, stat.size) for stat in answer] for answer in answers]
            assert answers[0] == answers[1], (name, *arguments)
