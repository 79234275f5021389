"""A module of a user's, as it lies in the folder in which a command runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def own_module(content: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current directory; it is fresh, as modules are imported once."""
    name = f"mine_{abs(hash(folder))}"
    (folder / f"{name}.py").write_text(content)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(folder)])
    return name
