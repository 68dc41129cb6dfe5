"""A process for code that is not trusted. It computes on what it is sent, and can do nothing else.

    with Sandbox(Limits()) as sandbox:
        sandbox.begin(text, "entry.py")
        answer = sandbox.ask("minips.racing.borrowed", "call", …)

`Sandbox` starts a process that imports numpy and minips. `begin` makes it fork a child, which seals itself and then
runs the text as a module; `ask` calls a function of a module of minips in the child, with the text's module as its
first argument. `end` ends the child; the next `begin` starts afresh, without a second import. Questions and answers are
MessagePack on two pipes, with arrays, and without pickles: this process reads what the child writes as data only.

`seal` applies what the system offers:
- limits of memory, processor time, file size, open files and processes (``setrlimit``), anywhere;
- on Linux, namespaces of its own without network, a root folder that is empty, no new privileges;
- with ``shows``, a root folder that has these folders alone, which cannot be changed, so that the text can import, and
  a network and a folder for temporary files that it shares with nobody;
- its own user: as root, an unused uid; otherwise a user namespace. There it also sees no other process.

`protections` says which of these work here. A child that exceeds a limit ends, and `SandboxError` says why in a
sentence. When this process ends, in whatever way, the children end too.

Not promised: a bug in the kernel or in numpy may let code out. What matters must not depend on the sandbox alone. A
container or a virtual machine around it is stronger.
"""

import ctypes
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import msgpack
import numpy as np

from minips.words import message_of

if sys.platform != "win32":
    import fcntl
    import resource

HEAD = struct.Struct("!Q")
MOST_BYTES = 2**26
"""The most bytes of one question or answer."""
START_S = 60.0
"""The most seconds until a process has imported minips."""
NEW_USER, NEW_PID, NEW_NET, NEW_IPC, NEW_MOUNTS = 0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x00020000
BIND, RECURSIVE, PRIVATE, DETACH = 0x1000, 0x4000, 0x40000, 2
MOUNT_SETATTR, AT_HERE, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 1
"""A system call that makes mounts read-only, those inside them too; it has this number on all machines."""
SET_FLAGS, IS_UP = 0x8914, 1
SCRATCH = "/scratch"
"""The folder for temporary files in a sandbox with ``shows``."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/etc/ld.so.cache")
"""The files that are in a sandbox with ``shows``, if they exist."""
CAPABILITIES_V3 = 0x20080522
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
FIRST_UID = 61_000
"""As root, a child gets the uid ``FIRST_UID`` plus a number from its process's."""
NO_NETWORK, NO_SIGHT, NO_PRIVILEGES = "no network", "no sight of other processes", "no new privileges"
NO_FILES = "no files"
LIMITED = "limits of memory, time, files and processes"
SHOWN = f"{NO_FILES} but those of Python and of the modules"
"""Protections, in the words of `seal`."""
View = Sequence[Sequence[str]]
"""The folders that a sandbox shows, what it hides of them, and the folders of which it has copies without mounts."""


class SandboxError(RuntimeError):
    """Raised if the code in a sandbox fails, exceeds a limit, or ends its process. The text is a sentence."""


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use. ``cpu_s`` counts for each `Sandbox.begin` anew."""

    memory_bytes: int = 2**30
    cpu_s: int = 60
    answer_s: float = 20.0
    """Seconds of wall-clock time for one answer."""
    files: int = 16
    processes: int = 0
    """Processes and threads beside the first one."""
    file_bytes: int = 0
    """The most bytes of a file. With `Sandbox.shows`, such files can be in a folder of its own."""


class Sandbox:
    """One sandboxed process. ``who`` names it in errors. Use it with ``with``, or call `close`.

    It imports ``modules`` before it is sealed, and calls the function of ``module:function``. With ``shows``, the text
    in it sees these folders and no other files, and can import from them; files that it ``hides`` are empty there.
    Where the system has no mounts for that, it sees copies of the folders ``copies`` and no other files.
    ``environment`` is added to its own, which has nothing of this process's but the paths of programs and libraries.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        who: str = "The entry",
        *,
        shows: Sequence[Path] = (),
        hides: Sequence[Path] = (),
        copies: Sequence[Path] = (),
        modules: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise OSError("A sandbox needs the limits of Linux or macOS. On Windows, use WSL.")
        self.limits, self.who = limits or Limits(), who
        self._root = tempfile.TemporaryDirectory(prefix="minips-sandbox-")
        os.chmod(self._root.name, 0o755)
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[1])]
        view = [[*map(str, paths)] for paths in (shows, hides, copies)]
        given = (self._root.name, view, [*modules])
        code = f"import sys; sys.path[:] = {paths!r}; from minips.sandbox import _serve; _serve(*{given!r})"
        one_thread = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")}
        kept = {
            name: os.environ[name]
            for name in ("PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")
            if name in os.environ
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, **one_thread, "PYTHONHASHSEED": "0", **(environment or {})},
            start_new_session=True,
            cwd="/",
        )
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it has started, and remove its folder."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._root.cleanup()

    def begin(self, text: str, file: str) -> None:
        """Run a text as a module, in a new child. ``file`` names it in errors. SandboxError if it fails."""
        self.end()
        self._begun = True
        self._write({"text": text, "file": file, "limits": vars(self.limits)})
        self._answer(START_S + self.limits.answer_s)

    def ask(self, module: str, function: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Return ``function(entry, *arguments)``, a function of a module of minips, as the child answers it. It may
        take ``seconds``, by default those of the limits.
        """
        self._write([module, function, arguments])
        return self._answer(seconds or self.limits.answer_s)

    def end(self) -> None:
        """End the child, if there is one. SandboxError if it wrote more than one answer to each question."""
        if self._begun:
            self._begun = False
            self._write(None)
            self._answer(self.limits.answer_s, ends=True)
            word = secrets.token_hex()
            self._write({"word": word})
            if self._answer(self.limits.answer_s) != word:
                self._fail(f"{self.who} wrote answers of its own.")

    def _write(self, question: Any) -> None:
        """Send a question, for at most ``answer_s`` seconds: the child may have stopped reading."""
        pipe, deadline = self._process.stdin, time.monotonic() + self.limits.answer_s
        assert pipe
        data = memoryview(_pack(question))
        os.set_blocking(pipe.fileno(), False)
        while data:
            if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
                self._fail(f"{self.who} did not read its input for {self.limits.answer_s:g} seconds and was ended.")
            try:
                data = data[os.write(pipe.fileno(), data) :]
            except BrokenPipeError:
                self._fail(f"{self.who} ended its process.")

    def _answer(self, seconds: float, ends: bool = False) -> Any:
        pipe, deadline = self._process.stdout, time.monotonic() + seconds
        assert pipe

        def read(size: int) -> bytes:
            got = bytearray()
            while len(got) < size:
                if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    self._fail(f"{self.who} gave no answer for {seconds:g} seconds and was ended.")
                some = os.read(pipe.fileno(), size - len(got))
                if not some:
                    self._fail(f"{self.who} ended its process.")
                got += some
            return bytes(got)

        (size,) = HEAD.unpack(read(HEAD.size))
        if size > MOST_BYTES:
            self._fail(f"{self.who} answered with {size} bytes; at most {MOST_BYTES} are allowed.")
        try:
            kind, value = _unpack(read(size))
        except Exception:
            self._fail(f"{self.who} answered with something that is no answer.")
        if kind == "ended" and ends and value == 0:
            return None
        if kind == "ended":
            self._fail(f"{self.who} {_why(value, self.limits)}.")
        if ends:
            self._fail(f"{self.who} wrote answers of its own.")
        if kind != "answer":
            raise SandboxError(f"{self.who} failed: {value!s:.500}")
        return value

    def _fail(self, why: str) -> None:
        self.close()
        raise SandboxError(why)


def _why(status: Any, limits: Limits) -> str:
    """Why a child ended, from its wait status, as the end of a sentence."""
    number = -os.waitstatus_to_exitcode(status) if isinstance(status, int) else 0
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return f"was killed: it computed for more than {limits.cpu_s} seconds, or used too much memory"
    if number > 0:
        return f"ended by {signal.Signals(number).name}"
    return "ended its process"  # and cannot answer any more


def _pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, default=_plain)
    return HEAD.pack(len(data)) + data


def _plain(x: Any) -> Any:
    """An array as its dtype, shape and bytes; a NumPy number as an array of no dimension."""
    if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biuf" and x.dtype.itemsize <= 8:
        array = np.ascontiguousarray(x)
        return msgpack.ExtType(1, msgpack.packb([array.dtype.str, x.shape, array.tobytes()]))
    raise TypeError(
        f"expected numbers, texts, arrays of numbers, and lists and dicts of these; got {type(x).__name__}."
    )


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, ext_hook=_array, strict_map_key=False, use_list=True)


def _array(code: int, data: bytes) -> Any:
    text, shape, values = msgpack.unpackb(data)
    dtype = np.dtype(text)
    if code != 1 or dtype.kind not in "biuf":
        raise ValueError(f"Expected an array of numbers; got {text!r:.99}.")
    return np.frombuffer(bytearray(values), dtype).reshape(shape)


def _serve(root: str, view: View, modules: Sequence[str]) -> None:
    """Fork a child for each question that begins one. The process's main function."""
    from minips.stage import kinds, names, stage_class

    for kind in kinds():  # a child has no files to import from
        for name in names(kind):
            with suppress(ImportError):
                stage_class(kind, name)
    for module in ("numpy.fft", "numpy.polynomial", *(modules or ["minips.racing.borrowed"])):
        name, _, function = module.partition(":")
        imported = import_module(name)
        if function:
            getattr(imported, function)()
    _control(PR_SET_PDEATHSIG, signal.SIGKILL)
    _PIPES[:] = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):  # what the entry prints must not get into an answer
        os.dup2(nowhere, standard)
    os.umask(0o022)
    while (question := _read()) is not None:
        if word := question.get("word"):
            _write_all(_pack(["answer", word]))
            continue
        child = os.fork()
        if not child:
            _child(question, root, view)
        _, status = os.waitpid(child, 0)
        _write_all(_pack(["ended", status]))
        if status:
            return


def _child(question: Any, root: str, view: View) -> None:
    """Seal this process, run the text, and answer questions. Never returns."""
    limits = Limits(**question["limits"])
    _APPLIED[:] = seal(limits, root, view)
    os.environ["TMPDIR"], tempfile.tempdir = SCRATCH, None
    entry = types.ModuleType("entry")
    entry.__file__ = question["file"]
    sys.modules["entry"] = entry

    def load() -> None:
        exec(compile(question["text"], question["file"], "exec"), vars(entry))

    _try(load)
    while (asked := _read()) is not None:
        module, function, arguments = asked
        _try(lambda: getattr(sys.modules[module], function)(entry, *arguments))  # noqa: B023
    os._exit(0)


def _try(call: Callable[[], Any]) -> None:
    """Answer with a call's result, or with its error as a sentence."""
    try:
        answer = _pack(["answer", call()])
    except MemoryError:
        answer = _pack(["error", "it needs more memory than the sandbox gives."])
    except BaseException as error:  # a SystemExit would end the child
        answer = _pack(["error", f"{type(error).__name__}: {message_of(error)}"])
    _write_all(answer)


def _read() -> Any:
    head = _read_all(HEAD.size)
    return _unpack(_read_all(*HEAD.unpack(head))) if head else None


def _read_all(size: int) -> bytes:
    got = b""
    while len(got) < size:
        some = os.read(_PIPES[0], size - len(got))
        if not some:  # the judge has ended
            os._exit(0)
        got += some
    return got


def _write_all(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(_PIPES[1], rest) :]


def _control(*arguments: int) -> bool:
    """Call Linux's prctl. Return False elsewhere."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(*arguments, 0, 0, 0) == 0)


def end_with_parent(number: int) -> None:
    """On Linux, let this process get a signal when the thread that started it ends."""
    _control(PR_SET_PDEATHSIG, number)


def seal(limits: Limits, root: str, view: View = ((), (), ())) -> list[str]:
    """Give up what this process does not need; there is no way back. Return the protections that work here.

    The process forks if it gets a namespace for its processes: only the child returns.
    """
    applied, (shows, hides, copies) = [LIMITED], view
    was_root, user = os.geteuid() == 0, FIRST_UID + os.getpid() % 4_000
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        spaces = {NEW_NET: NO_NETWORK, NEW_IPC: "no shared memory", NEW_PID: NO_SIGHT}
        user_and_group = os.geteuid(), os.getegid()
        if not was_root and libc.unshare(NEW_USER) == 0:
            applied.append("a user namespace")
            if shows:  # whose owner makes a root folder
                _map_user(*user_and_group)
        for space, words in spaces.items():
            if libc.unshare(space) == 0:
                applied.append(words)
        if spaces[NEW_PID] in applied:
            _fork_into()
        shown = bool(shows) and _show(libc, root, shows, hides, limits.file_bytes)
        for path in () if shown else copies:
            with suppress(OSError):  # such as that of a child before this one
                hidden = {os.path.basename(one) for one in hides}
                shutil.copytree(path, root + path, ignore=shutil.ignore_patterns("__pycache__", *hidden))
        with suppress(OSError):
            os.chroot(root)
            applied.append(SHOWN if shown else NO_FILES)
        with suppress(OSError):
            os.chdir("/")
    if was_root:
        with suppress(OSError):
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            applied.append("a uid of its own")
    if _control(PR_SET_NO_NEW_PRIVS, 1):
        applied.append(NO_PRIVILEGES)
    if sys.platform == "linux":
        header = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0)
        libc.capset(header, (ctypes.c_uint32 * 6)())  # those that a user namespace gives, which could undo the root
    _control(PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of the uid has cleared
    for kind, most in _rlimits(limits):
        with suppress(ValueError, OSError):  # a lower limit than this holds already
            resource.setrlimit(kind, (most, most))
    return applied


def _map_user(user: int, group: int) -> None:
    """Keep this process's user and group in its new user namespace."""
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _show(libc: ctypes.CDLL, root: str, shows: Sequence[str], hides: Sequence[str], file_bytes: int) -> bool:
    """Mount the folders below ``root``, read-only, for this process alone. Return False if the system does not allow
    it; ``root`` is empty then. Otherwise there is a folder `SCRATCH`, and a network that reaches this process alone.
    """
    if libc.unshare(NEW_MOUNTS) or libc.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None):
        return False
    if libc.mount(b"tmpfs", root.encode(), b"tmpfs", 0, b"size=1m,mode=755"):
        return False
    attributes = struct.pack("=QQQQ", READ_ONLY, 0, 0, 0)
    try:
        os.mkdir(root + SCRATCH)
        for path in (*shows, *DEVICES):
            if not os.path.exists(path):
                continue
            at = root + path
            os.makedirs(at if os.path.isdir(path) else os.path.dirname(at), exist_ok=True)
            if not os.path.isdir(path):
                open(at, "x").close()
            if libc.mount(os.path.realpath(path).encode(), at.encode(), None, BIND | RECURSIVE, None):
                raise OSError(ctypes.get_errno(), f"{path} cannot be mounted")
        for path in hides:
            over = (root + path).encode()
            if os.path.exists(over) and libc.mount(b"/dev/null", over, None, BIND, None):
                raise OSError(ctypes.get_errno(), f"{path} cannot be hidden")
        if libc.syscall(MOUNT_SETATTR, AT_HERE, root.encode(), AT_RECURSIVE, attributes, len(attributes)):
            raise OSError(ctypes.get_errno(), "mounts cannot be made read-only")
        if libc.mount(b"tmpfs", (root + SCRATCH).encode(), b"tmpfs", 0, f"size={16 * file_bytes},mode=1777".encode()):
            raise OSError(ctypes.get_errno(), "there is no place for files")
    except OSError:
        libc.umount2(root.encode(), DETACH)
        return False
    with suppress(OSError), socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", IS_UP))
    return True


def _rlimits(limits: Limits) -> Iterator[tuple[int, int]]:
    yield resource.RLIMIT_AS, limits.memory_bytes + _mapped_bytes()
    yield resource.RLIMIT_CPU, limits.cpu_s
    yield resource.RLIMIT_FSIZE, limits.file_bytes
    yield resource.RLIMIT_NOFILE, limits.files
    yield resource.RLIMIT_NPROC, limits.processes
    yield resource.RLIMIT_CORE, 0


def _mapped_bytes() -> int:
    """The bytes that this process has mapped already."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 2**31


def _fork_into() -> None:
    """Fork: the child is the first process of a new namespace and returns; the parent ends as the child does."""
    child = os.fork()
    if not child:
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code or 0)


def protections() -> list[str]:
    """The protections that a sandbox has on this machine."""
    with Sandbox() as sandbox:
        sandbox.begin("", "empty.py")
        return list(sandbox.ask("minips.sandbox", "sealed"))


def sealed(entry: Any) -> list[str]:
    """The protections of this process, which `seal` has applied."""
    return _APPLIED


_APPLIED: list[str] = []
_PIPES: list[int] = []
"""In a sandbox: the protections of this process, and the pipes of questions and answers."""
