r"""A store on a local disk, where files appear whole.

`put` writes a temporary file under `.hoodie/.temp`, fsyncs it, links it to its name and fsyncs the folder. `link(2)` is
the put-if-absent: it makes the name with the whole content or fails since the name is taken, and the kernel lets one of
many callers win. (`O_EXCL` and then writing would show readers half a file; renaming would overwrite.)

    look -> write temp -> look -> fsync temp -> fsync the folders of `after` -> link -> fsync folder -> unlink temp
    \__________________________ nothing was published __________________________/ \__ unknown __/

What fails before the link left nothing behind and raises `StorageUnavailableError`. If the folder cannot be fsynced
after the link, the name is there for now and may not survive a power cut: `CommitUnknownError`. A process that then
finds the name makes it durable, which fsyncs the folder again. That second answer can be believed: names are metadata,
and a journal that could not be written fails every later fsync too, unlike the pages of a file, which are dropped after
a failed one; therefore what failed before the link is written anew. A reply that got lost (network disks repeat a link
that had worked) shows in the link count of the temporary file.

Of many files that are put for one purpose, as the log files of a commit, only the content is fsynced
(`durable="content"`). Their names last once `make_durable` has fsynced the folder, for all of them at once, before
anything is built on them. What is put next and builds on them says so instead (`after`). Its own content is fsynced
first, and on a file system with a journal that takes the names along: the fsync of their folder, which no other file
system can do without, then finds nothing to write (`docs/design/one-event.md`).

A process that dies leaves its temporary file; the first put of a later process removes those that are a day old.
"""

from __future__ import annotations

import builtins  # inside the class, `list` is the store's
import errno
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.ground.machine import mount_of
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.store import disk
from crdt_mor.store.paths import CLOCKS, TEMP_FOLDER, folder_path, in_hoodie, object_path, stays_empty
from crdt_mor.store.protocol import Chunks, Content, Durable, Stat

R = TypeVar("R")

TEMP_PREFIX = "put-"
"""Our temporary files begin with this."""

TEMP_EXPIRY_MS = 24 * 3600 * 1000
"""A put takes seconds, so an older temporary file is of a dead process. A put that was frozen for a day finds its file
gone when it links it, and starts again."""

_SYNCED_AT_ONCE = 4 << 20
"""How many bytes are written between two fsyncs of a content whose chunks are made while they are written."""

_NAMES_TRIED = 100
_REMOVED_MAX = 5
_DURABLE_FILES_NOTED = 64
_READ_BYTES_MAX = 1 << 16
"""The most bytes of an object that a view reads, as that takes less time than to map it."""

_MAPPED = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """Objects as files below `root`, which is made by the first put. Safe to share between threads and processes."""

    def __init__(self, root: str | os.PathLike[str], nonce: Callable[[], str] | None = None) -> None:
        self.root = Path(os.path.abspath(root))
        self._start = os.path.join(self.root, "")
        self._nonce = nonce or SystemEnvironment().nonce
        self._durable_folders: set[str] = set()
        self._inside: set[str] = set()
        self._durable_files: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled by its folder: what it noted of the disk is this process's own."""
        return LocalStore, (str(self.root),)

    def read(self, path: str) -> bytes | None:
        """The whole object; None if there is none."""
        with disk.answering("read", path):
            try:
                with open(self._at(path), "rb", buffering=0) as file:
                    return file.read()
            except IsADirectoryError:
                return None
            except _NOT_THERE:
                return self.read(path) if self._is_there_after_all(path) else None

    def view(self, path: str) -> memoryview | None:
        """The whole object, a large one mapped into memory; None if there is none. None is cut short, but removed."""
        with disk.answering("read", path):
            try:
                with open(self._at(path), "rb", buffering=0) as file:
                    if os.fstat(file.fileno()).st_size <= _READ_BYTES_MAX:
                        return memoryview(file.read())
                    return memoryview(mmap.mmap(file.fileno(), 0, flags=_MAPPED, prot=mmap.PROT_READ))
            except IsADirectoryError:
                return None
            except _NOT_THERE:
                return self.view(path) if self._is_there_after_all(path) else None

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        """Create the object, whole and as a rule durably, if there is none: True. False if there is one already."""
        target = self._at(path)
        if os.path.lexists(target):
            return False
        self._durable_files.pop(path, None)  # of one that another process has removed since
        chunks = [data] if isinstance(data, (bytes, memoryview)) else data
        try:
            return self._put(path, target, chunks, durable, after)
        except disk.RemovedError:
            if iter(chunks) is chunks:  # an iterator, which gives its chunks only once
                raise
            return self._put(path, target, chunks, durable, after)

    def copy(self, source: str, target: str) -> bool:
        """Give the object at `source` a second name, durably, if nobody has that name: True. False if it is taken."""
        folder = object_path(target).rpartition("/")[0]
        with disk.answering("copy", target):
            linked = self._in_folders([folder], lambda: disk.link_again(self._at(source), self._at(target)))
            if linked:
                self._publish(folder, target)
                self._note_durable(target)
        return linked

    def stat(self, path: str) -> Stat | None:
        """Size and age of an object; None if there is none."""
        with disk.answering("stat", path):
            try:
                status = os.stat(self._at(path))
            except _NOT_THERE:
                return self.stat(path) if self._is_there_after_all(path) else None
        return disk.stat_of_file(path, status)

    def list(self, folder: str) -> builtins.list[Stat]:
        """The objects directly in `folder`, by path; empty if there is no such folder."""
        files, _ = self._scan(folder_path(folder))
        return sorted(files, key=lambda stat: stat.path)

    def walk(self, folder: str) -> builtins.list[Stat]:
        """The objects anywhere below `folder`, by path; `.hoodie` is left out unless `folder` is in it."""
        folder = folder_path(folder)
        objects: list[Stat] = []
        todo = [folder]
        while todo:
            files, folders = self._scan(todo.pop())
            objects += files
            todo += folders if in_hoodie(folder) else [name for name in folders if not in_hoodie(name)]
        return sorted(objects, key=lambda stat: stat.path)

    def delete(self, path: str) -> None:
        """Remove the object; removing what is not there is fine. It may be back after a power cut: `make_durable`."""
        self._require_inside(path.rpartition("/")[0])
        with disk.answering("delete", path), suppress(*_NOT_THERE, IsADirectoryError):
            if self._remembers_absences:
                self.stat(path)
            os.unlink(self._at(path))
        self._durable_files.pop(path, None)  # last: see `make_durable`
        self._remove_empty(path.rpartition("/")[0])

    def touch(self, path: str) -> None:
        """Set the modification time of an empty object to now, creating it if need be. Not durable."""
        with disk.answering("touch", path):
            self._touch(path)

    def make_durable(self, path: str) -> None:
        """Make an object last through a power cut, or stay away if it was deleted.

        Nothing is to be done for one that this store made durable itself.
        """
        if path in self._durable_files:
            return
        try:  # the folder lasts itself since before its first link
            disk.fsync_nearest(os.path.dirname(self._at(path)), str(self.root))
        except _NOT_THERE:
            return
        except OSError as error:
            raise StorageUnavailableError(
                "the disk could not make durable that an object is there, or that it is gone, which may be otherwise "
                f"after a power cut: nothing was built on it. See the cause and try again. path={path} "
                f"cause={disk.cause_of(error)}"
            ) from error
        self._note_durable(path)
        if not os.path.lexists(self._at(path)):  # looked at last: another thread may remove it meanwhile
            self._durable_files.pop(path, None)

    def now_ms(self) -> int:
        """The clock of the file system, which need not be this machine's."""
        with disk.answering("now", CLOCKS):
            try:
                status = self._touch(CLOCKS)
            except PermissionError:  # it is another user's file, which is no reason not to know the time
                temp, file = self._open_temp()
                status = os.fstat(file)
                os.close(file)
                os.unlink(temp)
            return disk.stat_of(CLOCKS, status).modified_ms

    def parquet(self, path: str) -> ParquetSource | None:
        """The absolute path of a Parquet file; None if there is none."""
        with disk.answering("read", path):  # a file that others may not open looks damaged to them
            return ParquetSource.file(self._at(path)) if self.stat(path) and disk.can_open(self._at(path)) else None

    def nearest_above(self, path: str) -> str | None:
        """The nearest folder around this one in which there is an object at a path; None where there is none."""
        folders = Path(os.path.realpath(self.root)).parents
        return next((str(folder) for folder in folders if os.path.lexists(folder / object_path(path))), None)

    def sweep_temp(self) -> builtins.list[str]:
        """Remove the temporary files of puts that died a day ago or earlier; their paths.

        Files of other users stay where the folder lets nobody else remove them.
        """
        files = [stat for stat in self.list(TEMP_FOLDER) if stat.path.startswith(f"{TEMP_FOLDER}/{TEMP_PREFIX}")]
        if not files:
            return []
        newest = self.now_ms() - TEMP_EXPIRY_MS
        dead = []
        for stat in files:
            if stat.modified_ms <= newest:
                with suppress(StorageUnavailableError):
                    self.delete(stat.path)
                    dead.append(stat.path)
        return dead

    def _note_durable(self, path: str) -> None:
        self._durable_files[path] = None
        while len(self._durable_files) > _DURABLE_FILES_NOTED:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread was quicker
                del self._durable_files[next(iter(self._durable_files))]

    def _put(self, path: str, target: str, chunks: Chunks, durable: Durable, after: Sequence[str]) -> bool:
        """The steps of a put, as the module's picture has them."""
        folder = path.rpartition("/")[0]
        streamed = iter(chunks) is chunks
        with disk.answering("put", path):
            temp, file = self._in_folders([TEMP_FOLDER, folder], self._open_temp)
        try:
            try:
                written = 0
                for chunk in chunks:  # an error in making one is not the disk's
                    with disk.answering("put", path):
                        disk.write_whole(file, chunk)
                        written += len(chunk)
                        if durable and streamed and written >= _SYNCED_AT_ONCE:
                            disk.fsync(file)  # the rest is being made meanwhile, and less is left to do at the end
                            written = 0
                with disk.answering("put", path):
                    if durable:
                        if os.path.lexists(target):  # the costly part comes now, and somebody may have won meanwhile
                            return False
                        disk.fsync(file)
            finally:
                with disk.answering("put", path):
                    os.close(file)
            for earlier in after:
                self.make_durable(earlier)
            with disk.answering("put", path):
                if not self._in_folders([folder], lambda: disk.link(temp, target, str(self.root), path)):
                    return False
                if durable is True:
                    self._publish(folder, path)
                    self._note_durable(path)
                return True
        finally:
            with suppress(OSError):
                os.unlink(temp)

    def _at(self, path: str) -> str:
        return self._start + object_path(path)

    @cached_property
    def _remembers_absences(self) -> bool:
        return disk.remembers_absences(mount_of(self.root))

    def _is_there_after_all(self, path: str) -> bool:
        return self._remembers_absences and disk.look_anew(self._at(path))

    def _remove_empty(self, folder: str) -> None:
        """Remove a folder of the table's data that its last object has left, and those above it that are empty then.

        Only empty folders can be removed, whatever others do at the same moment. A put that finds its folder gone makes
        it again (`_in_folders`). Folders below `.hoodie` stay, but for those of first loads.
        """
        while folder and not stays_empty(folder):
            try:
                os.rmdir(self._folder(folder))
            except OSError:  # it is not empty, or somebody else's
                return
            folder = folder.rpartition("/")[0]

    def _folder(self, folder: str) -> str:
        return self._start + object_path(folder) if folder else str(self.root)

    def _open_temp(self) -> tuple[str, int]:
        """A new file under a name nobody else uses."""
        for _ in range(_NAMES_TRIED):
            temp = f"{self._start}{TEMP_FOLDER}/{TEMP_PREFIX}{self._nonce()}"
            with suppress(FileExistsError):
                return temp, os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        raise FileExistsError(errno.EEXIST, "every name for a temporary file is taken")

    def _publish(self, folder: str, path: str) -> None:
        try:
            disk.fsync_path(self._folder(folder))
        except (OSError, UnsupportedFeatureError) as error:
            raise CommitUnknownError(
                "the file was linked but its folder could not be made durable, so it may be gone after a power cut. "
                f"Read it back before trying again. path={path} cause={disk.cause_of(error)}"
            ) from error

    def _in_folders(self, folders: Sequence[str], work: Callable[[], R]) -> R:
        """`work`, when `folders` are there; again if they were removed meanwhile, as with their last object."""
        for _ in range(_REMOVED_MAX):
            with suppress(FileNotFoundError):
                for folder in folders:
                    self._make_folder_durable(folder)
                return work()
            self._durable_folders.clear()
        for folder in folders:
            self._make_folder_durable(folder)
        return work()

    def _require_inside(self, folder: str) -> None:
        """Raise `UnsupportedFeatureError` where a symbolic link leads from `folder` out of the table.

        Such a link is read through, if the file system lets us. But a table may come from anybody: nothing is written
        or deleted behind its links. (A put could not work there in any case if it is another file system.)
        """
        if folder in self._inside:
            return
        root, target = os.path.realpath(self.root), os.path.realpath(self._folder(folder))
        if target != root and not target.startswith(os.path.join(root, "")):
            raise UnsupportedFeatureError(
                "a symbolic link leads out of the table, and nothing is written or deleted there: put a real folder in "
                f"its place. table={self.root} folder={folder} leads_to={target}"
            )
        self._inside.add(folder)

    def _make_folder_durable(self, folder: str) -> None:
        """Make `folder` and the ones above it, and fsync the folder that each stands in, unless this store has before.

        Folders that exist are fsynced too, once: their maker may have died before it could.
        """
        if folder in self._durable_folders:
            return
        if not folder:
            disk.make_root(self.root)
        else:
            above = folder.rpartition("/")[0]
            self._make_folder_durable(above)
            with suppress(FileExistsError):
                os.mkdir(self._folder(folder))
            self._require_inside(folder)
            disk.fsync_path(self._folder(above))
        self._durable_folders.add(folder)
        if folder == TEMP_FOLDER:
            with suppress(StorageUnavailableError):  # somebody else's rubbish that we may not remove stops no put
                self.sweep_temp()

    def _touch(self, path: str) -> os.stat_result:
        target = self._at(path)
        how = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW  # a link may lead to any file of ours
        self._require_inside(path.rpartition("/")[0])
        try:
            file = os.open(target, how, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            file = os.open(target, how, 0o666)
        try:
            os.utime(file)  # no times given: the file system's own clock, as in the times of its other files
            return os.fstat(file)
        finally:
            os.close(file)

    def _scan(self, folder: str) -> tuple[builtins.list[Stat], builtins.list[str]]:
        """Files and folders directly in `folder`; what vanishes during the scan is left out."""
        files: list[Stat] = []
        folders: list[str] = []
        start = f"{folder}/" if folder else ""
        if folder and self._remembers_absences:
            self.stat(folder)
        with disk.answering("list", folder), suppress(*_NOT_THERE), os.scandir(self._folder(folder)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(start + entry.name)
                elif (stat := disk.stat_in(entry, start + entry.name) or self.stat(start + entry.name)) is not None:
                    files.append(stat)
        return files, folders
