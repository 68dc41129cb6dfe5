"""An append-only log of records in two files of fixed size, which are overwritten in turn.

A **record** is a list of frames with a running number. Two files, ``<stem>.journal-a`` and ``<stem>.journal-b``, are
reserved at the start and never grow, so that the room on the disk is there and their pages stay cached. The caller goes
on in the other file with `Journal.turn` once a snapshot covers that one's records.

    file       8 bytes that say what it is, format (4 bytes), run (16), mark (12), zeros to 64; then records, one after
               the other; behind them, whatever earlier laps left
    mark       a number (8) and its CRC-32 (4): all records with smaller numbers were kept. It is written into the file
               that is not in use, so that no single loss takes both the mark and the records
    record     CRC-32 of all that follows (4), number (8), ``MPSr`` (4), run (16), number of frames (8), the frames'
               lengths (8 each); then the frames

Numbers are little-endian. A record's head and each frame are padded with zeros to a multiple of 64 bytes.

`Journal.append` writes the record, then the mark, then returns. A process that is killed leaves every record whose
append has returned, and perhaps an incomplete one behind them, which no mark counts: that one is left out. Anything
else that is missing or damaged is a ValueError, since the mark, or the head of a later record, shows that there was
more. What earlier laps left has smaller numbers. The run's 16 random bytes, which no client knows, tell a record from
another run's, and from a frame that imitates one. After a power loss, all this needs ``sync``: without it, the mark may
have reached the disk before the records.

The files hold secrets, so only their owner may read them. A journal serves one thread at a time.
"""

import errno
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from minips import files
from minips.stage import Buffer, Frames
from minips.stages.transports.base import Closable
from minips.stages.transports.framing import ALIGNMENT, cut, lengths_of, memory, padded, padded_size
from minips.stages.transports.sockets import VECTORS, advance
from minips.words import message_of

KIND, FORMAT = b"minips-j", 1
HEAD, MARK, RECORD_HEAD = struct.Struct("<8sI16s"), struct.Struct("<QI"), struct.Struct("<IQ20sQ")
NUMBER, CRC_BYTES = struct.Struct("<Q"), 4
OWNER = CRC_BYTES + NUMBER.size
"""The offset of the run in a record."""
SMALL = 2**14
"""The bytes of frames up to which a record is written as one buffer."""
START = ALIGNMENT
"""The offset of a file's first record."""


def journal_paths(stem: Path) -> list[Path]:
    """The paths of a journal's two files."""
    return [stem.with_name(f"{stem.name}.journal-{letter}") for letter in "ab"]


def size(frames: Frames) -> int:
    """The bytes that a record of these frames takes in a file."""
    return padded_size(RECORD_HEAD.size + 8 * len(frames)) + sum(padded_size(len(_flat(frame))) for frame in frames)


class Journal(Closable):
    """The journal of the run that these 16 random bytes name, in two files of ``nbytes`` bytes, made if missing.

    With ``sync``, a record is on the disk when `append` returns. OSError if there is no room for the files. ValueError
    for a file of another kind, run or size, or of a newer format.
    """

    def __init__(self, stem: Path, run: bytes, nbytes: int, sync: bool = False) -> None:
        self.number = -1
        """The number of the next record; -1 until `read` has found it."""
        self.first = -1
        """All records in the file that is not in use have smaller numbers."""
        self.torn = False
        """True if `read` left out an incomplete record, of which at least the number was written."""
        self.nbytes, self._sync, self._identity = nbytes, sync, b"MPSr" + run
        self._using, self._at = 0, START
        self._files: list[_File] = []
        try:
            for path in journal_paths(stem):
                self._files.append(_File(path, run, nbytes))
        except BaseException:
            self.close()
            raise

    def lock(self) -> None:
        """Keep other processes out for as long as the journal is open. OSError if one has locked it."""
        try:
            import fcntl
        except ImportError:  # on Windows
            return
        try:
            fcntl.flock(self._files[0].descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = f"{self._files[0].path} is in use by another process, perhaps the same command, started twice."
            raise OSError(f"{words} Stop it first, or choose another folder.") from None

    def read(self, first: int | None) -> Iterator[tuple[int, Frames]]:
        """Return the records from number ``first`` on, with their numbers. The journal then appends behind the last.

        The call itself checks all records; their frames are copied one by one. ValueError if one from ``first`` on was
        kept and is now damaged or missing. If all are older, the next one gets the number ``first``. With None, return
        the last one and all before it, as far back as they are there without a gap.
        """
        kept = max(file.scan(self._identity) for file in self._files)
        older, newer = sorted(self._files, key=lambda file: file.first)
        begin = older.first if older.next == newer.first else newer.first
        first = max(begin, 0) if first is None else first
        number, later = max(newer.next, first), max(older.later, newer.later)
        gap, twice = begin > first, older.next > newer.first
        if gap or twice or max(kept, later) > number:
            behind = max(first, older.next) if older.first <= first else first
            wrong = behind if gap else newer.first if twice else number
            raise ValueError(
                f"Record {wrong} of the journal {older.path} and {newer.path.name} is damaged, missing or there twice. "
                "Restore both files from a backup, or go on from the last snapshot, in another folder."
            )
        self.torn = number in (older.torn, newer.torn)
        self.number, self._using, self._at = number, self._files.index(newer), newer.end
        self.first = max(newer.first, 0)
        if newer.next < number:  # in a file, numbers have no gaps
            self.turn()
        return chain(older.read(first), newer.read(first))

    def append(self, frames: Frames) -> None:
        """Keep a record. OSError if that fails: the next record then has the same number and place."""
        if self.number < 0:
            raise RuntimeError("This journal does not know its end yet. Call read before append.")
        file, other = self._files[self._using], self._files[1 - self._using]
        views: Frames = [_flat(frame) for frame in frames]
        head = RECORD_HEAD.pack(0, self.number, self._identity, len(views)) + lengths_of(views)
        buffers = [head[CRC_BYTES:] + bytes(-len(head) % ALIGNMENT), *padded(views)]
        if sum(map(len, views)) <= SMALL:
            buffers = [b"".join(buffers)]  # one copy costs less than several calls
        nbytes = CRC_BYTES + sum(map(len, buffers))
        if not self.room(nbytes):
            words = f"A record of {nbytes} bytes does not fit into {file.path}, which has {self.nbytes} bytes"
            if START + nbytes <= self.nbytes:
                raise OSError(f"{words} and uses {self._at}. Take a snapshot, then turn.")
            raise OSError(f"{words}. Use a Checkpoint(journal_bytes=…) of {START + nbytes} or more, in another folder.")
        crc = 0
        for buffer in buffers:
            crc = zlib.crc32(buffer, crc)
        try:
            file.write([crc.to_bytes(CRC_BYTES, "little"), *buffers], self._at)
            if self._sync:
                file.sync()
            other.write([_mark(self.number + 1)], HEAD.size)
        except OSError as error:
            with suppress(OSError):
                file.write([bytes(ALIGNMENT)], self._at)  # a refused record must not be read
            why = (error.strerror or message_of(error)).lower()
            raise OSError(f"{file.path} cannot be written: {why}. Make room on its disk, or use another.") from error
        self.number, self._at = self.number + 1, self._at + nbytes

    def room(self, nbytes: int) -> bool:
        """True if records of ``nbytes`` bytes in all, as `size` counts them, still fit into the file in use."""
        return self._at + nbytes <= self.nbytes

    def turn(self) -> None:
        """Go on at the start of the other file. A snapshot must cover all records there.

        Nothing is written. So if the process dies before the next append, `read` finds the end where it was.
        """
        self._using, self._at, self.first = 1 - self._using, START, self.number

    def close(self) -> None:
        for file in self._files:
            file.close()


class _File:
    """One of the two files."""

    def __init__(self, path: Path, run: bytes, nbytes: int) -> None:
        if not path.exists():
            _make(path, HEAD.pack(KIND, FORMAT, run) + _mark(0), nbytes)
        files.check(path)
        self.path, self._file = path, path.open("r+b", buffering=0)
        self.descriptor = self._file.fileno()
        try:
            _check(path, self._file.read(START), os.fstat(self._file.fileno()).st_size, run, nbytes)
        except BaseException:
            self.close()
            raise

    def scan(self, identity: bytes) -> int:
        """Find the records that follow each other from the file's start on. Return the mark."""
        self.first = self.next = self.later = self.torn = -1
        """The numbers of the first record, behind the last one, of any later one, and of an incomplete one behind."""
        self.end, self._places = START, list[_Place]()
        with self._mapped() as (mapped, view):
            mark, _ = MARK.unpack_from(view, HEAD.size)
            if view[HEAD.size : HEAD.size + MARK.size] != _mark(mark):
                raise ValueError(f"The head of {self.path} is damaged. Restore the journal's files from a backup.")
            while place := _place(view, self.end, identity, self.next):
                if place.number > self.next >= 0:
                    break
                self._places.append(place)
                self.next, self.end = place.number + 1, place.end
            at = self.end + OWNER
            while (at := mapped.find(identity, at)) >= 0:
                if at == self.end + OWNER:
                    (self.torn,) = NUMBER.unpack_from(view, at - NUMBER.size)
                if place := _place(view, at - OWNER, identity, self.next):
                    self.later = max(self.later, place.number)
                at += 1
        self.first = self._places[0].number if self._places else -1
        return int(mark)

    def read(self, first: int) -> Iterator[tuple[int, Frames]]:
        """Copy the records from ``first`` on that `scan` found."""
        with self._mapped() as (_, view):
            for number, start, end, sizes in self._places:
                if number >= first:
                    block = memory(end - start)
                    block[:] = view[start:end]
                    yield number, cut(block, sizes)

    def write(self, buffers: Sequence[Buffer], at: int) -> None:
        """Write all of these buffers. OSError if the system takes only some of their bytes."""
        done = self._write(buffers[:VECTORS], at)
        if done == sum(map(len, buffers)):
            return
        left = [memoryview(buffer) for buffer in buffers]
        advance(left, done)
        at += done
        while left:
            done = self._write(left[:VECTORS], at)
            if not done:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            advance(left, done)
            at += done

    def _write(self, buffers: Sequence[Buffer], at: int) -> int:
        """Write some of these buffers' bytes. Return how many."""
        if hasattr(os, "pwritev"):
            return os.pwritev(self.descriptor, buffers, at)
        self._file.seek(at)
        return self._file.write(b"".join(buffers)) or 0

    def sync(self) -> None:
        """Return once the disk has what was written."""
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _mapped(self) -> Iterator[tuple[mmap.mmap, memoryview]]:
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield mapped, view


class _Place(NamedTuple):
    """A record in a file: its number, the start and the end of its frames, and their sizes."""

    number: int
    start: int
    end: int
    sizes: tuple[int, ...]


def _place(view: memoryview, at: int, identity: bytes, least: int) -> _Place | None:
    """The whole record at this offset, or None if there is none with a number of at least ``least``."""
    if at + RECORD_HEAD.size > len(view):
        return None
    crc, number, owner, count = RECORD_HEAD.unpack_from(view, at)
    start = at + padded_size(RECORD_HEAD.size + 8 * count)
    if owner != identity or number < least or start > len(view):
        return None
    sizes = struct.unpack_from(f"<{count}Q", view, at + RECORD_HEAD.size)
    end = start + sum(map(padded_size, sizes))
    if zlib.crc32(view[at + CRC_BYTES : end]) != crc:
        return None
    return _Place(number, start, end, sizes)


def _make(path: Path, head: bytes, nbytes: int) -> None:
    """Make a file that begins with this head, and reserve its room on the disk. OSError if there is none."""
    try:
        with files.writing(path, 0o600) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, nbytes)
            else:
                file.truncate(nbytes)
            file.write(head)
    except OSError as error:
        words = f"A journal reserves two files of {nbytes} bytes: see Checkpoint(journal_bytes=…)."
        raise OSError(f"{message_of(error)} {words}") from error


def _check(path: Path, head: bytes, nbytes: int, run: bytes, expected: int) -> None:
    """Raise ValueError unless a file with this head and size is the run's, and has the expected size."""
    if len(head) < START or not head.startswith(KIND):
        raise ValueError(f"{path} is not a journal that minips wrote. Choose another folder.")
    _, form, found = HEAD.unpack_from(head)
    if form != FORMAT:
        raise ValueError(f"{path} has the format {form}; this minips reads {FORMAT}. Install a newer minips.")
    if found != run:
        raise ValueError(f"{path} is the journal of another run. Choose another folder for this run.")
    if nbytes != expected:
        raise ValueError(
            f"{path} has {nbytes} bytes; expected {expected}. If Checkpoint(journal_bytes=…) has changed, change it "
            "back; otherwise a part of the file is lost: restore it from a backup."
        )


def _mark(number: int) -> bytes:
    return MARK.pack(number, zlib.crc32(NUMBER.pack(number)))


def _flat(frame: Buffer) -> Buffer:
    """A frame as one dimension of bytes."""
    view = memoryview(frame)
    return view.cast("B") if view.nbytes else b""
