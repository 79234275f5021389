"""Files of the user's that are there whole or not at all, whenever the command is killed."""

from __future__ import annotations

from pathlib import Path


def put_whole(path: Path, data: bytes) -> None:
    """Put a file in the place of one that may be there, which stays as it is if that fails."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
