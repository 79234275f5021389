"""The properties of a table as Hudi's writers are to find them, as protocol steps: changed as Hudi changes them.

    hoodie.properties.backup    the properties as they are now, unless there is one
    hoodie.properties           deleted, and put anew

Where there is no file of properties, Hudi's readers and ours take the backup. A process that dies between these steps
leaves it, and the next one goes on from there. Of two processes that do this at once, one could delete the properties
that the other has put: so the backup stays, and Hudi's writers delete it when they change the properties themselves.
All this happens while the value says that nothing begins in the table, so that no writer of ours goes by them.
"""

from __future__ import annotations

from collections.abc import Mapping

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.format.properties import decode_table, encode_table
from crdt_mor.log.paths import BACKUP, PROPERTIES
from crdt_mor.log.steps import MakeDurable, Put, Read, Steps, delete_for_good, put_surely
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName

HADOOPS_SUM = ".hoodie/.hoodie.properties.crc"
"""The checksum that Hadoop keeps of a file which it has written to a disk; with that of another file it reads none."""


def read_properties() -> Steps[bytes | None]:
    """The properties, or their backup where a process died while it changed them."""
    found: bytes | None = yield Read(PROPERTIES)
    return found if found is not None else (yield Read(BACKUP))


def change_properties(changes: Mapping[str, str | None]) -> Steps[None]:
    """Give a table's properties other texts, and take away those that are None, unless they say so already.

    Another process may put others meanwhile, which then stand; each looks at the value again afterwards.
    """
    found: bytes | None = yield Read(PROPERTIES)
    data = found if found is not None else (yield Read(BACKUP))
    assert data is not None, "a table has properties"
    before = decode_table(data, PROPERTIES)
    after = {name: text for name, text in {**before, **changes}.items() if text is not None}
    if found is not None and before == after:
        yield MakeDurable(PROPERTIES)
        return
    yield from replace_properties(data, encode_table(after, ["changed"]))


def replace_properties(before: bytes, after: bytes) -> Steps[None]:
    """Put other properties in the place of those that are there. before: what they are, for the backup."""
    yield from put_surely(Put(BACKUP, before))
    if not (yield from delete_for_good([HADOOPS_SUM, PROPERTIES])):
        raise StorageUnavailableError(
            "the properties of the table cannot be changed, as this process may not delete them: call again as a user "
            f"that may. file={PROPERTIES}"
        )
    yield from put_surely(Put(PROPERTIES, after))


def open_instants(names: Mapping[InstantTime, list[TimelineFileName]], since: InstantTime) -> list[InstantTime]:
    """The instants that Hudi has begun since a time and not ended. names: what stands in its timeline."""
    return sorted(
        instant for instant, found in names.items() if instant > since and all(n.state != "completed" for n in found)
    )
