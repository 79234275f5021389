"""Tables as Hudi leaves them, made from our own bytes: without a trace of us, a part of the timeline archived."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.format import properties
from crdt_mor.format.commit import CommitMetadata, decode_commit, encode_commit
from crdt_mor.model.names import OWN_KEY, TimelineFileName
from tests.format.replace_commit import encode_replace_commit

SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
DATA_ACTIONS = ("commit", "deltacommit", "replacecommit")


def data_file(rows: Sequence[Mapping[str, object]]) -> bytes:
    """A data file of the archive."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), sink, compression="gzip", store_schema=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def completed(root: Path) -> list[tuple[TimelineFileName, Path]]:
    """The completed files of the active timeline, in requested order."""
    names = [(TimelineFileName.parse(path.name), path) for path in (root / ".hoodie/timeline").iterdir()]
    return sorted(((n, path) for n, path in names if n and n.state == "completed"), key=lambda item: str(item[0]))


def make_hudis(root: Path, changes: Mapping[str, str] | None = None) -> None:
    """Remove every trace of us from a table; `changes` are made to its properties, an empty text removes a key."""
    shutil.rmtree(root / ".hoodie/.crdt_mor")
    (root / ".hoodie/timeline/.crdt_mor").unlink(missing_ok=True)
    edit(root, lambda commit: replace(commit, extra={k: v for k, v in commit.extra.items() if k != OWN_KEY}))
    for path in (root / ".hoodie/timeline").glob("*.inflight"):
        path.write_bytes(b"")
    file = root / ".hoodie/hoodie.properties"
    found = properties.decode_table(file.read_bytes(), str(file)) | dict(changes or {})
    kept = {key: value for key, value in found.items() if value and not key.startswith("crdt_mor.")}
    file.write_bytes(properties.encode_table(kept))


def edit(root: Path, change: Callable[[CommitMetadata], CommitMetadata]) -> None:
    """Rewrite what the completed files say."""
    for name, path in completed(root):
        is_replace = name.action == "replacecommit"
        if name.action in DATA_ACTIONS:
            found = change(decode_commit(path.read_bytes(), path.name, replace=is_replace))
            path.write_bytes(encode_replace_commit(found) if is_replace else encode_commit(found))


def archive(root: Path, count: int, *, remove: bool = True) -> Path:
    """Archive the first `count` instants of the active timeline in one data file, as Hudi does; the file."""
    chosen = completed(root)[:count]
    rows = [
        {
            "instantTime": name.requested,
            "completionTime": name.completed,
            "action": name.action,
            "metadata": path.read_bytes(),
            "version": 1,
        }
        for name, path in chosen
    ]
    first, last = chosen[0][0].requested, chosen[-1][0].requested
    history = root / ".hoodie/timeline/history"
    history.mkdir(exist_ok=True)
    file = history / f"{first}_{last}_0.parquet"
    file.write_bytes(data_file(rows))
    write_manifest(history, [*listed(history), file.name])
    if remove:
        for name, _ in chosen:
            for path in (root / ".hoodie/timeline").glob(f"{name.requested}*"):
                path.unlink()
    return file


def listed(history: Path) -> list[str]:
    """The data files that count."""
    version = history / "_version_"
    if not version.exists():
        return []
    manifest = json.loads((history / f"manifest_{version.read_text()}").read_text())
    return [entry["fileName"] for entry in manifest["files"]]


def write_manifest(history: Path, names: Sequence[str]) -> None:
    """A new manifest, which the version file then names."""
    version = history / "_version_"
    number = int(version.read_text()) + 1 if version.exists() else 1
    entries = [{"fileName": name, "fileLen": (history / name).stat().st_size} for name in names]
    (history / f"manifest_{number}").write_text(json.dumps({"files": entries}, indent=2))
    version.write_text(str(number))


def roll_up(root: Path) -> None:
    """Make one data file of all that count, of the next level."""
    history = root / ".hoodie/timeline/history"
    names = listed(history)
    rows = [row for name in names for row in pq.read_table(history / name).to_pylist()]
    rows.sort(key=lambda row: str(row["instantTime"]))
    merged = f"{rows[0]['instantTime']}_{rows[-1]['instantTime']}_1.parquet"
    (history / merged).write_bytes(data_file(rows))
    write_manifest(history, [merged])
    for name in names:
        (history / name).unlink()
