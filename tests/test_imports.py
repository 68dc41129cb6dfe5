"""What minips needs to be imported, to simulate, predict, check and show: neither processes nor threads."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

BARE = """
import math, sys, threading
import numpy

for name in ("_multiprocessing", "_posixshmem", "fcntl", "grp", "lz4", "pwd", "resource", "ssl", "_ssl", "termios"):
    sys.modules[name] = None  # an import of it raises ModuleNotFoundError

def start(thread):
    raise RuntimeError("can't start new thread")

def empty(shape, dtype=float, *more, make=numpy.empty, **named):
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if math.prod(n for n in lengths if n) * numpy.dtype(dtype).itemsize >= 2**31:
        raise ValueError("array is too big")
    return make(shape, dtype, *more, **named)

threading.Thread.start, numpy.empty = start, empty
"""
"""A Python as a browser has it: 32 bits, no processes, no threads, nothing that only Unix has, no lz4."""

TRAIN = """
import hashlib
import minips as ps

problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=20, classes=3, seed=3))
push = ps.Codec(ps.Uniform(bits=4), ps.ErrorFeedback(), ps.MsgPack(), ps.Zlib())
say = {}
for changes in (
    {"consistency": ps.BSP()},
    {"consistency": ps.SSP(staleness=1), "servers": 2},
    {"consistency": ps.ASP(), "optimizer": ps.Adam()},
    {"exchange": ps.RingAllReduce()},
):
    delays = ps.Delays(0.01, slow={1: 3.0}, exponential=True)
    config = ps.Config(push=push, workers=3, steps=12, delays=delays, link=ps.Link(1e6, 1e-3), **changes)
    run = ps.train(problem, config, engine=ps.Simulated())
    digest = hashlib.sha256()
    for name, p in run.params.items():
        digest.update(f"{name} {p.dtype} {p.shape} ".encode() + p.tobytes())
    say[repr(changes)] = [digest.hexdigest(), run.losses, run.accuracy, run.seconds, run.bytes_sent, run.bytes_received]
"""

PREDICT = """
import minips as ps

problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=20, classes=3, seed=3))
stages = "compensate quantize serialize compress decompress deserialize dequantize aggregate apply".split()
line = {"fixed_s": 1e-5, "each_s": 1e-8}
spans = dict.fromkeys(stages, line)
calibration = ps.cost.Calibration.from_dict(
    {"worker": spans, "server": spans, "idle": line, "gradient": line, "problem": ps.cost.problem_words(problem)}
)
say = {}
for changes in (
    {"servers": 2},
    {"push": ps.Codec(ps.TopK(0.1), ps.ErrorFeedback()), "consistency": ps.SSP(1)},
    {"push": ps.Codec(compressor=ps.Zlib()), "consistency": ps.ASP(), "overlap": True},
    {"push": ps.Codec(ps.Float16()), "exchange": ps.RingAllReduce()},
):
    config = ps.Config(workers=3, steps=12, link=ps.Link(1e6, 1e-3), **changes)
    prediction = ps.cost.predict(problem, config, calibration)
    assert prediction.bytes_sent > 0
    say[repr(changes)] = [
        prediction.seconds_per_step, prediction.spans, prediction.interval_s, prediction.bytes_sent,
        prediction.bytes_received, prediction.exact_bytes,
    ]
"""

CHECK = """
import minips as ps

say = {}
for name in ps.names("quantizer"):
    quantizer = ps.build("quantizer", name)
    ps.testing.check(quantizer)
    say[name] = repr(quantizer)
assert len(say) >= 13
"""

SHOW = """
from minips import lab

panel = lab.Collectives()
panel.run()
assert panel.wait(60)
say = panel.words(panel.found)
"""


def said(*program: str) -> Any:
    """What a fresh interpreter comes to, under ``say``."""
    words = "\n".join(["import json", *program, "print(json.dumps(say))"])
    done = subprocess.run([sys.executable, "-W", "error", "-c", words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


LONG = [pytest.param(CHECK, marks=pytest.mark.soak), pytest.param(SHOW, marks=pytest.mark.soak)]


@pytest.mark.parametrize("program", [TRAIN, PREDICT, *LONG], ids=["train", "predict", "check", "show"])
def test_without_processes_and_threads_the_same_comes_out(program):
    assert said(BARE, program) == said(program)


REFUSE = """
import minips as ps

problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=20, classes=3, seed=3))
say = {}

def tried(name, call):
    try:
        call()
    except Exception as error:
        say[name] = f"{type(error).__name__}: {error}"

for engine in ("threads", "processes"):
    tried(engine, lambda: ps.train(problem, engine=engine))
tried("calibrate", lambda: ps.cost.calibrate(ps.Config()))
tried("lz4", ps.Lz4)
"""


def test_what_needs_processes_or_lz4_says_so_when_it_is_used():
    lacking = (
        "RuntimeError: Servers and workers need the library multiprocess, and here it does not work: "
        r".*_multiprocessing.*\. The engine Simulated\(\) needs neither processes nor threads\."
    )
    refused = said(BARE, REFUSE)
    for name in ("threads", "processes", "calibrate"):
        assert re.fullmatch(lacking, refused[name])
    assert refused["lz4"].startswith("ModuleNotFoundError: The compressor lz4 needs lz4, which is not installed.")


def test_importing_minips_loads_little():
    heavy = (
        "_posixshmem asyncio concurrent.futures.process dill fcntl fractions http importlib.resources lz4 multiprocess "
        "multiprocessing networkx rich ssl statistics subprocess"
    )
    program = f"import sys, minips; say = [name for name in {heavy.split()} if name in sys.modules]"
    assert said(program) == []
    wings = "tuple(f'minips.{name}' for name in ('cost', 'lab', 'machines', 'testing'))"
    assert said(f"import sys, minips; say = [name for name in sys.modules if name.startswith({wings})]") == []


IN_CHILD = """
import os, sys
from pathlib import Path
import minips as ps

class Lists(ps.LinearRegression):
    file, parent = Path(FILE), os.getpid()

    def loss_and_gradient(self, params, rows=None):
        if os.getpid() != self.parent:
            self.file.write_text(" ".join(sys.modules))
        return super().loss_and_gradient(params, rows)

problem = Lists(*ps.datasets.synthetic(rows=50, features=2))
ps.train(problem, ps.Config(workers=1, steps=1), engine="processes")
say = [name for name in HEAVY.split() if name in Path(FILE).read_text().split()]
"""


def test_a_process_of_a_run_loads_little(tmp_path):
    heavy = (
        "asyncio encodings.idna fractions http importlib.resources lz4 minips.cost minips.lab minips.testing networkx "
        "rich ssl"
    )
    assert said(f"FILE, HEAVY = {str(tmp_path / 'modules')!r}, {heavy!r}", IN_CHILD) == []


def test_what_measures_in_a_process_of_its_own_loads_nothing_that_draws_or_shows():
    drawing = "('minips.lab.face', 'matplotlib', 'ipywidgets', 'IPython')"
    roles = "import minips.lab.measure.pairs, minips.lab.measure.with_torch, minips_course.move.crowd"
    assert said(f"import sys; {roles}; say = [name for name in {drawing} if name in sys.modules]") == []


def test_what_other_systems_lack_is_not_asked_for_at_import():
    program = """
import mmap, os, random, signal, socket, subprocess, sys, threading  # which ask for much of it themselves
import numpy.random, secrets, selectors, tempfile

for name in ("_posixshmem", "fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
absent = {
    mmap: "MADV_HUGEPAGE MAP_ANONYMOUS MAP_PRIVATE",
    os: "MFD_ALLOW_SEALING MFD_CLOEXEC fork getuid memfd_create readv sched_getaffinity sysconf writev",
    signal: "SIGALRM SIGHUP SIGKILL SIG_BLOCK SIG_SETMASK pthread_kill pthread_sigmask",
    socket: "AF_UNIX CMSG_LEN CMSG_SPACE MSG_DONTWAIT SCM_RIGHTS SO_REUSEPORT socketpair",
}
for module, names in absent.items():
    for name in names.split():
        delattr(module, name)
import minips as ps
say = [name for name in ps.__all__ if not hasattr(ps, name)]
ps.cost, ps.testing, ps.SharedMemory(), ps.Pipe(), ps.Processes()
"""
    assert said(program) == []
