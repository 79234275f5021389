"""Credential providers that tests name, `tests.store.vending:of_obstore`, as a user's program would have them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.servers import AWS_KEYS


def of_obstore() -> dict[str, Any]:
    """As obstore's own providers give credentials."""
    return {
        "access_key_id": AWS_KEYS["aws_access_key_id"],
        "secret_access_key": AWS_KEYS["aws_secret_access_key"],
        "token": None,
        "expires_at": None,
    }


def of_polars() -> tuple[dict[str, str], int | None]:
    """As those of polars give them."""
    return dict(AWS_KEYS), None


class Vendor:
    """One credential after another: the key ids are `KEY-1`, `KEY-2` and so on. expires_at: of the next one."""

    def __init__(self, expires_at: datetime | None = None) -> None:
        self.given = 0
        self.expires_at = expires_at

    def __call__(self) -> dict[str, Any]:
        self.given += 1
        key = f"KEY-{self.given}"
        return {"access_key_id": key, "secret_access_key": f"secret-of-{key}", "expires_at": self.expires_at}


class Made:
    """A provider that is given as a class."""

    def __call__(self) -> dict[str, Any]:
        return of_obstore()


NOT_CALLABLE = 5
