"""The Python of a small round trip, in µs: a client's and a server's sessions in one thread, without a socket.

One thread carries out the client and, where it would read its socket, the server: frames go through both framers, and
from memory to memory. 1,000 values of float32, exact, BSP of one worker; the processor time of 20,000 push_pulls.

    python tests/python_us.py            # of this checkout
    python tests/python_us.py OTHER      # ten pairs with another checkout's, who begins changing: its share of that

The transport below is the adapter. It stands on `Wire`, `StreamChannel` and `answer_of` alone, which are the same in
both commits that were compared with it.
"""

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

TRIPS, VALUES, PAIRS = 20_000, 1_000, 10


def trip_us(trips: int = TRIPS) -> float:
    """Microseconds of the processor for a push_pull."""
    import numpy as np

    import minips as ps
    from minips.stages.transports import Channel, Connection, Endpoint, Transport
    from minips.stages.transports.base import service_of
    from minips.stages.transports.framing import Framer, pieces
    from minips.stages.transports.streams import StreamChannel, answer_of
    from minips.stages.transports.wire import Wire

    def pour(tag: int, frames: list[bytes], into: Framer) -> None:
        """What a socket does: the bytes of one side become those of the other."""
        body = b"".join(pieces(tag, frames))
        into.room[: len(body)] = body
        into.advance(len(body))

    class Turns(Wire):
        """The client's end of a wire, whose other end is carried out when an answer is wanted."""

        def __init__(self, connection: Connection) -> None:
            self.connection, self.there, self.here = connection, Framer(2**20), Framer(2**20)

        def send(self, tag: int, frames: list[bytes]) -> None:
            pour(tag, frames, self.there)

        def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, list[bytes]]:
            if message := self.there.message():
                pour(*answer_of(self.connection, message[1], *reply), self.here)
            if message := self.here.message():
                return message
            raise EOFError

        def shutdown(self) -> None:
            pass

        close = shutdown

    class Here(Endpoint):
        address = "turns://"

        def close(self) -> None:
            pass

    services = []
    reply = [print][: len(signature(answer_of).parameters) - 2]  # earlier commits have no deferred answers

    @dataclass(frozen=True)
    class ByTurns(Transport):
        """Client and server in one thread."""

        name = scheme = "turns"

        def serve(self, handler: object, address: str | None = None, token: str = "") -> Endpoint:
            services.append(service_of(handler))
            return Here()

        def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
            return StreamChannel(Turns(services[-1].connection()), address)

    config = ps.Config(workers=1, transport=ByTurns())
    gradient = {"w": np.random.default_rng(0).standard_normal(VALUES).astype(np.float32)}
    with (
        ps.Server({"w": np.zeros(VALUES, np.float32)}, config, silence_s=1e6).serve() as server,
        ps.connect(server.address, config, token=server.token) as client,
    ):
        for measured in (trips // 10, trips):
            began = time.process_time()
            for _ in range(measured):
                client.push_pull(gradient, loss=0.5).result(10)
            spent = time.process_time() - began
        assert client.clock == server.shard.applied == trips + trips // 10
    return spent / trips * 1e6


def of(checkout: Path) -> float:
    """The figure of a checkout, in a process of its own."""
    told = subprocess.run(
        [sys.executable, __file__, "--here"],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(told.stdout)


if __name__ == "__main__":
    mine = Path(__file__).resolve().parents[1]
    if sys.argv[1:] == ["--here"]:
        print(trip_us())
    elif sys.argv[1:]:
        shares = []
        for pair in range(PAIRS):
            trees = [mine, Path(sys.argv[1]).resolve()][:: 1 - 2 * (pair % 2)]
            took = dict(zip(trees, map(of, trees), strict=True))
            shares.append(took[mine] / took[Path(sys.argv[1]).resolve()])
            print(f"{took[mine]:.1f} µs here, {took[Path(sys.argv[1]).resolve()]:.1f} µs there: {shares[-1]:.3f}")
        low, middle, high = statistics.quantiles(shares, n=4)
        print(f"median {middle:.3f}, quartiles {low:.3f} and {high:.3f}, of {PAIRS} pairs")
    else:
        print(f"{of(mine):.1f} µs")
