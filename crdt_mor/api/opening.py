"""`Opening`: the options of an open table that programs seldom give.

`Table`, `Table.create` and `Table.create_from` take one as `opening=`. Errors in its values are raised when it is made;
`store` is checked with the address, in `store.open`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.memory import memory_limit, require_memory_limit
from crdt_mor.model.policies import milliseconds

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed
    from crdt_mor.store.protocol import Store

WRITER_EXPIRY: Final = timedelta(minutes=10)

_METHODS: Final = tuple(name for name, member in vars(Environment).items() if callable(member) and name[0] != "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Seldom needed options of an open table: its store, the expiry of writers, upkeep and the clock.

    A program can keep one value and pass it for each table: `Table("events", opening=opening)`. Options that a table
    remembers, such as `buckets`, and `storage_options` are arguments of the methods.

    Attributes:
        store: the table's store, such as a `MemoryStore`, private to this process, or an `S3Store`, `AzureStore` or
            `GCSStore` of obstore for the bucket of `uri`. None takes the store of the address.
        writer_expiry: this process may roll back writes that are silent for longer; 10 minutes by default.
        maintain: "inline" compacts, after each commit of this object, the file groups that are due among those
            written; None follows the property `crdt_mor.maintain`, by default "auto": in bounded time, if one machine
            writes. "off" also leaves the mirrors of `crdt_mor.mirror.when` to others. Errors are reported to `observe`
            and fail no commit.
        memory_limit: bytes of memory for a call, see the page on memory; None takes the environment variable
            `CRDT_MOR_MEMORY_LIMIT`, by default a quarter of the machine's or container's memory.
        environment: source of time, ids and randomness, for tests; None takes the system's.

    Raises:
        InvalidInputError: `writer_expiry` is no `timedelta` of 0 or more, `maintain` is unknown, `memory_limit` is no
            number above 0, or `environment` lacks methods.
    """

    store: Store | Handed | None = None
    writer_expiry: timedelta = WRITER_EXPIRY
    maintain: Literal["inline", "off"] | None = None
    memory_limit: int | None = None
    environment: Environment | None = None

    def __post_init__(self) -> None:
        milliseconds("writer_expiry", self.writer_expiry)
        if self.maintain not in (None, "inline", "off"):
            raise InvalidInputError(
                f'maintain must be "inline", "off", or None for the property. got={self.maintain!r}'
            )
        if self.memory_limit is not None:
            require_memory_limit("memory_limit", self.memory_limit)
        _require_environment(self.environment)


@dataclass(frozen=True, slots=True)
class OpenedWith:
    """The options of an `Opening` as the rooms below take them. maintain: None follows the table's property."""

    store: Store | Handed | None
    expiry_ms: int
    maintain: Literal["inline", "off"] | None
    memory_limit: int
    environment: Environment


def opened_with(opening: Opening | None) -> OpenedWith:
    """Return the options of a call's `opening`, or the usual ones. Raises `InvalidInputError` for another type."""
    if opening is None:
        opening = Opening()
    if not isinstance(opening, Opening):
        raise InvalidInputError(
            "pass an Opening as opening: Table('events', opening=Opening(store=...)). "
            f"got={opening!r:.80} type={type(opening).__name__}"
        )
    return OpenedWith(
        opening.store,
        milliseconds("writer_expiry", opening.writer_expiry),
        opening.maintain,
        memory_limit() if opening.memory_limit is None else opening.memory_limit,
        opening.environment or SystemEnvironment(),
    )


def _require_environment(environment: object) -> None:
    missing = [name for name in _METHODS if not callable(getattr(environment, name, None))]
    if environment is not None and (missing or isinstance(environment, type)):
        raise InvalidInputError(
            "pass as environment an object with the methods of crdt_mor.Environment, such as a SimulatedEnvironment of "
            "crdt_mor.testing, or leave it out. "
            f"got={environment!r:.80} type={type(environment).__name__} missing={missing}"
        )
