"""What a forked process must not do: use what its parent had opened, or wait for threads that it does not have.

A fork copies the memory of a process and, of its threads, only the one that forked. Two things follow.

  - Polars runs its work in threads of its own, which it starts with the first work. A process that is forked later
    believes that it has them, and waits for ever for the first answer. So such a process is refused at the door.
  - A table, a transaction or a scan that was opened before the fork would be held by two processes: a transaction could
    be ended, or rolled back, by the one while the other still writes. So each belongs to the process that opened it.

A process that was forked before anything had run opens its own tables and works as any other.
"""

from __future__ import annotations

import os
from contextlib import suppress

from crdt_mor.errors import ForkedProcessError

_TASKS = "/proc/self/task"
_POLARS_THREADS = ("polars-0", "async-executor-")
"""How the names begin of the threads in which polars works; not of the one that it starts when it is imported."""


class _Forks:
    """What this process knows of the forks that led to it.

    count: how many there were. sessions: how many sessions of tables this process and its parents have made.
    threads: whether polars had its threads when the last fork began; threads_lost: whether they are missing here.
    clients, clients_lost: the same of the threads in which clients of object stores work.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sessions = 0
        self.threads = False
        self.threads_lost = False
        self.clients = False
        self.clients_lost = False

    def before(self) -> None:
        self.threads = _polars_works(self.sessions > 0)

    def after_in_child(self) -> None:
        self.count += 1
        self.threads_lost |= self.threads
        self.clients_lost |= self.clients


_forks = _Forks()

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_forks.before, after_in_child=_forks.after_in_child)


def fork_count() -> int:
    """How many forks lie between the first process and this one: what was noted under another number is not ours."""
    return _forks.count


def is_own(forks: int) -> bool:
    """Whether what was noted when `fork_count` was `forks` belongs to this process."""
    return forks == _forks.count


def new_session(uri: str) -> int:
    """The number under which a session that opens now is this process's own; raises where it could only hang."""
    require_threads(uri)
    _forks.sessions += 1
    return _forks.count


def require_threads(uri: str) -> None:
    """Raise `ForkedProcessError` in a process that lacks the threads of polars, before anything is made."""
    if _forks.threads_lost:
        raise _threads_lost(uri)


def require_own(forks: int, what: str) -> None:
    """Raise `ForkedProcessError` unless `what`, noted when `fork_count` was `forks`, belongs to this process."""
    if is_own(forks):
        return
    if _forks.threads_lost:
        raise _threads_lost(what)
    raise ForkedProcessError(
        "this was opened before the process forked, and belongs to the parent, which goes on with it: open the table "
        f"in this process, with Table.open, and begin transactions and scans here. pid={os.getpid()} opened={what}"
    )


def require_clients(what: str) -> None:
    """Raise `ForkedProcessError` where a client of an object store could only hang; else note that one is at work."""
    if _forks.clients_lost:
        raise ForkedProcessError(
            "this process was forked from one that had used an object store already, and the threads in which its "
            "requests run do not exist here, so that each would wait for ever: start processes with "
            'multiprocessing.get_context("spawn") or "forkserver", or fork before the parent uses a table. '
            f"docs/processes.md shows how. pid={os.getpid()} opened={what}"
        )
    _forks.clients = True


def _threads_lost(what: str) -> ForkedProcessError:
    return ForkedProcessError(
        "this process was forked from one in which polars was at work already, and its threads do not exist here, so "
        "that reading or writing would wait for ever: start processes with "
        'multiprocessing.get_context("spawn") or "forkserver", or fork before the parent uses a table or polars. '
        f"docs/processes.md shows how. pid={os.getpid()} opened={what}"
    )


def _polars_works(otherwise: bool) -> bool:
    """Whether polars has started its threads in this process; `otherwise` where the system does not tell."""
    try:
        tasks = os.listdir(_TASKS)
    except OSError:
        return otherwise
    return any(_task_name(task).startswith(_POLARS_THREADS) for task in tasks)


def _task_name(task: str) -> str:
    with suppress(OSError), open(f"{_TASKS}/{task}/comm", encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""  # it has ended meanwhile
