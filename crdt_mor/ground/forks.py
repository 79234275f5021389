"""Refuse work in forked processes that would hang or share a parent's objects.

A fork copies memory, but only the forking thread.

  - Polars starts its threads with its first work. A process forked later would wait for them forever.
  - A table, transaction or scan opened before the fork would belong to two processes: one could end a transaction
    while the other writes. Each belongs only to the process that opened it.

A process forked before any work opens its own tables and works normally.
"""

from __future__ import annotations

import os
from contextlib import suppress

from crdt_mor.errors import ForkedProcessError, page

_TASKS = "/proc/self/task"
_POLARS_THREADS = ("polars-0", "async-executor-")
"""Name prefixes of polars' workers, without its thread from import."""


class _Forks:
    """The forks before this process.

    Attributes:
        sessions: number of sessions opened by this process and its parents.
        threads: polars had its threads at the last fork.
        threads_lost: they are missing here.
        clients, clients_lost: the same for threads of object store clients.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sessions = 0
        self.threads = False
        self.threads_lost = False
        self.clients = False
        self.clients_lost = False

    def note_threads(self) -> None:
        self.threads = _polars_works(self.sessions > 0)

    def after_in_child(self) -> None:
        self.count += 1
        self.threads_lost |= self.threads
        self.clients_lost |= self.clients


_forks = _Forks()

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_forks.note_threads, after_in_child=_forks.after_in_child)


def fork_count() -> int:
    """Return the number of forks before this process; objects noted under another number are a parent's."""
    return _forks.count


def is_own(forks: int) -> bool:
    return forks == _forks.count


def new_session(uri: str) -> int:
    """Return the fork count; raise if a session would hang."""
    require_threads(uri)
    _forks.sessions += 1
    return _forks.count


def require_threads(uri: str) -> None:
    if _forks.threads_lost:
        raise _threads_lost(uri)


def require_own(forks: int, opened: str) -> None:
    """Raise `ForkedProcessError` if `opened`, noted at this fork count, belongs to a parent."""
    if forks == _forks.count:
        return
    if _forks.threads_lost:
        raise _threads_lost(opened)
    raise ForkedProcessError(
        "this was opened before the process forked, and belongs to the parent: call Table(uri) in this process, and "
        f"begin transactions and scans here. pid={os.getpid()} opened={opened}"
    )


def require_clients(opened: str) -> None:
    """Raise `ForkedProcessError` if an object store client would hang; else note its use."""
    if _forks.clients_lost:
        raise ForkedProcessError(
            "this process was forked after its parent used an object store, and lacks the threads for requests: start "
            "processes with "
            'multiprocessing.get_context("spawn") or "forkserver", or fork before the parent uses a table. '
            f"{page('processes')} shows how. pid={os.getpid()} opened={opened}"
        )
    _forks.clients = True


def _threads_lost(opened: str) -> ForkedProcessError:
    return ForkedProcessError(
        "this process was forked after its parent used polars, and lacks polars' threads: start processes with "
        'multiprocessing.get_context("spawn") or "forkserver", or fork before the parent uses a table or polars. '
        f"{page('processes')} shows how. pid={os.getpid()} opened={opened}"
    )


def _polars_works(otherwise: bool) -> bool:
    """Return True if polars has started its threads; `otherwise` if the system does not tell."""
    try:
        tasks = os.listdir(_TASKS)
    except OSError:
        return otherwise
    return any(_task_name(task).startswith(_POLARS_THREADS) for task in tasks)


def _task_name(task: str) -> str:
    with suppress(OSError), open(f"{_TASKS}/{task}/comm", encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""  # the thread ended
