"""Groups in a random history: small writes of several processes that one of them commits, in the order of their posts.

    others   processes post upserts and deletes, some with tokens; nobody hears of them again
    own      a writer posts its write in a crowd, or commits alone, with the posts that it finds; or another writer
             does, between the post of this writer and its first look
    nobody   all of them have died after posting: a later commit takes their posts along, or none does
    carried  a later event takes a post along, once two versions have passed it

For the oracle a group is one commit with the statements of its members, in their order. Groups keep these rules, too:

    - A post beside a commit is committed with it, and every writer learns of its own rows.
    - No post is committed twice, also after a restore.
    - No post is committed after its window, after a minute, or in another table.

Groups draw from a chance of their own, so the rest of a history does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crdt_mor import Commit, Table
from crdt_mor.api.transaction import commit_of
from crdt_mor.laws.merging import merging_of
from crdt_mor.log.paths import POSTS, post_path
from crdt_mor.log.posts import FRESH_MS
from crdt_mor.model.posts import WINDOW, Member, PostName
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.write.statements import Operation
from tests.inside import completions_of, session_of, store_of, tail_of
from tests.posting import in_a_crowd, meanwhile, post

if TYPE_CHECKING:
    from tests.simulation.random_history import History, Statement

SHARE = 0.12
"""How often a group happens, of the steps of a history."""

DEAD_SHARE = 0.25
MEANWHILE_SHARE = 0.4
CROWDED_SHARE = 0.8

Token = tuple[str, int] | None


@dataclass
class SmallWrite:
    """A write of one statement. name: of its post, where another process has put it, and put_ms: when it did.

    keys: how many keys it writes or deletes.
    """

    number: int
    columns: dict[str, pa.DataType]
    rows: pa.Table
    said: list[Statement] = field(default_factory=list)
    nulls: tuple[str, ...] = ()
    is_delete: bool = False
    plain: bool = False
    token: Token = None
    name: PostName | None = None
    put_ms: int = 0

    @property
    def info(self) -> Mapping[str, str]:
        """By which its part of a commit is known."""
        return {"write": str(self.number)}

    @property
    def counts(self) -> tuple[int, int]:
        """How many keys it writes, and deletes."""
        keys = len({key for key, _, _ in self.said})
        return (0, keys) if self.is_delete else (keys, 0)

    def run(self, table: Table) -> Commit:
        """Make it, as a user does."""
        options: dict[str, Any] = {"token": self.token, "commit_info": self.info}
        if self.is_delete:
            return table.delete(self.rows, plain=self.plain, **options)
        return table.upsert(self.rows, nulls=self.nulls, **options)


@dataclass
class Groups:
    """The groups of one history. posted: what other processes have posted and nobody has committed."""

    chance: Random
    posted: dict[PostName, SmallWrite] = field(default_factory=dict)
    writes: int = 0
    sizes: list[int] = field(default_factory=list)
    """How many members each group had."""
    late: int = 0
    """How many posts were committed after their processes had died."""
    carried: int = 0
    """How many commits were of such posts alone."""

    def are_due(self) -> bool:
        return self.chance.random() < SHARE

    def anew(self) -> Groups:
        """Those of another table: what was posted in this one is no affair of its writers."""
        return replace(self, posted={})

    def happen(self, history: History) -> None:
        """Some processes post, and then one or two writers write, or none."""
        with self._own_chance(history):
            table = history.table
            dead = [*self.posted]
            if not self._is_long_way(table):
                for _ in range(self.chance.randint(0, 3)):
                    self._post(history, table)
            if self.chance.random() < DEAD_SHARE:
                history.note("posted, and nobody commits", *self.posted)
                return
            fresh = [name for name in self.posted if name not in dead]
            self._write(history, table, fresh)
            history.check()

    @contextmanager
    def _own_chance(self, history: History) -> Iterator[None]:
        before, history.random = history.random, self.chance
        try:
            yield
        finally:
            history.random = before

    def _is_long_way(self, table: Table) -> bool:
        """Whether writes to a table are never posted, or not yet: the first one has no version to follow."""
        tail = tail_of(table)
        return not tail.version or merging_of(session_of(table).config, tail.schema).asks_what_was_seen

    def _small_write(self, history: History) -> SmallWrite:
        self.writes += 1
        token = (f"writer{self.writes}", 1) if self.chance.random() < 0.3 else None
        made = SmallWrite(self.writes, dict(history.columns), pa.table({}), token=token)
        if self.chance.random() < 0.35:
            made.rows, made.plain, made.said = history.deletes(made)
            made.is_delete = True
        else:
            made.rows, made.said = history.batch(made)
        return made

    def _post(self, history: History, table: Table) -> None:
        """Another process posts a write, and is not heard of again."""
        made = self._small_write(history)
        made.put_ms = store_of(table).now_ms()
        statement: Operation = "DELETE" if made.is_delete else "UPSERT"
        options: dict[str, Any] = {"info": made.info, "token": made.token, "plain": made.plain, "number": made.number}
        made.name = post(table, made.rows, statement, nulls=made.nulls, **options)
        self.posted[made.name] = made
        history.note("post", made)

    def _write(self, history: History, table: Table, fresh: list[PostName]) -> None:
        """Writers of this process write; what others have posted may go along."""
        told = list[tuple[SmallWrite, Commit]]()
        mine = self._small_write(history)
        other, others = history.table, self._small_write(history)

        def others_write() -> None:
            session_of(other).environment.sleep(0.001)
            told.append((others, others.run(in_a_crowd(other))))

        if self.chance.random() < MEANWHILE_SHARE:
            store, environment = meanwhile(store_of(table), others_write), session_of(table).environment
            table = history.opened_over(store, environment)
        if self.chance.random() < CROWDED_SHARE:
            in_a_crowd(table)
        told.append((mine, mine.run(table)))
        history.note("write", *(what for both in told for what in both))
        self._note(history, table, told, fresh)

    def _note(
        self, history: History, table: Table, told: list[tuple[SmallWrite, Commit]], fresh: list[PostName]
    ) -> None:
        """Tell the oracle of the commits, and hold them to what writers were told."""
        self.note_carried(history)
        commits = {commit.requested_at: commit for _, commit in told}
        own = {write.number: write for write, _ in told}
        for made, commit in told:
            assert (commit.rows, commit.deletes) == made.counts, f"{commit} of {made}\n{history.story()}"
            assert not commit.repeated, history.story()
        completions = [c for c in completions_of(table) if c.requested in commits]
        found = list[int]()
        for completion in completions:
            if completion.members:
                writes = self._members(history, completion, own, fresh)
                self.sizes.append(len(writes))
            else:
                writes = [write for write, commit in told if commit.requested_at == completion.requested]
                assert len(writes) == 1, history.story()
            found += [write.number for write in writes if write.number in own]
            self._add(history, commits[completion.requested], writes)
        assert sorted(found) == sorted(own), f"{found} are committed, not {[*own]}\n{history.story()}"
        grouped = [completion for completion in completions if any(m.post for m in completion.members)]
        assert not grouped or not {*fresh} & {*self.posted}, f"posts are left out\n{history.story()}"

    def note_carried(self, history: History) -> None:
        """Tell the oracle of posts that another event has taken along: a group without a member of its publisher."""
        if not self.posted:
            return
        table = history.table
        for completion in completions_of(table):
            if completion.members and all(member.post in self.posted for member in completion.members):
                commit = commit_of(session_of(table), completion, tail_of(table), repeated=False)
                history.note("carried", commit, *(member.post for member in completion.members))
                self._add(history, commit, self._members(history, completion, {}, []))
                self.carried += 1

    def _add(self, history: History, commit: Commit, writes: list[SmallWrite]) -> None:
        history.add(commit, commit.requested_at, [said for write in writes for said in write.said])
        for write in writes:
            if write.token is not None:
                history.took(write.token, commit)

    def _members(
        self, history: History, completion: Completion, own: dict[int, SmallWrite], fresh: list[PostName]
    ) -> list[SmallWrite]:
        """The writes of a group, in their order; those of other processes are committed now, and never again."""
        taken = [member.post for member in completion.members if member.post in self.posted]
        tail, now_ms = completion.version - 1, store_of(history.table).now_ms()
        for name in taken:
            assert name is not None
            put_ms = self.posted[name].put_ms
            assert name.version <= tail < name.version + WINDOW, f"{name} is too late\n{history.story()}"
            assert now_ms - put_ms <= FRESH_MS + 1_000, f"{name} is too old\n{history.story()}"
            self.late += name not in fresh
        assert taken == [name for name in self.posted if name in taken], f"in another order\n{history.story()}"
        return [self._member(history, member, own) for member in completion.members]

    def _member(self, history: History, member: Member, own: dict[int, SmallWrite]) -> SmallWrite:
        if member.post in self.posted:
            write = self.posted.pop(member.post)
        else:
            number = int(dict(member.author.info)["write"])
            assert number in own, f"{member} is committed again\n{history.story()}"
            write = own[number]
        assert (member.rows, member.deletes, member.token) == (*write.counts, write.token), history.story()
        return write

    def require_none_of_before(self, history: History) -> None:
        """Nothing is left of what was posted before an erasure, and none of it may be taken any more."""
        there = {stat.path for stat in store_of(history.table).list(POSTS)}
        left = {post_path(name) for name in self.posted} & there
        assert not left, f"an erasure has left posts: {left}\n{history.story()}"
        assert not any(map(tail_of(history.table).may_take, self.posted)), history.story()
