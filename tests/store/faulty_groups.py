"""Writers whose small writes are committed in groups, each behind a connection that fails, and some of whom die.

    python -m tests.store.faulty_groups --histories 1000 --seed 1 --store s3

In each history several writers at once, threads with a store and a proxy of their own, count up a key of their own and
one of all, and delete some of their keys again. Requests fail by chance: replies are lost, connections break, answers
are wrong or cut off. Some writers die just before or after a put, so that a post stays whose writer is no more; they
are started anew, and write the same again under the same token.

What was acknowledged is there, once; what failed is not there, or is unknown; and the sum agrees with the keys.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter as Tally
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

import polars as pl

from crdt_mor import Commit, CrdtMorError, Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError
from crdt_mor.payloads import Counter
from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import ObjectStore
from crdt_mor.store.options import read_options
from crdt_mor.testing.faults import ProcessDied
from tests import servers
from tests.inside import completions_of
from tests.posting import in_a_crowd
from tests.proxy import Hurried, Proxy
from tests.store.helpers import COLUMNS
from tests.stores import Dying, ScriptedStore, as_it_is

ALL: Final = "all"
DEATHS_SHARE: Final = 0.3
"""How often a writer dies, of its writes: at one of its first puts."""

PUTS_MAX: Final = 6
CROWDED_SHARE: Final = 0.8
DELETES_SHARE: Final = 0.3

Told = Literal["done", "failed", "unknown"]
Work = Callable[[Table, tuple[str, int]], Commit]


def is_put(operation: str, path: str) -> bool:
    return operation == "put"


@dataclass
class Writer:
    """A writer, and what it was told of each of its keys: upserted, and deleted again."""

    name: str
    seed: int
    server: servers.Server
    uri: str
    upserted: dict[str, Told] = field(default_factory=dict)
    deleted: dict[str, Told] = field(default_factory=dict)
    number: int = 0
    did: Tally[str] = field(default_factory=Tally)

    def run(self, rounds: int, share: float) -> None:
        chance = self.chance = Random(self.seed)
        with Proxy(self.server.port, seed=self.seed, share=share).running() as proxy:
            self.through = self.server.through(proxy.port)
            self._begin_anew()
            for number in range(rounds):
                key = f"{self.name}-{number}"
                self.upserted[key] = self._told(lambda table, token, key=key: table.upsert(rows_of(key), token=token))  # type: ignore[misc]
                if self.upserted[key] == "done" and chance.random() < DELETES_SHARE:
                    self.deleted[key] = self._told(lambda table, token, key=key: table.delete(keys=[key], token=token))  # type: ignore[misc]
                if chance.random() < 0.1:
                    with suppress(CrdtMorError):
                        self.table.maintenance.compact()
        self.did["requests"] += len(proxy.requests)
        self.did["failed requests"] += sum(bool(fate) for _, _, fate in proxy.requests)

    def _begin_anew(self) -> None:
        """A new process opens the table."""
        while True:
            place = place_of(self.uri)
            assert place is not None
            options = read_options(self.through.options, place.provider)
            store = ObjectStore(place, options.public, options.secret, Hurried())
            store._requests.prepare()
            self.store = ScriptedStore(store, as_it_is)
            with suppress(StorageUnavailableError):
                self.table = Table(self.uri, opening=Opening(store=self.store, environment=Hurried()))
                return

    def _told(self, work: Work) -> Told:
        """Write, and write again where it is not known what came of it; always where the process has died."""
        chance, is_known = self.chance, True
        self.number += 1
        token = (self.name, self.number)
        if chance.random() < DEATHS_SHARE:
            self.store.script = Dying(is_put, chance.randint(1, PUTS_MAX), after=chance.random() < 0.5)
        try:
            while True:
                try:
                    if chance.random() < CROWDED_SHARE:
                        in_a_crowd(self.table)
                    self.did["repeated"] += work(self.table, token).repeated
                    self.did["commits"] += 1
                except ProcessDied:
                    self.did["deaths"] += 1
                    is_known = False
                    self._begin_anew()
                except CommitUnknownError:
                    is_known = False
                    if chance.random() < 0.5:
                        return "unknown"
                except CrdtMorError:
                    return "failed" if is_known else "unknown"
                else:
                    return "done"
        finally:
            self.store.script = as_it_is


def rows_of(key: str) -> pl.DataFrame:
    return pl.DataFrame({"id": [key, ALL], "n": [1, 1]}, COLUMNS)


def run(server: servers.Server, seed: int, writers: int = 4, rounds: int = 3, share: float = 0.12) -> Tally[str]:
    """One history; what happened in it, counted. Raises `AssertionError` with what is wrong."""
    uri = server.address(f"groups-{seed}")
    table = Table.create(uri, COLUMNS, key="id", merge={"n": Counter()}, buckets=2, storage_options=server.options)
    table.upsert(rows_of("first"))
    crew = [Writer(f"w{number}", seed * 100 + number, server, uri) for number in range(writers)]
    errors: list[BaseException] = []

    def work(writer: Writer) -> None:
        try:
            writer.run(rounds, share)
        except BaseException as error:  # noqa: BLE001  told by the caller's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise AssertionError(f"seed={seed} {errors}") from errors[0]
    return check(Table(uri, storage_options=server.options), crew, f"seed={seed}")


def check(table: Table, crew: list[Writer], where: str) -> Tally[str]:
    """Nothing is lost, nothing there twice, and nothing that failed."""
    found = dict(table.to_polars().rows())
    upserted = {"first": "done"} | {key: told for writer in crew for key, told in writer.upserted.items()}
    deleted = {key: told for writer in crew for key, told in writer.deleted.items()}
    where = f"{where} upserted={upserted} deleted={deleted} found={found}"
    total = found.pop(ALL)
    assert set(found.values()) <= {1}, f"a commit counts once: {where}"
    gone = {key for key, told in upserted.items() if told == "done"} - found.keys()
    assert gone <= {key for key, told in deleted.items() if told != "failed"}, f"a commit is lost: {where}"
    assert {key for key, told in deleted.items() if told == "done"} <= gone, f"a delete is lost: {where}"
    assert found.keys() <= {key for key, told in upserted.items() if told != "failed"}, (
        f"a failed one is there: {where}"
    )
    assert total == len(found) + len(gone), f"a commit counts once for all: {where}"
    did = sum((writer.did for writer in crew), Tally[str]())
    sizes = [len(completion.members) for completion in completions_of(table)]
    groups = [size for size in sizes if size > 1]
    return did + Tally({
        "histories": 1, "posted commits": sum(size > 0 for size in sizes), "groups": len(groups),
        "writes in groups": sum(groups),
        "of unknown outcome": sum(told == "unknown" for told in [*upserted.values(), *deleted.values()]),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=sorted(servers.SERVERS), default="s3")
    given = parser.parse_args()
    total = Tally[str]()
    for seed in range(given.seed, given.seed + given.histories):
        total += run(servers.SERVERS[given.store](), seed)
        did = ", ".join(f"{count} {what}" for what, count in total.items())
        sys.stdout.write(f"{did}: 0 lost, 0 twice\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
