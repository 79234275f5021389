"""A payload of one's own."""

from __future__ import annotations

from typing import ClassVar

from tests.spark import own

own.mark("named").touch()


class Longest(own.Longest):
    """See the package."""

    name: ClassVar[str] = "acme.longest_named/1"
