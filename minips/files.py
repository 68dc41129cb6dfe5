"""Atomic writes: a file is written whole or not at all, and a replaced file keeps its path and its mode.

A new file is made beside the old file, synced, and renamed to the old file's name. So a write that fails or is
interrupted leaves the old file unchanged, and two concurrent writes leave one whole file. A symbolic link stays, and
its target is written. The new file gets the old file's mode and, if permitted, its owner. The old file's other hard
links, access control lists and extended attributes are lost.

Pipes, character devices and open descriptors, such as ``/dev/stdout``, are written to and never replaced. Writing to a
folder, a socket, a block device, a file without write permission, or a file in a folder without write permission raises
OSError, with a sentence that names the path.
"""

import errno
import io
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from minips.words import message_of

READER_S = 30.0
"""Seconds for which a write waits until a named pipe has a reader."""
LINKS = 40
"""The largest number of symbolic links to follow in a chain, as on Linux."""


def write(path: str | os.PathLike[str], content: str | bytes, mode: int = 0o666, *, fresh: bool = False) -> None:
    """Write a file; text is encoded as UTF-8. A new file gets this ``mode``, less the umask.

    Raises OSError if that fails, and FileExistsError if ``fresh`` is True and the file already exists.
    """
    with writing(path, mode, fresh=fresh) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: str | os.PathLike[str], mode: int = 0o666, *, fresh: bool = False) -> Iterator[BinaryIO]:
    """A file to write into, renamed to ``path`` if the block ends without an error. Raises OSError as `write` does."""
    target = _target(path)
    if target.is_stream:
        with _as_sentences(path), _open_stream(target.place) as file:
            yield file
        return
    if target.there and fresh:
        raise _refusal(errno.EEXIST, f"The file {path} already exists. Choose another.")
    _check_replaceable(target)
    with _as_sentences(path):
        with _part_file(target.place, 0o600 if target.there else mode) as (file, part):
            if target.there:
                _copy_ownership(file, target.there)
            yield file
            file.flush()
            os.fsync(file.fileno())
            file.close()  # Windows cannot rename an open file
            (_rename_new if fresh else os.replace)(part, target.place)
        _sync(os.path.dirname(target.place))


def append(path: str | os.PathLike[str], text: str) -> None:
    """Append text to a file; create the file if it is missing. Raises OSError as `write` does."""
    target = _target(path)
    with _as_sentences(path), _open_stream(target.place) if target.is_stream else open(target.place, "ab") as file:
        file.write(text.encode())


def stream(path: str | os.PathLike[str]) -> BinaryIO | None:
    """A stream into ``path`` if it is a pipe, a device or an open descriptor, else None. The caller closes it. Raises
    OSError as `write` does, and TimeoutError if a named pipe has no reader.
    """
    target = _target(path)
    with _as_sentences(path):
        return _open_stream(target.place) if target.is_stream else None


def is_stream(path: str | os.PathLike[str]) -> bool:
    """True if the path is a pipe, a device or a descriptor, which `write` writes into and does not replace."""
    return _target(path).is_stream


def is_stdout(path: str | os.PathLike[str]) -> bool:
    """True if the path leads to standard output, as ``/dev/stdout`` does."""
    return _descriptor(_follow_links(path)) == 1


def check(path: str | os.PathLike[str]) -> None:
    """Raise OSError if `write` would refuse this path, as far as that can be known beforehand."""
    target = _target(path)
    if not target.is_stream:
        _check_replaceable(target)


class _Target(NamedTuple):
    """The file that a path leads to."""

    path: str
    place: str
    """The path at the end of all symbolic links."""
    there: os.stat_result | None
    """None if there is no file, or if only a write can find out what is wrong."""
    is_stream: bool
    """True for a pipe, a device or a descriptor, which is written to and never replaced."""


def _target(path: str | os.PathLike[str]) -> _Target:
    """The file that ``path`` leads to. Raises OSError if it can be neither replaced nor written to, and ValueError for
    an impossible path.
    """
    path = Path(path)  # Path("") is the current folder
    there = None
    try:
        with _as_sentences(path):
            place = _follow_links(path)
        with suppress(OSError):
            there = os.stat(place)
    except ValueError as error:  # such as a NUL, or half of a surrogate pair
        raise ValueError(f"A file cannot have the name {str(path)!r}: {message_of(error)}. Choose another.") from None
    kind = there.st_mode if there else stat.S_IFREG
    is_open = _descriptor(place) is not None
    if stat.S_ISDIR(kind):
        raise _refusal(errno.EISDIR, f"{path} is a folder. Name a file in it.")
    if (stat.S_ISSOCK(kind) or stat.S_ISBLK(kind)) and not is_open:
        what = "socket" if stat.S_ISSOCK(kind) else "block device"
        raise _refusal(errno.ENOTSUP, f"{path} cannot be written: it is a {what}. Choose another file.")
    return _Target(f"{path}", place, there, is_open or not stat.S_ISREG(kind))


def _check_replaceable(target: _Target) -> None:
    """Raise OSError if the file or its folder is not writable."""
    folder = os.path.dirname(target.place)
    with _as_sentences(target.path):
        try:
            os.stat(os.path.join(folder, ""))
        except (FileNotFoundError, NotADirectoryError):
            words = f"There is no folder {folder} for {target.path}. Make it, or choose another."
            raise _refusal(errno.ENOENT, words) from None
        if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            words = f"{target.path} cannot be written: its folder {folder} is not writable. Choose another folder."
            raise _refusal(errno.EACCES, words)
        if target.there:
            os.close(os.open(target.place, os.O_WRONLY))  # the system's error says why the file is not writable


def _follow_links(path: str | os.PathLike[str]) -> str:
    """The path at the end of all symbolic links; it need not exist."""
    place = str(Path(path))
    for _ in range(LINKS + 1):
        folder, name = os.path.split(place)
        folder = os.path.realpath(folder)
        place = os.path.join(folder, name)
        if _descriptor(place) is not None or not os.path.islink(place):
            return place
        place = os.path.join(folder, os.readlink(place))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _descriptor(place: str) -> int | None:
    """The open descriptor of this process that the path denotes, such as 1 for ``/dev/stdout``; otherwise None."""
    folder, name = os.path.split(place)
    open_here = folder == os.path.realpath("/dev/fd") and name.isdecimal() and os.path.lexists(place)
    return int(name) if open_here else None


class _Stream(io.FileIO):
    """A stream that cannot seek, even if its descriptor leads to a file. That file may be open for appending, so a
    writer of archives must not move backwards in it.
    """

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("seek")

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


def _open_stream(place: str) -> BinaryIO:
    number = _descriptor(place)
    if number is not None:
        return io.BufferedWriter(_Stream(os.dup(number), "wb"))
    return io.BufferedWriter(_Stream(_pipe(place) if stat.S_ISFIFO(os.stat(place).st_mode) else place, "wb"))


def _pipe(place: str) -> int:
    """The descriptor of a named pipe, opened once the pipe has a reader."""
    until = time.monotonic() + READER_S
    while True:
        try:
            number = os.open(place, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        else:
            os.set_blocking(number, True)
            return number
        if time.monotonic() > until:
            words = f"{place} is a pipe, and it has had no reader for {READER_S:g} s. Start its reader first."
            raise _refusal(errno.ETIMEDOUT, words)
        time.sleep(0.02)


@contextmanager
def _part_file(place: str, mode: int) -> Iterator[tuple[BinaryIO, str]]:
    """A new file beside this path, and the new file's path. If it was not renamed, it is removed at the end."""
    folder, name = os.path.split(place)
    part = os.path.join(folder, f"{name[:30]}.{os.urandom(8).hex()}.part")  # short enough for every file system
    try:
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            yield file, part
    finally:
        with suppress(OSError):
            os.unlink(part)


def _copy_ownership(file: BinaryIO, old: os.stat_result) -> None:
    """Give a file the old file's group, owner and mode, as far as the system permits."""
    if os.name != "posix":
        return
    for owner, group in (-1, old.st_gid), (old.st_uid, -1):
        with suppress(OSError):
            os.fchown(file.fileno(), owner, group)
    with suppress(OSError):
        os.fchmod(file.fileno(), old.st_mode & 0o777)


def _rename_new(part: str, place: str) -> None:
    """Rename a file. Raises FileExistsError if another file has appeared under the new name meanwhile."""
    try:
        os.link(part, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        open(place, "xb").close()
        os.replace(part, place)


def _sync(folder: str) -> None:
    """Make a rename durable. On systems that cannot sync a folder, a crash of the machine may leave the old file."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _as_sentences(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an operating-system error into an error whose text is a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.strerror is None:  # already a sentence
            raise
        words = f"{path} cannot be written: {error.strerror.lower()}. Choose another file."
        raise _refusal(error.errno, words) from error


def _refusal(number: int, words: str) -> OSError:
    """The OSError with this error number, as an instance of the matching subclass, with a sentence as its text."""
    error = type(OSError(number, ""))(words)
    error.errno = number
    return error
