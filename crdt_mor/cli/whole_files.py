"""Write the user's files atomically, even if the command is killed."""

from __future__ import annotations

from pathlib import Path


def put_whole(path: Path, data: bytes) -> None:
    """Replace a file. The old file stays if that fails."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
