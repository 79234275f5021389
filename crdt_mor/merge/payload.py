"""What a merge function must say of itself.

A payload is stored in the table by name and parameters, never as an object: every process, reader or writer, resolves
the same text to the same meaning. This release knows one payload, `payloads.PartialUpdate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Payload:
    """A merge function, by name.

    `name` carries its version after a slash and never changes its meaning; `parameters` are stored beside it.
    """

    name: ClassVar[str]

    def parameters(self) -> Mapping[str, str]:
        """Parameters as text; empty where there are none."""
        return {}
