"""What an input is held to while it is parsed: what it may raise, and what it may do to the machine.

raises        errors of `crdt_mor.errors` alone; a crash of the process is seen by `guided`
does          nothing that Python's audit hooks tell of files that are written, removed or renamed, of programs that
              are started, connections that are made, code that is compiled, modules or classes that are loaded
takes         so many calls of Python functions for so many bytes, and so much memory; a clock is asked nowhere
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

import polars as pl
import pyarrow as pa

from crdt_mor.errors import CrdtMorError

CALLS_MIN: Final = 200_000
CALLS_A_BYTE: Final = 200
"""How many calls of functions an input of so many bytes may lead to."""

BYTES_MIN: Final = 64 << 20
BYTES_A_BYTE: Final = 1_000
"""How much memory of Python's an input of so many bytes may lead to."""

WRITING: Final = frozenset("wax+")
DOING: Final = frozenset(
    [
        "os.remove",
        "os.rename",
        "os.mkdir",
        "os.rmdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "os.utime",
        "os.system",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "os.spawn",
        "subprocess.Popen",
        "shutil.rmtree",
        "shutil.move",
        "socket.connect",
        "socket.bind",
        "urllib.Request",
        "pickle.find_class",
        "ctypes.dlopen",
    ]
)
"""Events of Python's audit hooks that no parser of foreign bytes may lead to."""


OPTIONAL: Final = frozenset(["pandas", "substrait"])
"""Libraries that Arrow looks for when it is first used in some ways, whatever the bytes are; with what they import."""


class ForbiddenError(BaseException):
    """An input did what none may; no handler of a parser's own takes it for an error of its bytes."""


Allowed = Callable[[str, tuple[Any, ...]], bool]
"""Whether a parser may do what an event of the audit hooks says, with its arguments."""


class _Hook:
    """The one audit hook of a process, which cannot be taken away again; idle but while an input is parsed."""

    def __init__(self) -> None:
        self.is_set = self.is_watching = self.is_importing = False
        self.allowed: Allowed = nothing
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_watching:
            return
        self.is_watching = False  # what this looks at makes events, too
        is_seen = not self._is_of_an_import(event, arguments) and _is_forbidden(event, arguments)
        if is_seen and not self.allowed(event, arguments):
            self.seen.append(f"{event} {arguments!r:.300}")
        self.is_watching = True

    def _is_of_an_import(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether a library that may be imported does what it does when it is: import others, and make classes."""
        if event == "import" and (arguments[0].partition(".")[0] in OPTIONAL or not _is_forbidden(event, arguments)):
            self.is_importing = True
        is_text = event == "exec" and arguments[0].co_filename == "<string>"
        return self.is_importing and (event == "import" or is_text)


def nothing(event: str, arguments: tuple[Any, ...]) -> bool:
    """What most parsers may do."""
    return False


_HOOK: Final = _Hook()


def _is_forbidden(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        _, how, flags = arguments
        return bool(WRITING & set(how)) if isinstance(how, str) else bool(flags & 3)
    if event == "import":
        top = arguments[0].partition(".")[0]
        return top not in sys.modules and top not in sys.stdlib_module_names
    if event == "exec":
        return not arguments[0].co_filename.startswith(_homes())
    return event in DOING


@cache
def _homes() -> tuple[str, ...]:
    """Where code is that may run: Python's own, this repository's, and that of the libraries."""
    libraries = (str(Path(module.__file__ or "").parents[1]) for module in (pa, pl))
    return sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), "<frozen ", *libraries


@contextmanager
def only_allowed(allowed: Allowed) -> Iterator[None]:
    """Raise `ForbiddenError` where the block does something to the machine that is not allowed."""
    if not _HOOK.is_set:
        sys.addaudithook(_HOOK)
        _HOOK.is_set = True
    writes = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a codec of Python's own may be imported late, whose bytecode is no input's doing
    _HOOK.allowed, _HOOK.seen, _HOOK.is_importing, _HOOK.is_watching = allowed, [], False, True
    try:
        yield
    finally:
        _HOOK.is_watching = False
        sys.dont_write_bytecode = writes
    if _HOOK.seen:
        raise ForbiddenError(f"an input made the process do this: {_HOOK.seen[:3]}")


@contextmanager
def bounded(size: int) -> Iterator[None]:
    """Raise `ForbiddenError` where the block takes more calls or more memory than an input of this size may."""
    calls, most = 0, CALLS_MIN + CALLS_A_BYTE * size

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > most:
            sys.setprofile(None)
            raise ForbiddenError(f"more than {most} calls for {size} bytes")

    before = sys.getprofile()
    tracemalloc.start(1)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    if peak > BYTES_MIN + BYTES_A_BYTE * size:
        raise ForbiddenError(f"{peak} bytes of memory for an input of {size} bytes")


def parsed(parse: Callable[[bytes], object], data: bytes, allowed: Allowed) -> bool:
    """Whether these bytes are parsed; False where they are refused as they should be. All else is raised."""
    with only_allowed(allowed):
        try:
            parse(data)
        except CrdtMorError:
            return False
    return True
