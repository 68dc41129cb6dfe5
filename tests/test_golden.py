"""What a dozen configs say, send, take and become, held to what they did when `golden.json` was written.

The problem's arithmetic is elementwise, so that no BLAS and no machine changes a bit. `python tests/test_golden.py`
writes the file anew, which only a defect that is named, or a protocol's new version, is a reason for.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.core.message import Header
from minips.core.plan import Plan
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.results.trace import DECODE, ENCODE, UPDATE
from minips.stage import Frames, Tensors
from minips.stages.serializers import Packet

GOLDEN = Path(__file__).parent / "golden.json"
WAVERS = ("busy", "waited", "secret")
"""What an answer's envelope tells of the wall clock; and what is drawn at random for each run."""


class Pull(ps.Problem):
    """Every row draws the parameters towards itself."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        super().__init__(rng.integers(-8, 8, (96, 23)).astype("f4") / 8, np.zeros(96, "f4"))

    def init(self, rng: np.random.Generator) -> Tensors:
        return {"W": np.zeros((4, 5), "f4"), "b": np.ones(3, "f4")}

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        whole = np.concatenate([params["W"].reshape(-1), params["b"]])
        chosen = self.X if rows is None else self.X[rows]
        g = np.zeros_like(whole)
        for row in chosen:
            g += (whole - row) / np.float32(len(chosen))
        return float(abs(g).max()), {"W": g[:20].reshape(4, 5), "b": g[20:]}


CALIBRATION = Calibration(
    worker={name: Line(1e-5, 1e-8, 0.9, 1.2) for name in (*ENCODE, *DECODE)},
    server={name: Line(2e-5, 2e-8, 0.9, 1.2) for name in (*ENCODE, *DECODE, *UPDATE)},
    worker_rest=Line(2e-4, 1e-9, 0.9, 1.3),
    server_rest=Line(3e-4, 1e-9, 0.9, 1.3),
    idle=Line(1e-4, 0.0, 0.8, 1.5),
    hop_rest=Line(1e-4, 1e-9, 0.9, 1.3),
    hop_idle=Line(5e-5, 0.0, 0.8, 1.5),
    message=Line(1e-4, 1e-9),
    gradient=Line(1e-3, 1e-5),
    late_s=1e-4,
    cores=2,
    problem=cost.problem_words(Pull()),
)
slow = ps.Delays(seconds=0.002, slow={1: 3.0})
CONFIGS: dict[str, ps.Config] = {
    "bsp": ps.Config(),
    "two servers, four bits": ps.Config(
        workers=3, servers=2, push=ps.Codec(ps.Uniform(bits=4), ps.ErrorFeedback()), consistency="bsp"
    ),
    "ssp behind a straggler": ps.Config(workers=3, consistency=ps.SSP(2), delays=slow),
    "asp": ps.Config(workers=4, consistency=ps.ASP(), optimizer=ps.SGD(lr=0.05, momentum=0.9)),
    "asp, two servers, a link": ps.Config(workers=3, servers=2, consistency=ps.ASP(), link=ps.Link(10e6, 1e-3)),
    "a backup worker": ps.Config(workers=4, consistency=ps.BSP(backup=1), delays=ps.Delays(0.002, exponential=True)),
    "delta on the pull": ps.Config(
        workers=3, push=ps.Codec(ps.TopK(0.3), ps.ErrorFeedback()), pull=ps.Codec(ps.Uniform(8), ps.Delta())
    ),
    "overlap": ps.Config(workers=3, overlap=True, accumulate=2, push=ps.Codec(compressor=ps.Zlib())),
    "momentum correction": ps.Config(
        workers=2, push=ps.Codec(ps.TopK(0.2), ps.MomentumCorrection()), optimizer=ps.SGD(lr=0.05)
    ),
    "adam, a median": ps.Config(workers=5, aggregator=ps.Median(), optimizer=ps.Adam(lr=0.01)),
    "ring": ps.Config(workers=4, exchange=ps.RingAllReduce()),
    "tree, eight bits": ps.Config(
        workers=5, exchange=ps.TreeAllReduce(), push=ps.Codec(ps.Uniform(bits=8), ps.ErrorFeedback())
    ),
    "halving-doubling, overlap": ps.Config(
        workers=4, exchange=ps.HalvingDoubling(), overlap=True, link=ps.Link(10e6, 1e-3), delays=slow
    ),
    "two shots, eight bits, a link": ps.Config(
        workers=3, exchange=ps.TwoShot(), push=ps.Codec(ps.Uniform(bits=8)), link=ps.Link(10e6, 1e-3)
    ),
}
STEPS = 12
TIMED = ("ssp behind a straggler", "asp", "asp, two servers, a link", "a backup worker")
"""Those where the order of arrivals decides, so that threads end elsewhere than the simulation."""


@contextmanager
def overheard() -> Iterator[list[str]]:
    """What every message holds, in the order in which they are serialized, without the times in it."""
    said: list[str] = []
    dumps, write, lock = ps.MsgPack.dumps, Plan.write, threading.Lock()

    def note(header: Header, frames: Frames) -> None:
        steady = {key: value for key, value in header.items() if key not in WAVERS}
        body = b"".join(frames) if steady == header else json.dumps(steady, sort_keys=True).encode()
        with lock:
            said.append(hashlib.sha256(body).hexdigest()[:12])

    def by_the_serializer(self: ps.MsgPack, packet: Packet) -> Frames:
        frames = dumps(self, packet)
        note(packet.header, frames)
        return frames

    def by_the_plan(self: Plan, header: Header, tensors: Tensors, *timed: Any) -> tuple[Frames, Any, Any] | None:
        if planned := write(self, header, tensors, *timed):
            note(header, planned[0][1:])
        return planned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ps.MsgPack, "dumps", by_the_serializer)
        patch.setattr(Plan, "write", by_the_plan)
        yield said


def digest(*pieces: bytes) -> str:
    return hashlib.sha256(b"".join(pieces)).hexdigest()[:16]


def trained(config: ps.Config, engine: Any) -> tuple[dict[str, Any], ps.Run]:
    with overheard() as said:
        run = ps.train(Pull(), config, engine=engine)
    return {
        "messages": [len(said), digest(*sorted(one.encode() for one in said))],
        "parameters": digest(*(run.params[name].tobytes() for name in sorted(run.params))),
        "bytes": [run.bytes_sent, run.bytes_received],
        "staleness": sorted(run.staleness.items()),
        "updates": [run.updates, run.late],
    }, run


def simulated(config: ps.Config) -> dict[str, Any]:
    found, run = trained(config, ps.Simulated(calibration=CALIBRATION))
    spans = {name: float(f"{seconds:.9g}") for name, seconds in sorted(run.trace.seconds().items())}
    losses = [[float(f"{value:.9g}") for value in row] for row in run.losses]
    return {**found, "seconds": float(f"{run.seconds:.12g}"), "spans": spans, "losses": losses}


def predicted(config: ps.Config) -> dict[str, Any]:
    told = cost.predict(Pull(), config, CALIBRATION)
    return {
        "seconds": float(f"{told.seconds_per_step:.9g}"),
        "interval": [float(f"{bound:.9g}") for bound in told.interval_s],
        "spans": {name: float(f"{seconds:.9g}") for name, seconds in sorted(told.spans.items())},
        "bytes": [told.bytes_sent, told.bytes_received],
    }


def threaded(config: ps.Config) -> dict[str, Any]:
    found, _ = trained(config, ps.Threads())
    return found


CLOCKS: dict[str, Callable[[ps.Config], dict[str, Any]]] = {
    "simulated": simulated,
    "predicted": predicted,
    "threads": threaded,
}


def told(name: str, clock: str) -> dict[str, Any]:
    """As JSON keeps it."""
    config = CONFIGS[name].from_dict({**CONFIGS[name].to_dict(), "steps": STEPS, "batch_size": 4})
    found: dict[str, Any] = json.loads(json.dumps(CLOCKS[clock](config)))
    return found


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_has_changed(name: str, clock: str) -> None:
    if clock == "threads" and name in TIMED:
        pytest.skip("the order in which threads arrive decides here")
    golden = json.loads(GOLDEN.read_text())[name][clock]
    assert told(name, clock) == golden


if __name__ == "__main__":
    golden = {
        name: {clock: told(name, clock) for clock in CLOCKS if not (clock == "threads" and name in TIMED)}
        for name in CONFIGS
    }
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
