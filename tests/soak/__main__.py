"""Everybody who works on a table, as processes of their own: `python -m tests.soak --minutes 30 --seed 1 --store s3`

Eight writers upsert, delete and count with tokens; two updaters move money between accounts in place; a driver makes
writes of several tasks, some of which are done twice; two processes compact, one maintains; three read the newest rows,
older ones and changes; two follow the table with copies of their own. On a disk calls of the store fail by chance;
before a bucket a proxy lets requests fail. Processes are killed with SIGKILL and started again, and stopped for longer
than the expiry. The first process of each kind is killed at the beginning alone, so that its memory can be measured.

All the time each view is exactly what the commits in it mean, and has every commit that was acknowledged before. In the
end each acknowledged commit is there once, `verify` finds nothing, hudi-rs reads the same rows, and neither the folder
nor the memory of a process has grown. What is wrong is said, and the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crdt_mor import Opening, Table
from crdt_mor.payloads import Counter
from tests import servers
from tests.proxy import Proxy
from tests.soak import meaning
from tests.soak.actors import EXPIRY
from tests.soak.crowd import Crowd
from tests.soak.reckoning import reckon

POLICIES = {
    "crdt_mor.retention": "60s",
    "crdt_mor.readers": "60s",
    "crdt_mor.archive.commits": "20",
    "crdt_mor.compaction.log_files": "8",
}
SHARE = 0.01
"""Of the requests to a bucket so many fail."""


@contextmanager
def made(store: str, seed: int) -> Iterator[Crowd]:
    """A table with what it begins with, and who will work on it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options, uri, variables = None, str(folder / "table"), dict[str, str]()
        if store != "local":
            server = servers.SERVERS[store]()
            proxy = stack.enter_context(Proxy(server.port, seed=seed, share=SHARE).running())
            options, uri = server.options, server.address("soak")
            variables = {name.upper(): value for name, value in server.through(proxy.port).options.items()}
        counters = {name: Counter() for name in ("n", "s", "q")}
        table = Table.create(
            uri, meaning.SCHEMA, key=meaning.KEY, partition_by="kind", merge=counters, buckets=2,
            opening=Opening(writer_expiry=EXPIRY),
            storage_options=options,
        )  # fmt: skip
        table.set_properties(POLICIES)
        table.upsert(meaning.table_of(meaning.opening()))
        yield Crowd(uri, folder, table, variables)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("local", *servers.SERVERS), default="local")
    given = parser.parse_args()
    with made(given.store, given.seed) as crowd:
        crowd.run(given.minutes * 60, given.seed)
        sys.stdout.write(f"{reckon(crowd)}\n")
        for wrong in crowd.wrong:
            sys.stdout.write(f"wrong: {wrong}\n")
        sys.stdout.write(f"{len(crowd.wrong)} wrong\n")
        return int(bool(crowd.wrong))


if __name__ == "__main__":
    sys.exit(main())
