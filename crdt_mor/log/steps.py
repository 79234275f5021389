"""Store operations as values, so that protocols do no I/O.

A protocol is a generator that yields operations and gets their results. `run` drives it against a store, and tests
drive it through every interleaving.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from crdt_mor.errors import CommitUnknownError, CrdtMorError, StorageUnavailableError
from crdt_mor.ground.clock import Environment
from crdt_mor.log.paths import outside_other_tables
from crdt_mor.store.absences import LOOKS, contradicted, folder_of
from crdt_mor.store.paths import one_of_each_folder
from crdt_mor.store.protocol import Durable, Stat, Store, numbered, side_by_side

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """-> bytes | None"""

    path: str


@dataclass(frozen=True, slots=True)
class Put:
    """-> bool | None: created, exists already, or unknown (the reply was lost).

    after: paths that become durable before this object gets its name. decides: later failures leave the outcome unknown
    (`log.deciding`).
    """

    path: str
    data: bytes
    durable: Durable = True
    after: Sequence[str] = ()
    decides: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """-> bool: created by this step; False if `target` exists, or without `source`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class GetStat:
    """-> Stat | None"""

    path: str


@dataclass(frozen=True, slots=True)
class List:
    """-> list[Stat], directly in the folder, by path. numbered: only names that begin with a digit."""

    folder: str
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """-> list[Stat], the files of the table below a folder, by path."""

    folder: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """-> bool, whether the object is gone.

    Only unneeded objects are deleted, so a failure leaves the object to another process. A power cut may bring it back.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Touch:
    """-> None; sets the object's modification time to the store's now. A hint: failures are ignored."""

    path: str


@dataclass(frozen=True, slots=True)
class MakeDurable:
    """-> None; the object, put by anybody, now survives a power cut; a deleted object stays away."""

    path: str


@dataclass(frozen=True, slots=True)
class Now:
    """-> int, wall clock in milliseconds."""


@dataclass(frozen=True, slots=True)
class StoreNow:
    """-> int, the store's own clock in milliseconds."""


@dataclass(frozen=True, slots=True)
class Nonce:
    """-> str, a unique text."""


@dataclass(frozen=True, slots=True)
class Pause:
    """-> None, after a pause growing with `attempt`, with jitter."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Wait:
    """-> None, after so many milliseconds plus up to a quarter."""

    milliseconds: float


Single = (
    Read | Put | Copy | GetStat | List | Walk | Delete | Touch | MakeDurable | Now | StoreNow | Nonce | Pause | Wait
)


@dataclass(frozen=True, slots=True)
class Together:
    """-> list, the results of `steps`, which run in any order or in parallel. If one fails, others may or may not have
    run.
    """

    steps: tuple[Single, ...]


Step = Single | Together
Steps = Generator[Step, Any, T]
"""A protocol with result `T`."""

PUTS_MAX = 10
"""How often a put with a lost reply is repeated."""

PAUSE_MAX_S = 0.25
_PAUSE_S = 0.001


def run(steps: Steps[T], store: Store, environment: Environment) -> T:
    """Run a protocol. After a deciding put, it gets every failure as a `StorageUnavailableError`."""
    reply: object = None
    failure: Exception | None = None
    is_decided = False
    try:
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            reply, failure = None, None
            try:
                if isinstance(step, Together):
                    calls = [partial(perform, part, store, environment) for part in step.steps]
                    reply = side_by_side(store, calls)
                else:
                    reply = perform(step, store, environment)
            except AssertionError:
                raise  # a programming error, not a failure of the store
            except Exception as error:  # noqa: BLE001  the protocol raises the error or translates it
                failure = error
            is_decided = is_decided or _decides(step, failure)
            if is_decided and failure is not None and not isinstance(failure, _FAILURES):
                failure = _failed(failure)
    finally:
        steps.close()


_FAILURES = (StorageUnavailableError, CommitUnknownError)
"""Expected errors of stores. A store may raise others."""


def _failed(error: Exception) -> StorageUnavailableError:
    failed = StorageUnavailableError(f"the store failed. cause={type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def _decides(step: Step, failure: Exception | None) -> bool:
    """Return True if an event may be decided after a step. A single put that raises was not carried out."""
    if isinstance(step, Together):
        return any(isinstance(part, Put) and part.decides for part in step.steps)
    return isinstance(step, Put) and step.decides and failure is None


def perform(step: Single, store: Store, environment: Environment) -> object:
    match step:
        case Put():
            return _put(step, store)
        case Copy(source, target):
            try:
                return store.copy(source, target)
            except StorageUnavailableError:
                if store.stat(source) is not None:
                    raise
                return False
        case Delete(path):
            try:
                store.delete(path)
            except StorageUnavailableError:
                return False
            return True
        case Touch(path):
            with suppress(StorageUnavailableError):
                store.touch(path)
        case MakeDurable(path):
            store.make_durable(path)
        case Pause(attempt):
            environment.sleep(environment.jitter() * min(PAUSE_MAX_S, _PAUSE_S * 2**attempt))
        case Wait(milliseconds):
            environment.sleep(milliseconds * (1 + environment.jitter() / 4) / 1000)
        case _:
            return _look(step, store, environment)
    return None


def _put(put: Put, store: Store) -> bool | None:
    try:
        return store.put(put.path, put.data, durable=put.durable, after=put.after)
    except CommitUnknownError:
        return None
    except CrdtMorError:
        raise
    except Exception:
        if put.decides:  # an unexpected class: the outcome is unknown
            return None
        raise


def _look(
    step: Read | GetStat | List | Walk | Now | StoreNow | Nonce, store: Store, environment: Environment
) -> object:
    match step:
        case Read(path):
            return store.read(path)
        case GetStat(path):
            return store.stat(path)
        case List(folder, is_numbered):
            return numbered(store, folder) if is_numbered else store.list(folder)
        case Walk(folder):
            return outside_other_tables(store.walk(folder))
        case Now():
            return environment.now_ms()
        case StoreNow():
            return store.now_ms()
        case Nonce():
            return environment.nonce()


def read_named(path: str) -> Steps[bytes | None]:
    """Read an object that another object names; None only if its folder does not list it (`store.absences`)."""
    data: bytes | None = yield Read(path)
    for _ in range(LOOKS):
        if data is not None or all(stat.path != path for stat in (yield List(folder_of(path)))):
            return data
        data = yield Read(path)
    if data is None:
        raise contradicted(path)
    return data


def put_all_surely(puts: Sequence[Put]) -> Steps[tuple[bool, list[Put]]]:
    """Put objects in parallel that all processes put with the same contents. Repeats puts with a lost reply.

    Afterwards all are durable, also existing ones: their writer may have died before. Returns whether none can land
    later, and the existing objects.
    """
    answered, existing, _ = yield from put_all_beside(puts, ())
    return answered, existing


def put_all_beside(puts: Sequence[Put], looks: Sequence[GetStat]) -> Steps[tuple[bool, list[Put], list[Stat | None]]]:
    unanswered, existing = list(puts), list[Put]()
    stats: list[Stat | None] | None = None
    for attempt in range(PUTS_MAX):
        steps: tuple[Single, ...] = (*unanswered, *(looks if stats is None else ()))
        replies = (yield Together(steps)) if steps else []
        stats = replies[len(unanswered) :] if stats is None else stats
        made = list(zip(unanswered, replies, strict=False))
        existing += [put for put, created in made if created is False]
        unanswered = [put for put, created in made if created is None]
        if not unanswered:
            for put in existing:
                if put.durable:
                    yield MakeDurable(put.path)
            return attempt == 0, existing, stats
        yield Pause(attempt)
    raise CommitUnknownError(
        "the store did not confirm whether an object exists, after several tries. Check the table before you write "
        f"again; a write with a token may be repeated. path={unanswered[0].path} tries={PUTS_MAX}"
    )


def put_surely(put: Put) -> Steps[None]:
    yield from put_all_surely([put])


def delete_for_good(paths: Sequence[str]) -> Steps[bool]:
    """Delete objects durably, as an event or the next deletion relies on it. Returns True if all are gone."""
    gone, all_gone = list[str](), True
    for path in paths:
        if (yield Delete(path)):
            gone.append(path)
        else:
            all_gone = False
    for path in one_of_each_folder(gone):
        yield MakeDurable(path)
    return all_gone
