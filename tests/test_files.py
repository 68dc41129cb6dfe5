"""What is written to files: each writer of minips, into each kind of thing that a path may lead to."""

import ast
import contextlib
import errno
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib import pyplot

import minips as ps
from minips import cli, files
from minips.lab import plots
from minips.lab.course import lessons, own, portfolio, recorded, reports, state
from minips.lab.workbench import Workbench
from minips.machines.calibration import Calibration
from minips.results import saved
from minips.results.trace import Trace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes, pipes and links are of POSIX")
resource = pytest.importorskip("resource", reason="a module of POSIX")
WAIT_S = 10.0
RUN = ps.train(
    ps.SoftmaxRegression(*ps.datasets.synthetic(rows=40, features=3, classes=2)),
    ps.Config(workers=1, steps=2),
    engine="simulated",
)
TRACE = Trace(spans=[("compute", "worker 0", 0.0, 1.0, 0)])
NOW = ps.Eval(2, {}, 0.5, None, 1.25)
OLD = b"what was there\n"


class Kept:
    """A learner's class, of which a file is made."""

    @staticmethod
    def pack(tensors):
        return b""


def note(path):
    os.environ["XDG_STATE_HOME"] = str(path.parents[1])
    if words := state.note("exercise", "train.1"):
        raise OSError(words)


def plot(path):
    plots.save(pyplot.figure(figsize=(1, 1)).add_subplot(), str(path))


class Writer(NamedTuple):
    """One of minips' writers: the place of its file in a folder, how it is written, and whether it is whole."""

    file: str
    write: Callable[[Path], object]
    holds: Callable[[bytes], object]
    adds: bool = False


def with_npz(data):
    with np.load(io.BytesIO(data)) as archive:
        return "minips" in archive.files


WRITERS = {
    "text": Writer("t.txt", lambda path: files.write(path, "größer"), lambda data: data == "größer".encode()),
    "run": Writer("run.npz", RUN.save, with_npz),
    "values": Writer("values", lambda path: saved.write(path, {"w": np.ones(9)}), with_npz),
    "trace": Writer("trace.json", TRACE.to_chrome, lambda data: json.loads(data)["traceEvents"]),
    "calibration": Writer("c.json", lambda path: Calibration().save(path), json.loads),
    "log": Writer("log.csv", lambda path: ps.CsvLog(path)(NOW), lambda data: data.count(b"\r\n") == 2),
    "log that adds": Writer(
        "log.csv", lambda path: ps.CsvLog(path, append=True)(NOW), lambda data: data.endswith(b",0.5,\r\n"), adds=True
    ),
    "workbench": Writer(
        "runs.csv",
        lambda path: Workbench.to_csv(
            types.SimpleNamespace(job=types.SimpleNamespace(lock=threading.Lock()), history=[]), path
        ),
        lambda data: data == b"config\n",
    ),
    "picture": Writer("way.png", plot, lambda data: data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82")),
    "json": Writer("rows.json", lambda path: cli.write_json(str(path), {"a": 1}), lambda data: json.loads(data)["a"]),
    "report": Writer("report.html", lambda path: reports.report(path.parent), lambda data: data.endswith(b"</html>")),
    "report's data": Writer(
        "report.json", lambda path: reports.report(path.parent), lambda data: json.loads(data)["courses"] == []
    ),
    "progress": Writer("minips/progress.jsonl", note, lambda data: b'"exercise": "train.1"}\n' in data, adds=True),
    "own server": Writer("server.py", lambda path: own.keep(Kept), lambda data: b"\n# Lesson wire\n" in data),
    "ledger": Writer(lessons.LEDGER, lambda path: lessons.copy_to(path.parent), json.loads),
    "record": Writer(
        "recorded/lecture_torch.json",
        lambda path: recorded.record("lecture.torch", {"a": 1}),
        lambda data: json.loads(data)["values"] == {"a": 1},
    ),
}
every_writer = pytest.mark.parametrize("writer", WRITERS.values(), ids=[*WRITERS])


@pytest.fixture(scope="module")
def few():
    """Two lessons, which are read faster than all of them."""
    return lessons.lessons()[:2]


@pytest.fixture
def place(tmp_path, monkeypatch, writer, few):
    """Where the writer's file is to be, in a folder of its own."""
    monkeypatch.delenv("MINIPS_AUTOPLAY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MINIPS_RECORD", "1")
    monkeypatch.setitem(own.GROWTH, "wire", own.Growth("pack", lambda cls, rng: None))
    if writer is WRITERS["record"]:
        here = types.SimpleNamespace(prefix="", notebooks=tmp_path / "here")
        monkeypatch.setattr(recorded, "course_of", lambda key: here)
    for module in (lessons, portfolio):
        monkeypatch.setattr(module, "lessons", lambda course=None: few)
    path = tmp_path / "here" / writer.file
    path.parent.mkdir(parents=True)
    monkeypatch.chdir(path.parent)
    return path


def written(writer, path):
    """Write, look whether it is whole and nothing else is left, and return what is there."""
    writer.write(path)
    data = path.read_bytes()
    assert writer.holds(data)
    assert [one for one in path.parent.iterdir() if one.suffix == ".part"] == []
    return data


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


@contextlib.contextmanager
def nobody(*folders: Path) -> Iterator[None]:
    """Be a user to whom modes matter, and to whom these folders belong."""
    if os.geteuid():
        yield
        return
    for folder in folders:
        os.chown(folder, 65534, 65534)
        for one in folder.rglob("*"):
            os.chown(one, 65534, 65534, follow_symlinks=False)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def reachable():
    """A folder in which any user can be at home."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    for one in [folder, *folder.rglob("*")]:
        if one.is_dir():
            one.chmod(0o777)
    shutil.rmtree(folder)


# Every writer, every kind of target


@every_writer
def test_a_new_file_has_the_mode_that_open_gives(writer, place):
    before = os.umask(0o027)
    try:
        written(writer, place)
    finally:
        os.umask(before)
    assert mode(place) == 0o640


@every_writer
def test_a_file_is_replaced_and_keeps_its_mode(writer, place):
    for wanted in (0o600, 0o646):
        place.write_bytes(b"" if writer.adds else b"{}" if writer is WRITERS["ledger"] else OLD[:0])
        place.chmod(wanted)
        written(writer, place)
        assert mode(place) == wanted
        place.unlink()
        shutil.rmtree(place.parents[1] / "state", ignore_errors=True)


@every_writer
def test_through_links_the_file_that_they_lead_to_is_written(writer, place, tmp_path):
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    (tmp_path / "way").symlink_to(kept)
    (kept / "again").symlink_to("target")
    place.symlink_to(os.path.relpath(tmp_path / "way" / "again", place.parent))
    written(writer, place)  # at first the last link dangles
    assert (place.is_symlink(), (kept / "again").is_symlink()) == (True, True)
    assert sorted(one.name for one in kept.iterdir()) == ["again", "target"]
    (kept / "target").write_bytes(b"")
    (kept / "target").chmod(0o640)
    written(writer, place)
    assert (place.is_symlink(), mode(kept / "target")) == (True, 0o640)
    assert sorted(one.name for one in kept.iterdir()) == ["again", "target"]


@every_writer
def test_a_pipe_and_an_open_descriptor_are_written_to(writer, place):
    os.mkfifo(place)
    assert writer.holds(read_from(place, lambda: writer.write(place)))
    assert stat.S_ISFIFO(place.lstat().st_mode)
    place.unlink()
    end, start = os.pipe()
    place.symlink_to(f"/dev/fd/{start}")
    try:
        assert writer.holds(read_from(end, lambda: (writer.write(place), os.close(start))))
    finally:
        with contextlib.suppress(OSError):
            os.close(start)
    assert place.is_symlink()


def read_from(pipe, write):
    """What comes out of a pipe while it is written to."""
    chunks = []

    def read():
        with open(pipe, "rb") as end:
            chunks.append(end.read())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    write()
    reader.join(WAIT_S)
    return chunks[0]


@every_writer
def test_what_is_no_file_is_refused_by_its_name_and_stays(writer, place):
    place.mkdir()
    with pytest.raises(OSError, match=rf"{place.name}( is a folder| cannot be written|: Is a dir).*\."):
        writer.write(place)
    assert [*place.iterdir()] == []
    place.rmdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(place.name)
        with pytest.raises(OSError, match=rf"{place.name} cannot be written: it is a socket|to .*{place.name}: Op"):
            writer.write(place)
        assert stat.S_ISSOCK(place.lstat().st_mode)
    place.unlink()
    place.symlink_to(place.name)
    with pytest.raises(OSError, match=rf"{place.name}.*: (t|T)oo many levels of symbolic links"):
        writer.write(place)
    assert place.is_symlink()


def test_as_many_links_in_a_row_are_followed_as_the_system_follows(tmp_path):
    (tmp_path / "0").write_bytes(OLD)
    for number in range(files.LINKS + 1):
        (tmp_path / f"{number + 1}").symlink_to(f"{number}")
    files.write(tmp_path / f"{files.LINKS}", "new")
    assert (tmp_path / "0").read_text() == "new"
    with pytest.raises(OSError, match="too many levels of symbolic links"):
        files.write(tmp_path / f"{files.LINKS + 1}", "newer")


def test_a_log_that_is_added_to_an_empty_file_begins_with_its_names(tmp_path):
    (tmp_path / "log").touch(0o600)
    for _ in range(2):
        ps.CsvLog(tmp_path / "log", append=True)(NOW)
    assert (tmp_path / "log").read_text().splitlines() == [
        "step,seconds,loss,validation_loss",
        *["2,1.250000,0.5,"] * 2,
    ]


# Writing itself


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o640)
    return path


def only(path):
    return [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("end", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_is_not_written_to_its_end_leaves_the_old_file(end, file):
    inode = file.stat().st_ino
    with pytest.raises(end), files.writing(file) as new:  # noqa: PT012, the error is that of the block
        new.write(b"half of it")
        new.flush()
        assert (len([*file.parent.iterdir()]), file.read_bytes()) == (2, OLD)
        raise end
    assert (file.stat().st_ino, file.read_bytes(), only(file)) == (inode, OLD, True)


def test_a_process_that_is_told_to_end_leaves_the_old_file(file):
    program = """
        import sys, time
        from minips import files

        with files.writing(sys.argv[1]) as new:
            new.write(b"half of it")
            print("begun", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(file)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
    assert (file.read_bytes(), only(file)) == (OLD, True)


def test_a_full_disk_leaves_the_old_file_and_is_a_sentence(file):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        for write in (lambda: files.write(file, bytes(1_000_000)), lambda: saved.write(file, {"w": np.ones(99_999)})):
            with pytest.raises(OSError, match=r"file cannot be written: file too large\. Choose another file") as said:
                write()
            assert said.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (file.read_bytes(), only(file)) == (OLD, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_device_and_one_that_takes_all():
    words = r"^/dev/full cannot be written: no space left on device\. Choose another file\."
    with nobody():  # who could not do harm to a device
        with pytest.raises(OSError, match=words):
            RUN.save("/dev/full")
        RUN.save("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("fresh", [False, True])
def test_of_many_writes_at_once_one_stays_whole(fresh, file):
    texts = [letter * 200_000 for letter in "abcdefgh"]
    if fresh:
        file.unlink()
    begin, refused = threading.Barrier(len(texts)), []

    def write(text):
        begin.wait(WAIT_S)
        try:
            files.write(file, text, fresh=fresh)
        except FileExistsError:
            refused.append(text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert (file.read_text() in texts, only(file)) == (True, True)
    assert len(refused) == (len(texts) - 1 if fresh else 0)


def test_a_fresh_file_where_there_are_no_hard_links(file, monkeypatch):
    def link(one, other):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(FileExistsError, match=r"The file .*file already exists"):
        files.write(file, "new", fresh=True)
    file.unlink()
    files.write(file, "new", 0o600, fresh=True)
    assert (file.read_text(), mode(file), only(file)) == ("new", 0o600, True)


def test_a_secret_is_its_owners_from_the_first_byte_on(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda number: seen.append(stat.S_IMODE(os.fstat(number).st_mode)))
    before = os.umask(0)
    try:
        files.write(tmp_path / "token", "secret", 0o600)
        (tmp_path / "token").chmod(0o400 | 0o200)
        files.write(tmp_path / "token", "another", 0o666)
    finally:
        os.umask(before)
    assert seen[::2] == [0o600, 0o600]  # every other one is the folder's


def test_the_owner_and_the_group_stay_as_far_as_that_is_permitted(file):
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(file, 1234, 2345)
    files.write(file, "new")
    status = file.stat()
    assert (status.st_uid, status.st_gid, mode(file), file.read_text()) == (1234, 2345, 0o640, "new")


def test_a_file_of_another_owner_is_replaced_where_its_mode_permits_that(reachable):
    if os.geteuid():
        pytest.skip("only root has files of several owners")
    file = reachable / "file"
    file.write_bytes(OLD)
    file.chmod(0o666)
    with nobody():
        files.write(file, "new")
    assert (file.stat().st_uid, mode(file), file.read_text(), only(file)) == (65534, 0o666, "new", True)


def test_a_hard_link_keeps_what_it_had(file):
    other = file.with_name("other")
    os.link(file, other)
    files.write(file, "new")
    assert (file.read_text(), other.read_bytes()) == ("new", OLD)


def test_what_may_not_be_written_is_refused_in_a_sentence(reachable):
    file, locked, hidden = reachable / "file", reachable / "locked", reachable / "hidden"
    for folder in (locked, hidden):
        folder.mkdir()
        (folder / "file").write_bytes(OLD)
    file.write_bytes(OLD)
    with nobody(reachable):
        file.chmod(0o444)
        locked.chmod(0o555)
        hidden.chmod(0o000)
        for path, words in (
            (file, rf"{file} cannot be written: permission denied\. Choose another file\."),
            (locked / "file", rf"{locked}/file cannot be written: its folder {locked} is not writable\. Choose an"),
            (locked / "new", rf"{locked}/new cannot be written: its folder {locked} is not writable\."),
            (hidden / "file", rf"{hidden}/file cannot be written: its folder {hidden} is not writable\."),
            (hidden / "below" / "file", rf"{hidden}/below/file cannot be written: permission denied\."),
        ):
            for refuse in (files.check, lambda path: files.write(path, "new"), RUN.save):
                with pytest.raises(PermissionError, match=words):
                    refuse(path)
        files.append(locked / "file", "and more\n")  # which makes no new file
        hidden.chmod(0o755)
    assert (file.read_bytes(), mode(file)) == (OLD, 0o444)
    assert ((locked / "file").read_bytes(), (hidden / "file").read_bytes()) == (OLD + b"and more\n", OLD)
    assert sorted(one.name for one in reachable.rglob("*")) == ["file", "file", "file", "hidden", "locked"]


@pytest.mark.parametrize("below", ["none/file", "file/below"])
def test_a_folder_that_is_not_there_is_named(below, file):
    path = file.parent / below
    for refuse in (files.check, RUN.save, RUN.trace.to_chrome, lambda path: ps.CsvLog(path)(NOW)):
        with pytest.raises(OSError, match=rf"There is no folder {path.parent} for {path}\. Make it, or choose another"):
            refuse(path)
    with pytest.raises(OSError, match=f"{path} cannot be written"):
        files.append(path, "x")


def test_the_longest_name_can_be_written_and_a_longer_one_is_a_sentence(tmp_path):
    for longest in ("x" * 255, "ü" * 127, "界" * 85):
        files.write(tmp_path / longest, "whole")
        assert [one.name for one in tmp_path.iterdir()] == [longest]
        (tmp_path / longest).unlink()
        with pytest.raises(OSError, match=r"cannot be written: file name too long\. Choose another file"):
            files.write(tmp_path / f"{longest}yz", "none")
        assert [*tmp_path.iterdir()] == []


def test_a_path_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Named:
        def __fspath__(self):
            return "named"

    for path, name in (("~", "~"), ("./a b", "a b"), (Named(), "named"), (Path("-"), "-")):
        files.write(path, "x")
        assert (tmp_path / name).read_text() == "x"
    for name, why in (("a\0b", ".*embedded null"), ("\ud800", "'utf-8' codec can't encode")):
        with pytest.raises(ValueError, match=rf"^A file cannot have the name '.*': {why}.*\. Choose another\.$"):
            files.write(name, "x")
    with pytest.raises(IsADirectoryError, match=r"^\. is a folder"):
        files.write("", "x")


def test_a_pipe_without_a_reader_is_waited_for_and_then_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "READER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match=r"pipe is a pipe, and it has had no reader for 0\.1 s\. Start its reader"):
        RUN.save(tmp_path / "pipe")


def test_a_pipe_whose_reader_went_away_breaks(tmp_path):
    end, start = os.pipe()
    os.close(end)
    try:
        with pytest.raises(BrokenPipeError, match=r"cannot be written: broken pipe"):
            files.write(f"/dev/fd/{start}", bytes(1_000_000))
    finally:
        os.close(start)


def test_a_log_in_a_pipe_is_one_stream_that_can_be_read_meanwhile(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    lines, came = [], threading.Semaphore(0)

    def read():
        with open(tmp_path / "pipe", newline="") as pipe:
            for line in pipe:
                lines.append(line)
                came.release()

    reader = threading.Thread(target=read)
    reader.start()
    log = ps.CsvLog(tmp_path / "pipe")
    for row in range(3):
        log(NOW)
        for _ in range(2 if row == 0 else 1):
            assert came.acquire(timeout=WAIT_S)
    assert reader.is_alive()
    del log
    reader.join(WAIT_S)
    assert lines == ["step,seconds,loss,validation_loss\r\n", *["2,1.250000,0.5,\r\n"] * 3]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are elsewhere")
@pytest.mark.parametrize("how", [">", ">>"])
def test_standard_output_that_leads_to_a_file_is_written_at_its_end(how, tmp_path):
    program = """
        import minips as ps
        from minips import files

        problem = ps.LinearRegression([[1.0], [2.0]], [1.0, 2.0])
        run = ps.train(problem, ps.Config(workers=1, steps=1), engine="simulated")
        print("before", flush=True)
        run.save("stdout")
        files.write("/dev/fd/1", "between\\n")
        files.append("/proc/self/fd/1", "and\\n")
        print("after")
    """
    (tmp_path / "out").write_bytes(OLD)
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    command = f'"$0" -c "$1" {how} "$2"'
    shell = ["sh", "-c", command, sys.executable, textwrap.dedent(program), str(tmp_path / "out")]
    subprocess.run(shell, check=True, timeout=60, cwd=tmp_path)
    data = (tmp_path / "out").read_bytes()
    assert data.startswith(OLD) == (how == ">>")
    archive = data.partition(b"before\n")[2].removesuffix(b"between\nand\nafter\n")
    (tmp_path / "run.npz").write_bytes(archive)
    assert ps.Run.load(tmp_path / "run.npz").updates == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "run.npz", "stdout"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are elsewhere")
def test_standard_output_that_is_a_socket_is_written_to(tmp_path):
    one, other = socket.socketpair()
    with one, other:
        program = "from minips import files; files.write('/proc/self/fd/1', 'words')"
        subprocess.run([sys.executable, "-c", program], stdout=one, check=True, timeout=60)
        assert other.recv(99) == b"words"


def test_descriptors_that_are_not_open_or_only_read_are_refused(file):
    with pytest.raises(OSError, match=r"/dev/fd/987654 cannot be written: no such file or directory"):
        files.write("/dev/fd/987654", "x")
    with file.open("rb") as reading, pytest.raises(OSError, match=r"cannot be written: "):
        files.write(f"/dev/fd/{reading.fileno()}", "x")
    assert file.read_bytes() == OLD


@pytest.mark.parametrize("option", ["--save", "--json", "--trace"])
def test_the_command_line_refuses_before_the_training_and_writes_through_links(option, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ["train", "--data", "synthetic", "--engine", "threads", "--transport", "inproc", "--workers", "1"]
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        assert cli.main([*train, "--steps", "1000000", option, "socket"]) == 2
    assert capsys.readouterr().err == "minips: socket cannot be written: it is a socket. Choose another file.\n"
    Path("target").write_bytes(OLD)
    Path("target").chmod(0o600)
    Path("link").symlink_to("target")
    assert cli.main([*train, "--steps", "2", option, "link"]) == 0
    assert (Path("link").is_symlink(), mode(Path("target"))) == (True, 0o600)
    assert OLD not in Path("target").read_bytes()
    os.mkfifo("pipe")
    assert len(read_from("pipe", lambda: cli.main([*train, "--steps", "2", option, "pipe"]))) > 99


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are elsewhere")
@pytest.mark.parametrize("option", ["--json", "--trace", "--save"])
def test_words_do_not_go_where_a_file_goes(option, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("stdout").symlink_to("/dev/fd/1")
    train = ["train", "--data", "synthetic", "--engine", "threads", "--transport", "inproc", "--workers", "1"]
    assert cli.main([*train, "--steps", "2", option, "stdout"]) == 0
    out, error = capfd.readouterr()
    assert "training loss" in error
    if option != "--save":
        json.loads(out)


def test_a_token_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(ValueError, match=r"token is not text in UTF-8\. Delete it, or name another\."):
        cli._token(str(tmp_path / "token"))


def test_two_servers_that_begin_at_once_have_one_token(tmp_path, capsys):
    (tmp_path / "token").symlink_to("kept")
    begin, tokens = threading.Barrier(8), []

    def serve():
        begin.wait(WAIT_S)
        tokens.append(cli._token(str(tmp_path / "token"), fresh=True))

    threads = [threading.Thread(target=serve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert (len(tokens), set(tokens)) == (8, {(tmp_path / "kept").read_text().strip()})
    assert (mode(tmp_path / "kept"), sorted(one.name for one in tmp_path.iterdir())) == (0o600, ["kept", "token"])
    assert capsys.readouterr().err.count("A fresh token is in") == 1


def test_a_session_is_kept_through_a_link_for_its_owner_alone(tmp_path):
    config = ps.Config(workers=1, transport="inproc")
    (tmp_path / "session").symlink_to("kept")
    with ps.Server({"w": np.zeros(2)}, config).serve(token="t") as server:
        for _ in range(2):
            with ps.connect(server.address, config, token="t", session=tmp_path / "session") as client:
                assert client.worker == 0
            assert ((tmp_path / "session").is_symlink(), mode(tmp_path / "kept")) == (True, 0o600)
            assert json.loads((tmp_path / "kept").read_text())["worker"] == 0
        with pytest.raises(IsADirectoryError, match="is a folder"):
            ps.connect(server.address, config, token="t", session=tmp_path)
        assert not server.connected


# All of them


ELSEWHERE = {
    "minips/engines/hosts.py": 3,  # the kernel's own files, under /proc
    "minips/sandbox.py": 4,  # the kernel's own files, under /proc, and empty ones in a temporary folder
    "minips/lab/course/graders.py": 1,  # a pipe
    "minips/engines/processes.py": 1,  # the process's name, under /proc
    "minips/stages/transports/certificates.py": 1,  # in memory
    "lessons/minips_course/ddp/ranks.py": 2,  # a process's address, in a temporary folder
    "lessons/minips_course/lecture/launch.py": 4,  # a child's descriptors, and its errors in a temporary folder
    "lessons/minips_course/lecture/rpc.py": 2,  # a process's port, in a temporary folder
    "minips/lab/measure/pairs.py": 1,  # /dev/null
    "minips/cli.py": 1,  # /dev/null
    "minips/lab/panels/base.py": 1,  # a picture, in memory
    "minips/lab/puzzles/base.py": 1,  # the same
    "minips/lab/pictures.py": 1,  # the same
    "minips/lab/plots.py": 1,  # the same
    "minips/results/saved.py": 1,  # an archive into what `files.writing` opens
    "minips/lab/course/state.py": 1,  # which renames the learner's notes
}
"""How many calls write something else than a file that stays."""
WRITE = {"write_text", "write_bytes", "savefig", "tofile", "savetxt", "savez", "savez_compressed", "rename", "touch"}


def writes(node):
    """True for a call that may write a file."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("open", "fdopen"):
        texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        flags = [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
        return any(set(text) & set("wax+") and set(text) <= set("wax+bt") for text in texts) or "O_WRONLY" in flags
    return name in WRITE


def test_nothing_else_in_minips_and_its_course_writes_files():
    root = Path(__file__).parents[1]
    found = {}
    for path in sorted([*(root / "minips").rglob("*.py"), *(root / "lessons").rglob("*.py")]):
        text = path.read_text(encoding="utf-8")
        count = sum(map(writes, ast.walk(ast.parse(text)))) if any(word in text for word in ("open", *WRITE)) else 0
        if count and path.name != "files.py":
            found[str(path.relative_to(root))] = count
    assert found == ELSEWHERE
