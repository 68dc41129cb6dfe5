"""Runs servers and workers on the machines of a Ray cluster.

Ray places the processes, starts them and reports which ones have died. Each server and each worker is an actor that
runs the same role as a process of `Processes`. Ray carries the roles (once, with each worker's rows), the words between
a role and its supervisor, and the reports. minips' own tcp carries gradients and parameters.
"""

import logging
import math
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from minips.core.config import Config
from minips.core.exchange import PS
from minips.engines.actor import Actor, ActorInfo
from minips.engines.base import NEVER, Engine, Restarts, TrainingJob
from minips.engines.local import RunSupervisor
from minips.engines.shipping import ship
from minips.engines.supervisor import FAREWELL_S, Child, handling, multiprocess
from minips.results.run import Run
from minips.stage import option, register
from minips.stages.transports import Tcp
from minips.stages.transports.network import netloc
from minips.stages.transports.patience import Limit
from minips.words import message_of

PLACED_S, READY_S = 60.0, 60.0
"""The seconds that Ray may take to reserve CPUs for all the actors, and then to start them."""
POLL_S = 1.0
"""The seconds that one call for an actor's words waits for the first word."""
SILENCE_S, CONNECT_S = 2.0, 2.0
"""The seconds that an actor may be silent before its node is tested, and that a connection to the node may take."""
TRIPS = 10
"""The number of round trips that measure the offset of a machine's clock."""
_TOKEN = secrets.token_hex(32)
"""The authentication token of every Ray instance that this process starts."""


@register
@dataclass(frozen=True)
class Ray(Engine):
    """Each server and each worker in its own actor on a Ray cluster, spread over the nodes to keep servers apart.

    An ``address`` (``host:port`` or ``auto``) names a cluster to join, which the run leaves as it was. None joins the
    cluster to which this process is connected, or that ``RAY_ADDRESS`` names, or that was started on this machine. If
    none exists, or with the address ``local``, Ray starts on this machine, on the loopback only, and ends with the run.
    Every node needs this version of minips and the modules that the problem imports; code from a notebook is sent.

    Workers connect to servers by tcp at their nodes' addresses, on free ports. With ``tls``, unless
    ``Config.transport`` names certificate files, each server makes a certificate for the run; the certificate's key
    never leaves it. The run's token travels over Ray, and is as secret as Ray's connections.

    The death of a worker or its node is an event; a server's death ends the run with RuntimeError. With ``restart``, an
    actor that dies is started again in its place, and goes on: the folder of `train`'s ``checkpoint``, which its node
    needs to reach, then also keeps the servers' certificates and keys. The times of spans
    and losses follow this machine's clock: the offsets of other machines' clocks are measured once, with an error of at
    most half a short round trip. The messages of the run correct those of spans: ``Run.clock_error_s`` is what is left.
    """

    name = "ray"
    apart = "network"
    faults: ClassVar[tuple[str, ...]] = ("kill",)
    requires: ClassVar[tuple[str, ...]] = ("ray", "cryptography")
    extra = "ray"
    address: str | None = option(None, "the Ray cluster to join; None: an existing one, if any; local: a new one")
    tls: bool = option(True, "encrypt what workers and servers exchange")
    cpus: float = option(1.0, "CPUs that Ray sets aside for each server and each worker", above=0)
    restart: int = option(0, "how often each actor that has died is started again", minimum=0, step=1)
    rejoin_s: float = option(10.0, "with restart: how long the others wait for a dead worker", above=0, unit="s")

    def check(self, config: Config) -> None:
        if not isinstance(config.transport, Tcp):
            raise ValueError(
                f"Ray places servers and workers on several machines, which tcp connects; got transport="
                f"{config.transport!r}. Use transport='tcp', or engine=Processes()."
            )

    def run(self, job: TrainingJob) -> Run:
        config, restarts = job.config, Restarts(self.restart, self.rejoin_s) if self.restart else NEVER
        if self.restart and not job.checkpoint:
            raise ValueError(
                f"Ray(restart={self.restart}) keeps the run in a folder that all nodes reach. Name it: checkpoint=…"
            )
        servers = config.servers if isinstance(config.exchange, PS) else 0
        with (
            connected(self.address, servers + config.workers, self.cpus) as ray,
            _Placement(ray, self, job, servers) as placement,
            RunSupervisor(placement.start, job, restarts) as supervisor,
        ):
            run = supervisor.run()
            run.events[:0] = placement.events
        return run.align(placement.machines)


@contextmanager
def connected(address: str | None, actors: int, cpus: float) -> Iterator[Any]:
    """Connect the module ray to the cluster at ``address`` (see `Ray`), or to one that starts here with room for
    ``actors`` actors and ends with the block. An existing connection is used and stays open.
    """
    import ray

    if address not in (None, "auto", "local") and not re.fullmatch(r"[^/]+:\d+", address):
        raise ValueError(
            f"Ray takes the address of a cluster's head (10.0.0.1:6379), or auto, or local; got {address!r}."
        )
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            advice = "Use Ray(), or call ray.shutdown() before."
            raise ValueError(f"This process is connected to the Ray cluster at {here}, not to {address}. {advice}")
        yield ray
        return
    with ExitStack() as stack:
        stack.enter_context(_environment(RAY_USAGE_STATS_ENABLED="0"))
        address = _to_join(address)
        given: dict[str, Any] = {"address": address, "logging_level": logging.ERROR}
        if address == "local":
            from ray._private import ray_constants

            stack.callback(_reload_environment)
            stack.enter_context(_environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_TOKEN, RAY_worker_niceness="0"))
            _reload_environment()
            # Ray listens on the loopback only if clusters are disabled; it reads that setting at its import.
            stack.enter_context(_environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0"))
            stack.callback(setattr, ray_constants, "ENABLE_RAY_CLUSTER", ray_constants.ENABLE_RAY_CLUSTER)
            ray_constants.ENABLE_RAY_CLUSTER = False
            cores = math.ceil(max(actors * cpus, os.cpu_count() or 1))
            given |= {"num_cpus": cores, "include_dashboard": False}
            if sys.platform == "linux":  # elsewhere its sockets' paths may become too long
                folder = tempfile.TemporaryDirectory(prefix="minips-", ignore_cleanup_errors=True)
                given["_temp_dir"] = stack.enter_context(folder)
        stack.callback(ray.shutdown)
        with handling(None, signal.SIGINT, signal.SIGTERM):  # Ray sets its own handler
            try:
                ray.init(log_to_driver=False, **given)
            except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
                why = message_of(error).strip().rstrip(".")
                if address == "local":
                    raise RuntimeError(f"Ray cannot start on this machine: {why}.") from error
                raise RuntimeError(
                    f"The Ray cluster at {address} cannot be joined: {why}. Do all machines have the same "
                    "token (RAY_AUTH_TOKEN) and the same versions of Ray and Python?"
                ) from error
        yield ray


def _to_join(address: str | None) -> str:
    """Return a cluster's address, or ``local``. RuntimeError if no cluster answers: Ray would try for minutes."""
    found, answers = found_cluster()
    if address is None:
        address = os.environ.get("RAY_ADDRESS") or (found if answers else "local")
    if address == "auto":
        if not found:
            raise RuntimeError("No Ray cluster is found on this machine. Start one: ray start --head.")
        address = found
    if address != "local" and not (answers if address == found else accepts(address)):
        raise RuntimeError(
            f"No Ray cluster can be joined at {address}: nothing accepts connections there. `ray start --head` on that "
            "machine starts one; or a firewall may block it."
        )
    return address


@contextmanager
def _environment(**wanted: str) -> Iterator[None]:
    """Set the variables that are not set yet, for this process and its children, until the block ends."""
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _reload_environment() -> None:
    """Make Ray, which is already imported, read its token and authentication mode from the environment again."""
    with suppress(ImportError, AttributeError):  # Ray versions without tokens
        raylet: Any = import_module("ray._raylet")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
        raylet.Config.initialize("")


def found_cluster() -> tuple[str, bool]:
    """Return the address of the Ray cluster that ``RAY_ADDRESS`` names or that this user started on this machine, and
    whether it accepts connections; the address is empty if none is found. Does not query or import Ray.
    """
    places = [os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"), "/tmp", tempfile.gettempdir()]
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("auto", "local"):
        address = ""
    for place in filter(None, places):
        file = Path(place, "ray", "ray_current_cluster")
        with suppress(OSError):
            if not address and (os.name == "nt" or file.stat().st_uid == os.getuid()):
                address = file.read_text(encoding="utf-8").strip()
    return address, accepts(address)


def accepts(address: str) -> bool:
    """Return True if something accepts connections at ``host:port``."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        return True
    return False


class _Placement:
    """Reserves CPUs on a Ray cluster for a run's servers and workers, and starts their actors, in a ``with`` block."""

    def __init__(self, ray: Any, engine: Ray, job: TrainingJob, servers: int) -> None:
        self.ray, self._engine, self._config, self._servers, self._stop = ray, engine, job.config, servers, job.stop
        self._count = servers + job.config.workers
        self._group: Any = None
        self.events: list[tuple[float, str]] = []
        self._keep = str(job.checkpoint.path.resolve()) if job.checkpoint and engine.restart else ""
        self._places: dict[str, tuple[int, str]] = {}
        """Each party's bundle and node."""
        self._authorities, self._offsets = "", dict[str, float]()
        self.nodes = {node["NodeID"]: (node["NodeManagerAddress"], node["NodeManagerPort"]) for node in ray.nodes()}

    def __enter__(self) -> Self:
        from ray.util.placement_group import placement_group

        cpus, ray = self._engine.cpus, self.ray
        self._group = placement_group([{"CPU": cpus}] * self._count, strategy="SPREAD")
        try:
            if not self._wait(self._group.wait, PLACED_S):
                total, free = (found.get("CPU", 0) for found in (ray.cluster_resources(), ray.available_resources()))
                raise RuntimeError(
                    f"The Ray cluster has no room for {self._count} servers and workers of {cpus:g} CPU each: "
                    f"{free:g} of its {total:g} CPUs are free. Use fewer of them, or fewer CPUs for each: Ray(cpus=…)."
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        from ray.util.placement_group import remove_placement_group

        with suppress(self.ray.exceptions.RayError):
            remove_placement_group(self._group)  # this also ends its actors

    def _wait(self, done: Callable[[float], Any], limit: float) -> bool:
        """Call ``done`` until it returns True. Return False after ``limit`` seconds. Each call waits at most a second,
        so that Ctrl-C can be handled. Raise RuntimeError if the run is stopped.
        """
        left = Limit(limit)
        while not done(left.tick):
            if self._stop():
                raise RuntimeError("The run was stopped before Ray had started its servers and workers.")
            if left.over():
                return False
        return True

    def start(self, *names: str) -> "list[Child]":
        """Start an actor for each name: at first all of them, servers first; later one, in its place. Raise
        RuntimeError if one cannot start.
        """
        if self._places:
            return self._children(names, *self._actors(names))
        config, bundles = self._config, self._bundles()
        if config.link and len({node for _, node in bundles}) > 1:
            raise ValueError(
                f"{config.link!r} delays messages by the clock that one machine's processes share, and these are on "
                "several machines. Use link=None."
            )
        self._places = dict(zip(names, bundles, strict=True))
        actors, infos = self._actors(names)
        self.machines = {who: node for who, (_, node) in self._places.items()}
        self._offsets = self._clock_offsets({node: actor for actor, (_, node) in zip(actors, bundles, strict=True)})
        self._authorities = "".join(info.certificate for info in infos)
        names_on = defaultdict(list)
        for who, info in zip(names, infos, strict=True):
            names_on[info.host].append(who)
        if len(names_on) > 1:
            places = "; ".join(f"{host}: {', '.join(placed)}" for host, placed in names_on.items())
            self.events.append((0.0, f"placed on {places}"))
        return self._children(names, actors, infos)

    def _actors(self, names: Sequence[str]) -> tuple[list[Any], list[ActorInfo]]:
        """Start an actor for each name in its place."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        transport = self._config.transport
        assert isinstance(transport, Tcp)
        encrypts = self._engine.tls and not (transport.certificate or transport.authority)
        make = self.ray.remote(concurrency_groups={"receive": 1, "send": 1})(Actor)
        actors = []
        for who in names:
            where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._places[who][0])
            options = {"num_cpus": self._engine.cpus, "scheduling_strategy": where, "max_restarts": 0}
            serves = encrypts and (who.startswith("server") or not self._servers)
            file = os.path.join(self._keep, f"{who.replace(' ', '-')}.tls") if self._keep else ""
            actors.append(make.options(**options).remote(serves, file))
        return actors, self._started(names, [actor.info.remote() for actor in actors])

    def _children(self, names: Sequence[str], actors: Sequence[Any], infos: Sequence[ActorInfo]) -> "list[Child]":
        return [
            _ActorChild(self, who, actor, info, node, (self._authorities, self._offsets[node]))
            for who, actor, info in zip(names, actors, infos, strict=True)
            for node in [self._places[who][1]]
        ]

    def _bundles(self) -> list[tuple[int, str]]:
        """Return a bundle and its node for each server, then each worker; cycle through nodes to keep servers apart."""
        from ray.util.placement_group import placement_group_table

        of_node = defaultdict(list)
        for bundle, node in sorted(placement_group_table(self._group)["bundles_to_node_id"].items()):
            of_node[node].append((bundle, node))
        return [bundle for turn in zip_longest(*of_node.values()) for bundle in turn if bundle]

    def _started(self, names: Sequence[str], answers: list[Any]) -> list[Any]:
        """Return the first answer of each new actor. Raise RuntimeError if one could not start."""
        ray = self.ray
        self._wait(lambda seconds: not ray.wait(answers, num_returns=len(answers), timeout=seconds)[1], READY_S)
        found = []
        for who, answer in zip(names, answers, strict=True):
            try:
                found.append(ray.get(answer, timeout=0))
            except ray.exceptions.GetTimeoutError:
                raise RuntimeError(f"{who} did not start within {READY_S:g} seconds. Is its node overloaded?") from None
            except ray.exceptions.RayError as error:
                raise RuntimeError(
                    f"{who} could not start on its node: {_last_line(error)}. Is minips, in this version, installed "
                    'on every node: pip install "minips[ray]"?'
                ) from error
        return found

    def _clock_offsets(self, actors: dict[str, Any]) -> dict[str, float]:
        """Return the seconds by which this machine's clock is ahead of each node's. Assumes that the node reads its
        clock in the middle of the shortest round trip (Cristian 1989, "Probabilistic clock synchronization"); an offset
        that is within this method's error counts as 0.
        """
        ray, offsets, error_s = self.ray, dict.fromkeys(actors, 0.0), 0.0
        here = ray.get_runtime_context().get_node_id()
        for node, actor in actors.items():
            trips = []
            for _ in range(0 if node == here else TRIPS):
                began = time.monotonic()
                remote = ray.get(actor.now.remote(), timeout=READY_S)
                trip_s = time.monotonic() - began
                trips.append((trip_s, began + trip_s / 2 - remote))
            trip_s, seconds = min(trips, default=(0.0, 0.0))
            if abs(seconds) > trip_s / 2:
                offsets[node], error_s = seconds, max(error_s, trip_s / 2)
        if error_s:
            self.events.append((0.0, f"clocks of other machines are known to {error_s * 1e3:.1f} ms"))
        return offsets


class _ActorChild(Child):
    """An actor, with a thread that relays its words to the supervisor's pipe."""

    def __init__(
        self, placement: _Placement, who: str, actor: Any, info: ActorInfo, node: str, arguments: tuple[str, float]
    ) -> None:
        here, self._there = multiprocess().Pipe()
        super().__init__(who, here, f"tcp://{netloc(info.host, 0)}")
        self._placement, self._actor, self._node, self._arguments = placement, actor, node, arguments
        self._place = f"process {info.pid} on {info.host}"
        self._how = f"its actor ended, {self._place}"
        self._leaving = threading.Event()
        self._collector = threading.Thread(target=self._collect, name=f"minips-ray-{who}", daemon=True)

    def assign(self, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        self._actor.begin.remote(ship({"role": role, **parts}), *self._arguments)
        self._collector.start()

    def send(self, word: str, value: Any = None) -> None:
        self._actor.send.options(concurrency_group="send").remote(word, value)

    def end(self, timeout: float) -> str:
        self.pipe.close()
        if self._collector.is_alive():
            self._collector.join(timeout)
        self._leaving.set()
        self._placement.ray.kill(self._actor)
        if self._collector.ident:
            self._collector.join(FAREWELL_S)
        self._there.close()
        self.gone = True
        return self._how

    def _collect(self) -> None:
        """Relay the actor's words until it ends."""
        try:
            while (words := self._next()) is not None:
                for word in words:
                    with suppress(OSError):  # the supervisor has stopped reading: drop words until the actor ends
                        self._there.send_bytes(word)
        except self._placement.ray.exceptions.RayError as error:
            self._how = f"its actor was lost, {self._place}: {_last_line(error)}"
        except OSError as error:
            self._how = f"its node does not answer, {self._place}: {message_of(error)}"
        finally:
            self._there.close()

    def _next(self) -> list[bytes] | None:
        """Return the next words, possibly none; None at the end. Raise OSError if the node is gone."""
        ray = self._placement.ray
        answer = self._actor.receive.options(concurrency_group="receive").remote(POLL_S)
        while not ray.wait([answer], timeout=POLL_S + SILENCE_S)[0]:
            if self._leaving.is_set():
                return None
            with suppress(KeyError):
                socket.create_connection(self._placement.nodes[self._node], CONNECT_S).close()
        return cast("list[bytes] | None", ray.get(answer))


def _last_line(error: BaseException) -> str:
    """Return the line of a long Ray error text that states the reason, without advice."""
    line = str(error).strip().splitlines()[-1].strip()
    line = line.rpartition("Worker exit detail: ")[2] or line
    line = re.sub(r"The actor \w{32} is unavailable: ", "", line)
    return re.split(r"(?<=[.:]) (?:Some common causes|The task may)", line)[0].rstrip(".")
