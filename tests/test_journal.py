"""A journal gives back what was appended, or a sentence: cut, damaged, mixed up, on a full disk, or killed."""

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from minips.drivers import journal as module
from minips.drivers.journal import START, Journal, size

RUN, OTHER = bytes(range(16)), bytes(range(1, 17))
NBYTES, WAIT_S = 4096, 60
NAMES = "server-0.journal-a", "server-0.journal-b"
IMITATION = module.RECORD_HEAD.pack(0, 9, b"MPSr" + OTHER, 0).ljust(64, b"\0")
"""The head of another run's record."""


def opened(folder, nbytes=NBYTES, run=RUN, **options):
    return Journal(folder / "server-0", run, nbytes, **options)


def draw(number, most=200):
    """The frames of a record with this number, always the same."""
    rng = random.Random(number)
    return [rng.randbytes(rng.randrange(most)) for _ in range(rng.randrange(4))]


def contents(folder, first=0, **options):
    """The records from ``first`` on, the next number, and whether there was a torn one."""
    with opened(folder, **options) as journal:
        records = [(number, [*map(bytes, frames)]) for number, frames in journal.read(first)]
        return records, journal.number, journal.torn


def drawn(first, stop, most=200):
    return [(number, draw(number, most)) for number in range(first, stop)]


def images(folder):
    return [(folder / name).read_bytes() for name in NAMES]


def put(folder, both):
    for name, image in zip(NAMES, both, strict=True):
        (folder / name).write_bytes(image)


class Kept(Journal):
    """A journal whose user takes snapshots: ``first`` is the number of the last finished one."""

    first = 0

    def keep(self, number, most=200):
        frames = draw(number, most)
        if turned := not self.room(size(frames)):
            self.first = number
            self.turn()
        self.append(frames)
        return turned


def kept(folder, run=RUN, nbytes=NBYTES):
    journal = Kept(folder / "server-0", run, nbytes)
    journal.read(0)
    return journal


# What is appended is read


FRAMES = {
    "no frames": [],
    "empty frames": [b"", memoryview(b""), memoryview(np.empty((0, 3), np.float32))],
    "formats": [bytearray(b"abc"), memoryview(np.arange(6.0).reshape(2, 3)), memoryview(np.array(1.5, np.float32))],
    "many frames": [bytes([i % 256]) * (i % 7) for i in range(2_000)],
    "many empty frames": [b""] * 2_000,
    "an imitation": [IMITATION, IMITATION * 2],
}


@pytest.mark.parametrize("sync", [False, True])
def test_frames_come_back(tmp_path, sync):
    with opened(tmp_path, 400_000, sync=sync) as journal:
        assert [*journal.read(0)] == []
        for frames in FRAMES.values():
            before = journal._at
            journal.append(frames)
            assert journal._at - before == size(frames)
    expected = [*enumerate([memoryview(frame).tobytes() for frame in frames] for frames in FRAMES.values())]
    assert contents(tmp_path, nbytes=400_000) == (expected, len(FRAMES), False)
    assert contents(tmp_path, 4, nbytes=400_000) == (expected[4:], len(FRAMES), False)


def test_arrays_on_the_frames_are_aligned_writable_and_outlive_the_journal(tmp_path):
    sent = np.arange(300.0), np.float32([1, 2, 3])
    with opened(tmp_path, 10_000) as journal:
        journal.read(0)
        journal.append([b"head", *(x.data for x in sent)])
        [(_, (_, *frames))] = journal.read(0)
    for x, frame in zip(sent, frames, strict=True):
        got = np.frombuffer(frame, x.dtype)
        assert got.ctypes.data % 64 == 0
        got += 1
        np.testing.assert_array_equal(got, x + 1)
    assert contents(tmp_path, nbytes=10_000)[0][0][1][1] == sent[0].tobytes()


def test_the_files_are_reserved_and_their_owners_alone(tmp_path):
    with opened(tmp_path, 1_000_000):
        for name in NAMES:
            there = (tmp_path / name).stat()
            assert (there.st_size, there.st_mode & 0o777) == (1_000_000, 0o600)
            assert there.st_blocks * 512 >= 1_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == [*NAMES]


def test_a_record_may_fill_a_file_exactly(tmp_path):
    full = [bytes(NBYTES - START - 64)]
    with opened(tmp_path) as journal:
        journal.read(0)
        assert journal.room(size(full))
        for frames in ([full[0] + b"x"], [full[0], b"x"]):
            assert not journal.room(size(frames))
            words = r"A record of 409\d bytes does not fit into .*-a, which has 4096 bytes\. Use a Checkpoint\(journal"
            with pytest.raises(OSError, match=rf"{words}_bytes=…\) of 416\d or more, in another folder\.$"):
                journal.append(frames)
        journal.append(full)
        assert not journal.room(1)
        with pytest.raises(OSError, match=r"and uses 4096\. Take a snapshot, then turn\.$"):
            journal.append([])
        journal.turn()
        journal.append(full)
    assert contents(tmp_path) == ([(0, full), (1, full)], 2, False)


@pytest.mark.parametrize("seed", range(8))
def test_many_laps_with_late_snapshots_and_ends_anywhere(tmp_path, seed):
    """A snapshot begins with each turn, and is finished before the next one. The process may end anywhere."""
    rng = random.Random(seed)
    first = begun = turns = 0
    journal = opened(tmp_path)
    assert [*journal.read(0)] == []

    def again():
        journal.close()
        there = opened(tmp_path)
        got = [(number, [*map(bytes, frames)]) for number, frames in there.read(first)]
        assert (got, there.number, there.torn) == (drawn(first, number, 600), number, False)
        return there

    for number in range(300):
        frames = draw(number, 600)
        while not journal.room(size(frames)):
            first, begun, turns = max(first, begun), number, turns + 1
            journal.turn()
            if rng.random() < 0.5:
                journal = again()
        journal.append(frames)
        if rng.random() < 0.2:
            first = begun
        if rng.random() < 0.3:
            number += 1
            journal = again()
    journal.close()
    assert turns > 40


def test_a_snapshot_may_be_ahead_of_the_journal(tmp_path):
    """The records of a run that goes on from a saved one begin with its number; after a power loss, some are gone."""
    with opened(tmp_path) as journal:
        journal.read(5)
        journal.append(draw(5))
        journal.append(draw(6))
    assert contents(tmp_path, 7) == ([], 7, False)
    with opened(tmp_path) as journal:
        assert ([*journal.read(30)], journal.number) == ([], 30)
        journal.append(draw(30))
    assert contents(tmp_path, 30) == (drawn(30, 31), 31, False)
    with (
        opened(tmp_path) as journal,
        pytest.raises(ValueError, match=r"Record 7 of .* is damaged, missing or there twic"),
    ):
        journal.read(5)


def test_without_a_number_all_that_lead_to_the_last_are_read(tmp_path):
    assert contents(tmp_path, None) == ([], 0, False)
    laps = [0]
    with kept(tmp_path) as journal:
        for number in range(100):
            if journal.keep(number):
                laps.append(number)
            assert contents(tmp_path, None) == (drawn(laps[-2:][0], number + 1), number + 1, False)
        both, using, at = [bytearray(image) for image in images(tmp_path)], journal._using, journal._at
    assert len(laps) > 4
    with pytest.raises(ValueError, match=r"^Record 0 of .* is damaged, missing or there twice\."):
        contents(tmp_path, 0)
    both[using][at - 1] ^= 1
    put(tmp_path, both)
    with pytest.raises(ValueError, match=r"^Record 99 of .* is damaged, missing or there twice\."):
        contents(tmp_path, None)


def test_the_end_is_found_before_an_append(tmp_path):
    with opened(tmp_path) as journal, pytest.raises(RuntimeError, match=r"Call read before append\.$"):
        journal.append([])
    journal.close()


# What an incomplete append leaves


def last_append(folder, begins_a_lap):
    """Images before and after an append in a later lap, the last snapshot, the record's number, file and slice."""
    with kept(folder) as journal:
        for number in range(1_000):
            before, first = images(folder), journal.first
            turned = journal.keep(number)
            if number > 60 and turned == begins_a_lap and len(draw(number)) > 1:
                stop = journal._at
                return before, images(folder), first, number, journal._using, slice(stop - size(draw(number)), stop)
    raise AssertionError("no such append")


@pytest.mark.parametrize("begins_a_lap", [False, True])
@pytest.mark.parametrize("zeroed", [False, True])
def test_cut_at_every_byte_of_the_last_record(tmp_path, begins_a_lap, zeroed):
    before, after, first, number, using, place = last_append(tmp_path, begins_a_lap)
    behind = bytes(NBYTES) if zeroed else before[using]
    torn = 0
    for at in range(place.start, place.stop + 1):
        image = after[using][:at] + behind[at:]
        whole = image[place] == after[using][place]
        both = [before[0], before[1]]
        both[using] = image
        put(tmp_path, both)
        got, following, said = contents(tmp_path, first)
        assert (got, following) == (drawn(first, number + whole), number + whole)
        assert said == (not whole) or at - place.start < 32  # nobody sees a record that has not even its number
        torn += said
        if at % 11 == 0:  # the next record takes its place
            with Kept(tmp_path / "server-0", RUN, NBYTES) as journal:
                journal.read(first)
                for more in range(following, following + 3):
                    journal.keep(more, 300)
            since = max(first, journal.first)
            records = [*drawn(first, following), *drawn(following, following + 3, 300)]
            assert contents(tmp_path, since) == (records[since - first :], following + 3, False)
        if not whole:
            both[1 - using] = after[1 - using]  # its mark counts the record: it was acknowledged
            put(tmp_path, both)
            with pytest.raises(
                ValueError, match=rf"^Record {number} of the journal .* is damaged, missing or there twic"
            ):
                contents(tmp_path, first)
    assert torn > 100


# What damages files


def history(folder, seed, steps=250):
    """After each append: both images, the last snapshot that was finished, the next number, the last record's place."""
    rng = random.Random(seed)
    rows = []
    with kept(folder) as journal:
        first = begun = 0
        for number in range(steps):
            before = journal.first
            if journal.keep(number, 300):
                first, begun = max(first, before), number
            elif rng.random() < 0.3:
                first = begun
            at = journal._at
            rows.append((images(folder), first, number + 1, journal._using, slice(at - size(draw(number, 300)), at)))
    return rows


def flip(rng, both, last):
    """Flip a few bits anywhere, in one head, or in the last record."""
    one, place = rng.choice([(rng.randrange(2), slice(0, NBYTES)), (rng.randrange(2), slice(0, 64)), last])
    for _ in range(rng.choice([1, 1, 2, 20])):
        both[one][rng.randrange(place.start, place.stop)] ^= 1 << rng.randrange(8)


def blocks(rng):
    """Two blocks of one size: a file and a slice each."""
    nbytes = rng.choice([64, 64, 256, 1024])
    starts = (rng.randrange(0, NBYTES - nbytes + 1, rng.choice([1, 64, nbytes])) for _ in range(2))
    return [(rng.randrange(2), slice(start, start + nbytes)) for start in starts]


def swap(rng, both, last):
    (a, here), (b, there) = blocks(rng)
    both[a][here], both[b][there] = both[b][there], both[a][here]


def copy(rng, both, last):
    (a, here), (b, there) = blocks(rng)
    both[a][here] = both[b][there]


def fill(rng, both, last):
    (a, here), _ = blocks(rng)
    both[a][here] = bytes(here.stop - here.start) if rng.random() < 0.5 else rng.randbytes(here.stop - here.start)


def shift(rng, both, last):
    one, at, nbytes = rng.randrange(2), rng.randrange(NBYTES), rng.choice([1, 64, 200])
    both[one][:] = (both[one][:at] + both[one][at + nbytes :]).ljust(NBYTES, b"\0")


def truncate(rng, both, last):
    del both[rng.randrange(2)][rng.randrange(NBYTES) :]


def exchange(rng, both, last):
    both.reverse()


def old_block(rng, both, last, old):
    (a, here), _ = blocks(rng)
    both[a][here] = old[a][here]


def old_file(rng, both, last, old):
    one = rng.randrange(2)
    both[one][:] = old[one]


def old_tail(rng, both, last, old):
    """All behind a place is again as it was, as if a lap had never come so far."""
    one, at = rng.randrange(2), rng.randrange(NBYTES)
    both[one][at:] = old[one][at:]


NEW, OLD = [flip, flip, swap, copy, fill, shift, truncate, exchange], [old_block, old_file, old_tail]


def test_two_thousand_mutations(tmp_path):
    """Each gives a sentence or all records; the last one may be missing only if it is touched, and never got a mark."""
    folders = [tmp_path / "own", tmp_path / "foreign"]
    for folder in folders:
        folder.mkdir()
    rows = history(folders[0], 0)
    with kept(folders[1], OTHER) as journal:
        for number in range(250):
            journal.keep(number, 300)
    foreign, outcomes = images(folders[1]), {"right": 0, "without the last": 0, "a sentence": 0}
    for seed in range(2_000):
        rng = random.Random(seed)
        step = rng.randrange(100, len(rows))
        both, first, number, using, place = rows[step]
        both = [bytearray(image) for image in both]
        if unmarked := rng.random() < 0.3:  # the process died between the record and its mark
            both[1 - using][:64] = rows[step - 1][0][1 - using][:64]
        mutate = rng.choice(NEW + OLD)
        if mutate in OLD:
            mutate(rng, both, (using, place), foreign if rng.random() < 0.3 else rows[rng.randrange(step)][0])
        else:
            mutate(rng, both, (using, place))
        put(folders[0], both)
        try:
            got, following, _ = contents(folders[0], first)
        except ValueError as error:
            outcomes["a sentence"] += 1
            said = str(error)
            assert (str(folders[0]) in said, said[-1]) == (True, "."), (seed, said)
            continue
        if (got, following) == (drawn(first, number, 300), number):
            outcomes["right"] += 1
            continue
        assert (got, following) == (drawn(first, number - 1, 300), number - 1), (seed, mutate)
        assert (unmarked, bytes(both[using][place]) == rows[step][0][using][place]) == (True, False), (seed, mutate)
        outcomes["without the last"] += 1
    print(outcomes)
    assert min(outcomes.values()) > 20


@pytest.mark.parametrize("damaged", range(6))
def test_a_later_record_shows_a_damage_that_no_mark_shows(tmp_path, damaged):
    """After a power loss, the marks may be older than the records, which alone were synced."""
    with opened(tmp_path) as journal:
        journal.read(0)
        for number in range(6):
            if number == 3:
                journal.turn()
            journal.append([bytes([number]) * 100])
    older = [
        bytearray(image[: module.HEAD.size] + module._mark(0) + image[module.HEAD.size + module.MARK.size :])
        for image in images(tmp_path)
    ]
    nbytes = size([bytes(100)])
    put(tmp_path, older)
    expected = [(number, [bytes([number]) * 100]) for number in range(6)]
    assert contents(tmp_path) == (expected, 6, False)
    at = START + damaged % 3 * nbytes
    for with_what in (bytes(nbytes), older[damaged // 3][at + nbytes :][:nbytes]):  # nothing, or the next record
        both = [image[:] for image in older]
        both[damaged // 3][at : at + nbytes] = with_what
        put(tmp_path, both)
        if damaged == 5:  # the last one
            assert contents(tmp_path)[:2] == (expected[:5], 5)
        else:
            with pytest.raises(
                ValueError, match=rf"^Record {damaged} of the journal .* is damaged, missing or there twic"
            ):
                contents(tmp_path)


def test_a_record_that_is_there_twice_is_a_sentence(tmp_path):
    with kept(tmp_path) as journal:
        for number in range(3):
            journal.keep(number)
    put(tmp_path, [images(tmp_path)[0]] * 2)
    with pytest.raises(ValueError, match=r"^Record 0 of the journal .* is damaged, missing or there twice\."):
        contents(tmp_path)


def sealed(**changes):
    fields = {"kind": module.KIND, "form": 1, "run": RUN} | changes
    return (module.HEAD.pack(*fields.values()) + module._mark(0)).ljust(NBYTES, b"\0")


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (b"", r" is not a journal that minips wrote\. Choose another folder\."),
        (bytes(NBYTES), r" is not a journal that minips wrote\."),
        (b"PK\3\4" * 1024, r" is not a journal that minips wrote\."),
        (sealed(form=2), r" has the format 2; this minips reads 1\. Install a newer minips\."),
        (sealed(run=OTHER), r" is the journal of another run\. Choose another folder for this run\."),
        (sealed()[:-1], r" has 4095 bytes; expected 4096\. If Checkpoint\(journal_bytes=…\) has changed, change it ba"),
        (sealed() + b"\0", r" has 4097 bytes; expected 4096\. "),
        (
            sealed()[:32] + bytes(32) + sealed()[64:],
            r"^The head of .* is damaged\. Restore the journal's files from a ",
        ),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_another_file_is_a_sentence(tmp_path, image, words, name):
    with kept(tmp_path) as journal:
        journal.keep(0)
    (tmp_path / name).write_bytes(image)
    with pytest.raises(ValueError, match=words) as said:
        contents(tmp_path)
    assert str(tmp_path / name) in str(said.value)
    assert str(said.value).endswith(".")


def number_of_first(image):
    """The number of a file's first record."""
    return module.RECORD_HEAD.unpack_from(image, START)[1]


def test_a_file_that_is_missing_is_a_sentence_or_not_needed(tmp_path):
    rows = history(tmp_path, 1, 100)
    outcomes = set()
    for both, first, number, using, _ in rows:
        for lost in range(2):
            put(tmp_path, both)
            (tmp_path / NAMES[lost]).unlink()
            if lost == using or first < number_of_first(both[using]):
                for _ in range(2):  # made anew, it is no less missing
                    with pytest.raises(ValueError, match=r"is damaged, missing or there twice\. Restore both files"):
                        contents(tmp_path, first)
                outcomes.add("needed")
            else:
                assert contents(tmp_path, first)[:2] == (drawn(first, number, 300), number)
                outcomes.add("not needed")
    assert outcomes == {"needed", "not needed"}


# What the system refuses


@contextlib.contextmanager
def file_size_limit(nbytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_refused_append_changes_nothing(tmp_path):
    """The system writes a part of the record, up to the limit, and then refuses the rest."""
    with opened(tmp_path, 300_000) as journal:
        journal.read(0)
        for number in range(3):
            journal.append(draw(number, 30_000))
        before = journal.number, journal._at
        words = r"-a cannot be written: file too large\. Make room on its disk, or use another\.$"
        for at in range(journal._at, journal._at + 9_000, 500):
            with file_size_limit(at), pytest.raises(OSError, match=words):
                journal.append([bytes([at % 251]) * 50_000])
            assert (journal.number, journal._at) == before
            if at > before[1] + 128:
                assert images(tmp_path)[0][at - 64 : at + 1] == bytes([at % 251]) * 64 + b"\0"  # half written
            assert contents(tmp_path, nbytes=300_000) == (drawn(0, 3, 30_000), 3, False)
        journal.append(draw(3, 30_000))
    assert contents(tmp_path, nbytes=300_000) == (drawn(0, 4, 30_000), 4, False)


def test_files_that_do_not_fit_are_a_sentence(tmp_path):
    words = r"file too large\..* A journal reserves two files of 300000 bytes: see Checkpoint\(journal_bytes="
    with file_size_limit(100_000), pytest.raises(OSError, match=words):
        opened(tmp_path, 300_000)
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(OSError, match=r"There is no folder .* A journal reserves two files"):
        opened(tmp_path / "nowhere")


FULL = """
import errno, sys
from pathlib import Path
from test_journal import contents, drawn, kept, opened

folder, outside = Path(sys.argv[1]), 0
with kept(folder, nbytes=100_000) as journal:
    try:
        while True:
            with (folder / "rest").open("ab", buffering=0) as file:
                file.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
    for number in range(500):
        journal.keep(number, 5_000)
    assert contents(folder, journal.first, nbytes=100_000)[:2] == (drawn(journal.first, 500, 5_000), 500)
(folder / "more").mkdir()
try:
    opened(folder / "more", 100_000)
except OSError as error:
    print(error)
"""


def test_a_full_disk_has_room_for_a_journal_that_is_there(tmp_path):
    """On a file system of its own, of one megabyte."""
    apart = ["unshare", "--map-root-user", "--mount", "sh", "-ec", 'mount -t tmpfs -o size=1m none "$0"; exec "$@"']
    if not shutil.which("unshare") or subprocess.run([*apart, tmp_path, "true"], capture_output=True).returncode:
        pytest.skip("the system lets users have no file system of their own")
    command = [*apart, tmp_path, sys.executable, "-c", FULL, tmp_path]
    done = subprocess.run(command, env=surroundings(), capture_output=True, text=True, timeout=WAIT_S)
    assert (
        "no space left on device. Choose another file. A journal reserves two files of 100000 bytes" in done.stdout
    ), done


def surroundings():
    paths = [str(Path(__file__).parent), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def calls(monkeypatch):
    """The offsets of all writes, and the calls of fdatasync, in order."""
    made, write, sync = [], os.pwritev, os.fdatasync
    monkeypatch.setattr(os, "pwritev", lambda file, buffers, at: made.append(at) or write(file, buffers, at))
    monkeypatch.setattr(os, "fdatasync", lambda file: made.append("sync") or sync(file))
    return made


@pytest.mark.parametrize("sync", [False, True])
def test_a_record_is_synced_before_its_mark_is_written(tmp_path, calls, sync):
    with opened(tmp_path, sync=sync) as journal:
        journal.read(0)
        journal.append([b"x"])
        journal.turn()
        journal.append([b"x"])
    assert calls == [START, *["sync"] * sync, module.HEAD.size] * 2


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_record_is_not_read_if_its_sync_or_mark_failed(tmp_path, monkeypatch, fails):
    with opened(tmp_path, sync=True) as journal:
        journal.read(0)
        journal.append(draw(0))
        before, count = journal._at, iter(range(1, 99))

        def broken(call):
            def now(*arguments):
                if next(count) == fails:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return call(*arguments)

            return now

        with monkeypatch.context() as patch:
            for name in ("pwritev", "fdatasync"):
                patch.setattr(os, name, broken(getattr(os, name)))
            with pytest.raises(OSError, match=r"cannot be written: input/output error\. Make room"):
                journal.append(draw(1))
        assert (journal.number, journal._at) == (1, before)
        assert contents(tmp_path) == (drawn(0, 1), 1, False)
        journal.append(draw(1))
    assert contents(tmp_path) == (drawn(0, 2), 2, False)


def test_a_system_with_less_than_posix(tmp_path, monkeypatch):
    for name in ("pwritev", "posix_fallocate", "fdatasync"):
        monkeypatch.delattr(os, name)
    with opened(tmp_path, 400_000, sync=True) as journal:
        journal.read(0)
        for frames in FRAMES.values():
            journal.append(frames)
        journal.turn()
        journal.append([b"x"])
    (last, *_) = contents(tmp_path, len(FRAMES), nbytes=400_000)
    assert last == [(len(FRAMES), [b"x"])]


# A writer that is killed

WRITER = """
import os, sys
from pathlib import Path
from test_journal import KILLED_BYTES, large, opened, size

with opened(Path(sys.argv[1]), KILLED_BYTES) as journal:
    journal.read(int(sys.argv[2]))
    while True:
        frames = large(journal.number)
        if not journal.room(size(frames)):
            os.write(1, b"snapshot %d\\n" % journal.number)
            journal.turn()
        journal.append(frames)
        os.write(1, b"kept %d\\n" % (journal.number - 1))
"""
KILLED_BYTES = 30_000_000
BLOCK = random.Random(0).randbytes(8_000_000)


def large(number):
    """The frames of a large record, which is written for as long as it is computed."""
    nbytes = random.Random(number).randrange(len(BLOCK) - 256)
    return [number.to_bytes(8, "little"), memoryview(BLOCK)[number % 256 :][:nbytes]]


@pytest.mark.parametrize(("seed", "kills"), [(0, 3), pytest.param(1, 20, marks=pytest.mark.soak)])
def test_all_that_a_killed_writer_has_acknowledged_is_there(tmp_path, seed, kills):
    """The next writer goes on in the same files."""
    rng, told, torn = random.Random(seed), {"snapshot": 0, "kept": -1}, 0
    for _ in range(kills):
        begun = told["kept"]
        command = [sys.executable, "-c", WRITER, tmp_path, str(told["snapshot"])]
        ends_at, wait_s = rng.randrange(1, 12), rng.random() * 0.01
        with subprocess.Popen(command, env=surroundings(), stdout=-1) as writer:
            for count, line in enumerate(writer.stdout):
                word, number = line.split()
                told[word.decode()] = int(number)
                if count == ends_at:
                    time.sleep(wait_s)
                    writer.kill()
        assert (writer.returncode, told["kept"] > begun) == (-signal.SIGKILL, True)
        first = told["snapshot"]
        with opened(tmp_path, KILLED_BYTES) as journal:
            following = first
            for number, frames in journal.read(first):
                assert (number, [*map(bytes, frames)]) == (following, [*map(bytes, large(number))])
                following += 1
            assert (journal.number, following - told["kept"] in (1, 2)) == (following, True)  # 2: kept, and not told
            torn += journal.torn
    print(f"{torn} of {kills} kills tore a record")
