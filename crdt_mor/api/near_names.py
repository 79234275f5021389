"""Methods of other table formats' Python interfaces, and the method of `Table` to call instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

METHODS: Final = {
    **dict.fromkeys(("vacuum", "clean", "expire_snapshots"), "maintenance.clean()"),
    **dict.fromkeys(("optimize", "compact"), "maintenance.compact()"),
    "maintain": "maintenance.maintain()",
    "erase": "maintenance.erase()",
    "restore": "maintenance.restore()",
    "migrate": "maintenance.migrate()",
    **dict.fromkeys(("insert", "write", "add"), "append() or upsert()"),
    **dict.fromkeys(("read", "select", "query", "sql"), "scan(columns=, filter=)"),
    "filter": "scan(filter=)",
    **dict.fromkeys(("to_pyarrow_table", "to_table"), "to_arrow()"),
    **dict.fromkeys(("backup", "export", "clone"), "copy()"),
    **dict.fromkeys(("fsck", "check"), "verify()"),
    "repair": "maintenance.repair()",
    **{name: f"maintenance.{name}()" for name in ("savepoint", "savepoints", "drop_savepoint")},
    **dict.fromkeys(("stats", "describe", "detail", "info"), "inspect, history() or count()"),
    **dict.fromkeys(("files", "file_uris", "get_add_actions"), "inspect.files()"),
    **dict.fromkeys(("load_as_version", "load_with_datetime", "as_of", "at_version"), "scan(as_of=)"),
    "load_cdf": "changes(images=True)",
    "drop": "alter(drop=) for columns, and crdt_mor.drop_table to delete a table",
    **dict.fromkeys(("head", "show"), "scan(limit=5).to_polars()"),
    "comments": "inspect.comments()",
    "log": "history()",
    "timeline": "inspect.timeline()",
}
"""Methods to use instead of names that `Table` lacks. Methods that lose rows are listed only under their own names."""


class NearNames:
    """Suggests a `Table` method for an unknown attribute of another system."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise `AttributeError`, with a suggestion if there is one."""
            instead = f". Use table.{METHODS[name]}" if name in METHODS else ""
            message = f"{type(self).__name__!r} object has no attribute {name!r}{instead}"
            raise AttributeError(message, name=name, obj=self)
