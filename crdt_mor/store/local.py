r"""A store on a local disk: files appear whole.

`put` writes a temporary file, fsyncs it, links it to its name and fsyncs the folder. `link(2)` is the put-if-absent: it
makes the whole file, or fails because the name is taken. (`O_EXCL` would show half a file; a rename would overwrite.)

    look -> write temp -> look -> fsync temp -> fsync the folders of `after` -> link -> fsync folder -> unlink temp
    \__________________________ nothing was published __________________________/ \__ unknown __/

A failure before the link raises `StorageUnavailableError`. If the folder's fsync fails after the link, a power cut may
remove the name: `CommitUnknownError`. A process that later finds the name fsyncs the folder again. That answer is
reliable, because a journal that failed once fails every later fsync. A failed fsync drops a file's pages, so failed
content is written anew. The temporary file's link count detects lost replies of network disks.

Files that belong together are put with `durable="content"`. `make_durable` then fsyncs their folder once, before
anything builds on the names. Or a later put names them as `after` (`docs/design/one-event.md`).
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
"""Prefix of our temporary files."""

TEMP_EXPIRY_MS = 24 * 3600 * 1000
"""A put takes seconds, so an older file is of a dead process. A put frozen for a day starts again."""

_SYNCED_AT_ONCE = 4 << 20
"""Bytes between two fsyncs if the chunks are made during the put."""

_NAMES_TRIED = 100
_REMOVED_MAX = 5
_DURABLE_FILES_NOTED = 64
_READ_BYTES_MAX = 1 << 16
"""Bytes up to which a view reads an object: faster than mapping it."""

_MAPPED = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """Objects as files below `root`, which the first put makes. Safe for threads and processes."""

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
        return LocalStore, (str(self.root),)

    @property
    def address(self) -> str:
        """The address by which other engines open the folder."""
        return f"file://{self.root}"

    def read(self, path: str) -> bytes | None:
        with disk.Answering("read", path):
            try:
                with open(self._at(path), "rb", buffering=0) as file:
                    return file.read()
            except IsADirectoryError:
                return None
            except _NOT_THERE:
                return self.read(path) if self._exists_uncached(path) else None

    def view(self, path: str) -> memoryview | None:
        """Return the whole object, memory-mapped if large; None if there is none.

        Mapping is safe, because files are never cut short, only removed.
        """
        with disk.Answering("read", path):
            try:
                with open(self._at(path), "rb", buffering=0) as file:
                    if os.fstat(file.fileno()).st_size <= _READ_BYTES_MAX:
                        return memoryview(file.read())
                    return memoryview(mmap.mmap(file.fileno(), 0, flags=_MAPPED, prot=mmap.PROT_READ))
            except IsADirectoryError:
                return None
            except _NOT_THERE:
                return self.view(path) if self._exists_uncached(path) else None

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        target = self._at(path)
        if os.path.lexists(target):
            return False
        self._durable_files.pop(path, None)  # another process may have removed that object
        chunks = [data] if isinstance(data, (bytes, memoryview)) else data
        try:
            return self._put(path, target, chunks, durable, after)
        except disk.RemovedError:
            if iter(chunks) is chunks:  # an iterator yields its chunks only once
                raise
            return self._put(path, target, chunks, durable, after)

    def copy(self, source: str, target: str) -> bool:
        """Give the object at `source` a second name, durably. Return True, or False if the name is taken."""
        folder = object_path(target).rpartition("/")[0]
        with disk.Answering("copy", target):
            linked = self._in_folders([folder], lambda: disk.link_again(self._at(source), self._at(target)))
            if linked:
                self._publish(folder, target)
                self._note_durable(target)
        return linked

    def stat(self, path: str) -> Stat | None:
        with disk.Answering("stat", path):
            try:
                status = os.stat(self._at(path))
            except _NOT_THERE:
                return self.stat(path) if self._exists_uncached(path) else None
        return disk.stat_of(path, status)

    def list(self, folder: str) -> builtins.list[Stat]:
        files, _ = self._scan(folder_path(folder))
        return sorted(files, key=lambda stat: stat.path)

    def walk(self, folder: str) -> builtins.list[Stat]:
        folder = folder_path(folder)
        objects: list[Stat] = []
        todo = [folder]
        while todo:
            files, folders = self._scan(todo.pop())
            objects += files
            todo += folders if in_hoodie(folder) else [name for name in folders if not in_hoodie(name)]
        return sorted(objects, key=lambda stat: stat.path)

    def delete(self, path: str) -> None:
        self._require_inside(path.rpartition("/")[0])
        with disk.Answering("delete", path), suppress(*_NOT_THERE, IsADirectoryError):
            if self._remembers_absences:
                self.stat(path)
            os.unlink(self._at(path))
        self._durable_files.pop(path, None)  # last: see `make_durable`
        self._remove_empty(path.rpartition("/")[0])

    def touch(self, path: str) -> None:
        with disk.Answering("touch", path):
            self._touch(path)

    def make_durable(self, path: str) -> None:
        """Make an object's name or deletion survive a power cut."""
        if path in self._durable_files:
            return
        try:  # the folder itself is durable since its first link
            disk.fsync_nearest(os.path.dirname(self._at(path)), str(self.root))
        except _NOT_THERE:
            return
        except OSError as error:
            raise StorageUnavailableError(
                "the disk could not make an object or its deletion durable, and a power cut may undo it; nothing was "
                f"built on it. Check the cause and try again. path={path} "
                f"cause={disk.cause_of(error)}"
            ) from error
        self._note_durable(path)
        if not os.path.lexists(self._at(path)):  # checked last: another thread may remove it meanwhile
            self._durable_files.pop(path, None)

    def now_ms(self) -> int:
        with disk.Answering("now", CLOCKS):
            try:
                status = self._touch(CLOCKS)
            except PermissionError:  # another user's file: use a temporary file
                temp, file = self._open_temp()
                status = os.fstat(file)
                os.close(file)
                os.unlink(temp)
            return status.st_mtime_ns // 1_000_000

    def parquet(self, path: str) -> ParquetSource | None:
        with disk.Answering("read", path):  # an unreadable file must not look damaged
            return ParquetSource.file(self._at(path)) if self.stat(path) and disk.can_open(self._at(path)) else None

    def folders(self, folder: str) -> builtins.list[str]:
        """Return the folders directly in `folder`, without symbolic links."""
        _, folders = self._scan(folder_path(folder))
        return sorted(folders)

    def missing_folders(self) -> builtins.list[str]:
        """Return the root and the folders above it that do not exist."""
        return [str(folder) for folder in (self.root, *self.root.parents) if not os.path.lexists(folder)]

    def remove_empty_folders(self, outer: Sequence[str] | None = None) -> None:
        """Remove `.hoodie`, then `outer`, by default the root, if they contain no object."""
        inner = [folder for folder, _, _ in os.walk(self._folder(".hoodie"), topdown=False)]
        for folder in (*inner, *([str(self.root)] if outer is None else outer)):
            with suppress(OSError):  # not empty, or another user's
                os.rmdir(folder)

    def nearest_above(self, path: str) -> str | None:
        folders = Path(os.path.realpath(self.root)).parents
        return next((str(folder) for folder in folders if os.path.lexists(folder / object_path(path))), None)

    def first_below(self, path: str) -> str | None:
        """Return the first folder in the root that contains the object."""
        return next((self._at(one) for one in self.folders("") if os.path.lexists(self._at(f"{one}/{path}"))), None)

    def sweep_temp(self) -> builtins.list[str]:
        """Remove temporary files that are a day old, and return their paths. Skip other users' protected files."""
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
        folder = path.rpartition("/")[0]
        streamed = iter(chunks) is chunks
        with disk.Answering("put", path):
            temp, file = self._in_folders([TEMP_FOLDER, folder], self._open_temp)
        try:
            try:
                written = 0
                for chunk in chunks:  # an error in making a chunk is not the disk's
                    with disk.Answering("put", path):
                        disk.write_whole(file, chunk)
                        written += len(chunk)
                        if durable and streamed and written >= _SYNCED_AT_ONCE:
                            disk.fsync(file)  # in parallel with the next chunks
                            written = 0
                with disk.Answering("put", path):
                    if durable:
                        if os.path.lexists(target):  # the fsync is costly, and another put may have won
                            return False
                        disk.fsync(file)
            finally:
                with disk.Answering("put", path):
                    os.close(file)
            for earlier in after:
                self.make_durable(earlier)
            with disk.Answering("put", path):
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

    def _exists_uncached(self, path: str) -> bool:
        return self._remembers_absences and disk.exists_uncached(self._at(path))

    def _remove_empty(self, folder: str) -> None:
        """Remove a data folder without objects, and empty folders above it.

        Safe, because a put makes its folder again (`_in_folders`).
        """
        while folder and not stays_empty(folder):
            try:
                os.rmdir(self._folder(folder))
            except OSError:  # not empty, or another user's
                return
            folder = folder.rpartition("/")[0]

    def _folder(self, folder: str) -> str:
        return self._start + object_path(folder) if folder else str(self.root)

    def _open_temp(self) -> tuple[str, int]:
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
                "the file was linked, but its folder is not durable: a power cut may remove it. Read the file before "
                f"you try again. path={path} cause={disk.cause_of(error)}"
            ) from error

    def _in_folders(self, folders: Sequence[str], work: Callable[[], R]) -> R:
        """Run `work` with `folders` present; repeat if other processes removed them meanwhile."""
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
        """Raise `UnsupportedFeatureError` if a symbolic link leads out of the table.

        A table may come from a stranger, so nothing is written or deleted behind its links. Reading is allowed.
        """
        if folder in self._inside:
            return
        root, target = os.path.realpath(self.root), os.path.realpath(self._folder(folder))
        if target != root and not target.startswith(os.path.join(root, "")):
            raise UnsupportedFeatureError(
                "a symbolic link leads out of the table, so nothing is written or deleted there. Replace it with a "
                f"real folder. table={self.root} folder={folder} leads_to={target}"
            )
        self._inside.add(folder)

    def _make_folder_durable(self, folder: str) -> None:
        """Make `folder` and its parents, and fsync each parent, once per store.

        Existing folders too: the process that made them may have died before its fsync.
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
            with suppress(StorageUnavailableError):  # undeletable files of other users stop no put
                self.sweep_temp()

    def _touch(self, path: str) -> os.stat_result:
        target = self._at(path)
        how = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW  # a link may lead to any file of this user
        self._require_inside(path.rpartition("/")[0])
        try:
            file = os.open(target, how, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            file = os.open(target, how, 0o666)
        try:
            os.utime(file)  # without times: the file system's own clock
            return os.fstat(file)
        finally:
            os.close(file)

    def _scan(self, folder: str) -> tuple[builtins.list[Stat], builtins.list[str]]:
        files: list[Stat] = []
        folders: list[str] = []
        start = f"{folder}/" if folder else ""
        if folder and self._remembers_absences:
            self.stat(folder)
        with disk.Answering("list", folder), suppress(*_NOT_THERE), os.scandir(self._folder(folder)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(start + entry.name)
                elif (stat := disk.stat_in(entry, start + entry.name) or self.stat(start + entry.name)) is not None:
                    files.append(stat)
        return files, folders
