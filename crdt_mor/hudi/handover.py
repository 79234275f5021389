"""Change the table's properties for Hudi's writers, as Hudi does.

    hoodie.properties.backup    the present properties, unless a backup exists
    hoodie.properties           deleted, and put anew

Without properties, Hudi's readers and ours take the backup. Of two processes at once, one might delete the other's
properties, so the backup stays, and Hudi's writers delete it later. Meanwhile the value allows no writes.
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
"""Hadoop's checksum of a file on a disk. Hadoop reads no file with a wrong one."""


def read_properties() -> Steps[bytes | None]:
    """Read the properties, or their backup if a process died while changing them."""
    found: bytes | None = yield Read(PROPERTIES)
    return found if found is not None else (yield Read(BACKUP))


def change_properties(changes: Mapping[str, str | None]) -> Steps[None]:
    """Set properties, and remove those that are None. Each caller checks the value again, as others may change them."""
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
    """Replace the properties. before: the present bytes."""
    yield from put_surely(Put(BACKUP, before))
    if not (yield from delete_for_good([HADOOPS_SUM, PROPERTIES])):
        raise StorageUnavailableError(
            "the table's properties cannot be changed, as this process may not delete the file. Call again as a "
            f"user with permission. file={PROPERTIES}"
        )
    yield from put_surely(Put(PROPERTIES, after))


def open_instants(names: Mapping[InstantTime, list[TimelineFileName]], since: InstantTime) -> list[InstantTime]:
    """Return the instants that Hudi has begun since a time and not ended."""
    return sorted(
        instant for instant, found in names.items() if instant > since and all(n.state != "completed" for n in found)
    )
