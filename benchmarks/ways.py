"""Round trips of a message (see `minips.lab.measure.pairs`) over minips as a whole, and over other systems.

Each side runs in its own process, which imports grpc or torch when it opens the side.
"""

import secrets
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np

from minips.core.config import Config
from minips.drivers.connecting import connect
from minips.drivers.server import Server
from minips.lab.measure.pairs import LR, WAIT_S, Trip, answering, numbers
from minips.lab.measure.with_torch import SERVER, member
from minips.stage import Array, Tensors
from minips.stages.optimizers import SGD
from minips.stages.transports import Transport

PART_S = 3.0
"""How long the block of torch's server waits for its thread to end."""
_answer: Any = None
"""The function behind `_answer_torch`, in the server's process."""


@contextmanager
def memcpy(address: None, *, values: int) -> Iterator[Trip]:
    """One copy there and one back, within one process."""
    here = numbers(values)
    there = np.empty_like(here)

    def make() -> Array:
        np.copyto(there, here)
        np.copyto(here, there)
        return here

    yield make


@contextmanager
def minips_server(*, transport: Transport, values: int) -> Iterator[tuple[str, str]]:
    """A parameter server with one tensor, for one worker."""
    with Server({"w": np.zeros(values, np.float32)}, _config(transport)).serve() as server:
        yield server.address, server.token


@contextmanager
def minips(address: tuple[str, str], *, transport: Transport, values: int) -> Iterator[Trip]:
    """A push and a pull in one."""
    gradient: Tensors = {"w": numbers(values)}
    with connect(address[0], _config(transport), token=address[1]) as client:
        yield lambda: client.push_pull(gradient).result(WAIT_S)["w"]


def _config(transport: Transport) -> Config:
    return Config(workers=1, transport=transport, optimizer=SGD(lr=LR))


@contextmanager
def pickle_server(*, values: int, applies: bool, folder: Path) -> Iterator[Any]:
    """The standard library's multiprocessing pipe, which pickles arrays."""
    with pipe_listener(folder) as listener:

        def serve() -> None:
            answer = answering(values, applies)
            with suppress(EOFError, OSError), listener.accept() as pipe:
                while True:
                    pipe.send(answer(pipe.recv()))

        threading.Thread(target=serve, daemon=True).start()
        yield listener.address


def pipe_listener(folder: Path) -> connection.Listener:
    """The listener of a multiprocessing pipe between two processes that are started separately."""
    return connection.Listener(None if sys.platform == "win32" else str(folder / f"pipe-{secrets.token_hex(4)}"))


@contextmanager
def pickle(address: Any, *, values: int, applies: bool, folder: Path) -> Iterator[Trip]:
    """The other end of `pickle_server`."""
    x = numbers(values)
    with connection.Client(address) as pipe:

        def make() -> Any:
            pipe.send(x)
            return pipe.recv()

        yield make


_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@contextmanager
def grpc_server(*, values: int, applies: bool) -> Iterator[int]:
    """GRPC with a generic handler, from bytes to bytes."""
    import grpc

    answer = answering(values, applies)

    def handle(request: bytes, context: Any) -> bytes:
        return answer(np.frombuffer(request, np.float32)).tobytes()

    method = grpc.unary_unary_rpc_method_handler(handle)
    handler = grpc.method_handlers_generic_handler("benchmarks", {"Trip": method})
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, [handler], options=_UNLIMITED)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        server.stop(None).wait(WAIT_S)


@contextmanager
def grpc(port: int, *, values: int, applies: bool) -> Iterator[Trip]:
    """The other end of `grpc_server`."""
    import grpc

    x = numbers(values)
    options = [*_UNLIMITED, ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        call = channel.unary_unary("/benchmarks/Trip")
        yield lambda: np.frombuffer(call(x.tobytes(), timeout=WAIT_S), np.float32)


@contextmanager
def torch_server(*, values: int, folder: Path) -> Iterator[None]:
    """The server: parameters that `_answer_torch` steps. A thread waits for the caller."""
    global _answer
    _answer = answering(values, applies=True)
    over = threading.Event()

    def serve() -> None:
        with member(SERVER, 0, 2, folder):
            over.wait()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield None
    over.set()
    thread.join(PART_S)


@contextmanager
def torch(address: None, *, values: int, folder: Path) -> Iterator[Trip]:
    """The other end of `torch_server`."""
    import torch

    gradient = torch.from_numpy(numbers(values))
    with member("worker", 1, 2, folder) as rpc:
        yield lambda: rpc.rpc_sync(SERVER, _answer_torch, args=(gradient,), timeout=WAIT_S)


def _answer_torch(gradient: Any) -> Any:
    import torch

    return torch.from_numpy(_answer(gradient.numpy()))
