"""Writing files: a file is written whole or not at all, and what is there keeps its place and its mode.

A new file is made beside the old one, synced, and renamed to its name. So a write that fails or is interrupted leaves
the old file as it was, and of two writes at once one is there, whole. A symbolic link stays, and the file that it leads
to is written. The new file takes the mode and, as far as that is permitted, the owner of the old one; other hard links,
access control lists and extended attributes are not kept.

Pipes, character devices and open descriptors, such as ``/dev/stdout``, are written to. Refused are a folder, a socket,
a block device, a file that may not be written, and a file in a folder that may not: with an OSError whose text is a
sentence that names the path.
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
"""How long a write waits until somebody reads from a named pipe."""
LINKS = 40
"""The most symbolic links in a row, as Linux has it."""


def write(path: str | os.PathLike[str], content: str | bytes, mode: int = 0o666, *, fresh: bool = False) -> None:
    """Write a file, texts as UTF-8. Where there is none, it gets this ``mode``, less the umask.

    OSError where that is not possible; FileExistsError where there is a file, and it is to be a ``fresh`` one.
    """
    with writing(path, mode, fresh=fresh) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: str | os.PathLike[str], mode: int = 0o666, *, fresh: bool = False) -> Iterator[BinaryIO]:
    """A file to write into, which is in its place once the block has ended without an error. OSError as of `write`."""
    target = _target(path)
    if target.is_stream:
        with _in_a_sentence(path), _opened(target.place) as file:
            yield file
        return
    if target.there and fresh:
        raise _refusal(errno.EEXIST, f"There is a file {path} already. Choose another.")
    _check_replaceable(target)
    with _in_a_sentence(path):
        with _part(target.place, 0o600 if target.there else mode) as (file, part):
            if target.there:
                _liken(file, target.there)
            yield file
            file.flush()
            os.fsync(file.fileno())
            file.close()  # Windows renames no open file
            (_link if fresh else os.replace)(part, target.place)
        _sync(os.path.dirname(target.place))


def append(path: str | os.PathLike[str], text: str) -> None:
    """Add a text to a file, which is made where there is none. OSError as of `write`."""
    target = _target(path)
    with _in_a_sentence(path), _opened(target.place) if target.is_stream else open(target.place, "ab") as file:
        file.write(text.encode())


def stream(path: str | os.PathLike[str]) -> BinaryIO | None:
    """Where ``path`` is a pipe, a device or an open descriptor: a stream into it, to be closed. OSError as of `write`;
    TimeoutError where nobody reads from a named pipe.
    """
    target = _target(path)
    with _in_a_sentence(path):
        return _opened(target.place) if target.is_stream else None


def is_stream(path: str | os.PathLike[str]) -> bool:
    """True where `write` would write into what is there, and not in its place."""
    return _target(path).is_stream


def is_stdout(path: str | os.PathLike[str]) -> bool:
    """True where the path leads to standard output, as ``/dev/stdout`` does."""
    return _descriptor(_followed(path)) == 1


def check(path: str | os.PathLike[str]) -> None:
    """OSError where `write` would refuse this path, as far as that is known before."""
    target = _target(path)
    if not target.is_stream:
        _check_replaceable(target)


class _Target(NamedTuple):
    """The end of a path: its place, and the kind of file there."""

    path: str
    place: str
    """The path at the end of all symbolic links."""
    there: os.stat_result | None
    """None where nothing is, or where only a write will tell what is wrong."""
    is_stream: bool
    """True for what is written to and never replaced."""


def _target(path: str | os.PathLike[str]) -> _Target:
    """OSError where the path leads to something that is neither replaced nor written to, ValueError where no path can
    be like that.
    """
    path = Path(path)  # for which the empty path is this folder
    there = None
    try:
        with _in_a_sentence(path):
            place = _followed(path)
        with suppress(OSError):
            there = os.stat(place)
    except ValueError as error:  # a NUL, or half of a surrogate pair
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
    """OSError where a file may not be written, or its folder."""
    folder = os.path.dirname(target.place)
    with _in_a_sentence(target.path):
        try:
            os.stat(os.path.join(folder, ""))
        except (FileNotFoundError, NotADirectoryError):
            words = f"There is no folder {folder} for {target.path}. Make it, or choose another."
            raise _refusal(errno.ENOENT, words) from None
        if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            words = f"{target.path} cannot be written: its folder {folder} may not be. Choose another folder."
            raise _refusal(errno.EACCES, words)
        if target.there:
            os.close(os.open(target.place, os.O_WRONLY))  # the system says why a file may not be written


def _followed(path: str | os.PathLike[str]) -> str:
    """The place at the end of all symbolic links, where there may be nothing."""
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
    """The open descriptor of this process that has this place, such as 1 at the end of ``/dev/stdout``."""
    folder, name = os.path.split(place)
    open_here = folder == os.path.realpath("/dev/fd") and name.isdecimal() and os.path.lexists(place)
    return int(name) if open_here else None


class _Stream(io.FileIO):
    """Takes bytes one after the other, also where a descriptor leads to a file, which may be one that is appended to:
    a writer of archives does not go back in it.
    """

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("seek")

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


def _opened(place: str) -> BinaryIO:
    number = _descriptor(place)
    if number is not None:
        return io.BufferedWriter(_Stream(os.dup(number), "wb"))
    return io.BufferedWriter(_Stream(_pipe(place) if stat.S_ISFIFO(os.stat(place).st_mode) else place, "wb"))


def _pipe(place: str) -> int:
    """The descriptor of a named pipe, once somebody reads from it."""
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
            words = f"{place} is a pipe from which nobody has read for {READER_S:g} s. Start its reader first."
            raise _refusal(errno.ETIMEDOUT, words)
        time.sleep(0.02)


@contextmanager
def _part(place: str, mode: int) -> Iterator[tuple[BinaryIO, str]]:
    """A new file beside this place, and its path, under which nothing is left when the block ends."""
    folder, name = os.path.split(place)
    part = os.path.join(folder, f"{name[:30]}.{os.urandom(8).hex()}.part")  # short enough for every file system
    try:
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            yield file, part
    finally:
        with suppress(OSError):
            os.unlink(part)


def _liken(file: BinaryIO, old: os.stat_result) -> None:
    """Give a file the group, the owner and the mode of an old one, as far as the system permits."""
    if os.name != "posix":
        return
    for owner, group in (-1, old.st_gid), (old.st_uid, -1):
        with suppress(OSError):
            os.fchown(file.fileno(), owner, group)
    with suppress(OSError):
        os.fchmod(file.fileno(), old.st_mode & 0o777)


def _link(part: str, place: str) -> None:
    """Rename a file, but not over another that has come there meanwhile: FileExistsError."""
    try:
        os.link(part, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        open(place, "xb").close()
        os.replace(part, place)


def _sync(folder: str) -> None:
    """Make a rename last. Where a system syncs no folders, a crash of the machine may leave the old file."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _in_a_sentence(path: str | os.PathLike[str]) -> Iterator[None]:
    """Make a sentence of the system's error."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.strerror is None:  # a sentence already
            raise
        words = f"{path} cannot be written: {error.strerror.lower()}. Choose another file."
        raise _refusal(error.errno, words) from error


def _refusal(number: int, words: str) -> OSError:
    """The error of this number, of the subclass that it has, with a sentence as its text."""
    error = type(OSError(number, ""))(words)
    error.errno = number
    return error
