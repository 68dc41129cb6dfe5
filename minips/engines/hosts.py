"""Servers and workers on separate hosts: network namespaces of this machine, joined by the kernel's network.

The fork server of `Processes` creates a user namespace, in which an ordinary user may create networks. In it, the fork
server creates a network with a bridge for each switch of the topology. Each forked child creates its own network
namespace, and a veth pair from it to its bridge. A token bucket at each end of a link enforces its rate in each
direction. The kernel provides TCP and the queues. This needs no root rights, and changes nothing outside these
namespaces. They end, with everything in them, with their last process.
"""

import ctypes
import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from minips.core.config import Config
from minips.engines.base import Engine, TrainingJob
from minips.engines.local import START_S, RunSupervisor
from minips.engines.processes import start_children
from minips.engines.queues import NEWNET, Rows, watch
from minips.engines.supervisor import FAREWELL_S, Child, ControlPipe, Supervisor, multiprocess
from minips.machines.topology import Own, Star, Topology, Tree, TwoRacks
from minips.results.run import Run
from minips.stage import StageField, option, register
from minips.stages.transports.network import NetworkTransport
from minips.words import message_of

PACKET_BYTES = 1514
"""A full Ethernet frame as the kernel counts it: 1,500 bytes plus a header of 14."""
UNMADE_S = 1e-4
"""The longest link latency, in seconds, that is left out if the kernel cannot simulate it."""
_NEWUSER, _PDEATHSIG = 0x10000000, 1
_INSTEAD = "Use engine=Simulated(topology=…), which needs no rights; or engine=Processes() and Config.link=Link(…)."
_REFUSED = {
    "ring": "they do not forward what others send",
    "fattree": "its links near the root would need more speed than one machine has",
    "own": "its links may have any kind and form loops",
}
_FORBIDDING = {
    "user.max_user_namespaces": "0",
    "user.max_net_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}


@register
@dataclass(frozen=True)
class Hosts(Engine):
    """Runs each server and each worker on its own host, a network namespace of this machine. Needs Linux, not root.

    The ``topology`` is a `Star`, `Tree` or `TwoRacks`, as for `Simulated`. Its rates count whole frames: 1,448 of 1,514
    bytes belong to a message. The kernel's TCP runs over it, so queues overflow at ``buffer_bytes``, and flows
    sometimes share a link unfairly. With buffers as large as the default, few packets are lost; a real switch has 50 to
    200 kB per port, and a host more (``host_buffer_bytes``). The kernel's netem adds latency and loss. If the kernel
    lacks netem, a latency of up to 0.1 ms per link is left out, and anything more is refused. Above about 200 Mbit/s
    two cores limit the speed, not the network, as `cost.predict` (``engine=``) says. The run's events describe the
    network, and report the round-trip time of a small packet.

    The transport must work over a network: tcp, http, zmq, grpc, pyro or thrift. This network is private, so it needs
    no TLS. Raises RuntimeError, with the reason, if this machine does not allow hosts.
    """

    name = "hosts"
    apart = "network"
    faults: ClassVar[tuple[str, ...]] = ("kill",)
    requires: ClassVar[tuple[str, ...]] = ("pyroute2", "networkx")
    extra = "hosts"
    topology: StageField[Topology | None] = option(None, "the network; None: a star of 100 Mbit/s")
    buffer_bytes: int = option(
        4_000_000, "limit on the bytes queued at each end of a link", minimum=2 * PACKET_BYTES, step=1, unit="byte"
    )
    congestion: str = option("reno", "the congestion control of TCP on every host, by the kernel's name")
    host_buffer_bytes: int | None = option(
        None, "the same limit at hosts' own ends; None: buffer_bytes", minimum=2 * PACKET_BYTES, step=1, unit="byte"
    )
    watch_s: float | None = option(
        None, "seconds between two readings of all queues, for `Run.queues`; None: they are not read", above=0, unit="s"
    )

    def __post_init__(self) -> None:
        if hasattr(self.topology, "edges"):
            object.__setattr__(self, "topology", Own(self.topology))
        super().__post_init__()
        if type(self.topology) not in (type(None), Star, Tree, TwoRacks):
            why = _REFUSED.get(getattr(self.topology, "name", ""), "minips does not know how to make them")
            raise ValueError(
                f"Hosts cannot be {self.topology!r}: {why}. Use Star(), Tree() or TwoRacks(); or Simulated(topology=…)."
            )

    def check(self, config: Config) -> None:
        self.transport(config)

    def run(self, job: TrainingJob) -> Run:
        transport, (here, there) = self.transport(job.config), multiprocess().Pipe()
        start = partial(self.start, transport.scheme, watching=there)
        with closing(there), RunSupervisor(start, job) as supervisor, closing(here):  # closed first, which ends a watch
            run = supervisor.run()
            if self.watch_s:
                run.queues = _queues(here, supervisor.began)
        run.events[:0] = [(0.0, fact) for child in supervisor.children for fact in child.received.get("host", [()])[0]]
        return run

    @property
    def network(self) -> Any:
        """Return the topology; by default, a star of 100 Mbit/s."""
        return self.topology or Star(1e8)

    def transport(self, config: Config) -> NetworkTransport:
        """Return the config's transport. Raise ValueError if it does not use a network, or if the config has a link."""
        if not isinstance(config.transport, NetworkTransport):
            over = "Use tcp, http, zmq, grpc, pyro or thrift."
            raise ValueError(f"Only a network joins Hosts; got transport={config.transport!r}. {over}")
        if config.link:
            instead = f"Use link=None, and Hosts(Star(bandwidth_bps={config.link.bandwidth_bps:g}))."
            raise ValueError(f"Hosts have a network: with {config.link!r} there would be two links. {instead}")
        return config.transport

    def graph(self, workers: int, servers: int) -> Any:
        """Return the network as `Topology.graph` draws it, but with the link latency measured between two temporary
        hosts (beyond the loopback's). Raise RuntimeError, with the reason, if no host can be made.
        """
        return self.measured_topology().graph(workers, servers)

    def measured_topology(self) -> Topology:
        """Return the topology with its measured latency, as in `graph`. Takes two seconds."""
        network = self.network
        pair = replace(self, topology=Star(network.bandwidth_bps, network.latency_s, network.loss))
        with Supervisor(partial(pair.start, "tcp")) as supervisor:
            facts = [supervisor.receive(child, "host", START_S) for child in supervisor.start("server 0", "worker 0")]
        return cast(Topology, replace(network, latency_s=facts[1][1] / 4))

    def start(self, scheme: str, *names: str, watching: Any = None) -> list[Child]:
        """Start a child on its own host for each name. Its first word is ``host``, with facts about the network. The
        pipe ``watching`` gets the rows of the queues if ``watch_s`` is set: see `watch`.
        """
        if sys.platform != "linux":
            raise RuntimeError(f"Hosts are network namespaces of Linux, and this is {sys.platform}. {_INSTEAD}")
        network = HostNetwork(self, names, watching if self.watch_s else None)
        children = start_children(names, network.fork)
        if watching:
            watching.close()
        for child in children:
            child.address = f"{scheme}://{network.addresses[child.who]}:0"
        return children


def _queues(pipe: Any, began: float) -> Rows:
    """Return the rows of the queues, in seconds since the run began. Empty if they do not come."""
    with suppress(OSError, EOFError):
        pipe.send("stop")
        if pipe.poll(FAREWELL_S):
            return {end: [(at - began, *row) for at, *row in rows] for end, rows in pipe.recv().items()}
    return {}


def lacking() -> str:
    """Return why hosts cannot be made here, as a sentence, or an empty text. Creates two hosts and shuts them down."""
    try:
        Hosts().graph(1, 1)
    except (RuntimeError, ModuleNotFoundError) as error:
        return message_of(error).removeprefix("server 0 failed: ")
    return ""


def retransmissions() -> dict[str, int]:
    """Return the packets that TCP has sent again, by network of this process's hosts: TcpRetransSegs of RFC 4022."""
    own, found = Path("/proc/self/ns/net").readlink(), dict[str, int]()
    for process in _descendants("self"):
        with suppress(OSError, ValueError):  # it has just ended
            network = Path("/proc", process, "ns/net").readlink()
            if network != own:
                rows = Path("/proc", process, "net/snmp").read_text().splitlines()
                names, values = (row.split() for row in rows if row.startswith("Tcp:"))
                found[str(network)] = int(values[names.index("RetransSegs")])
    return found


def _descendants(process: str) -> Iterator[str]:
    with suppress(OSError):
        for task in Path("/proc", process, "task").iterdir():
            for child in (task / "children").read_text().split():
                yield child
                yield from _descendants(child)


class HostNetwork:
    """The network of a run, planned in the run's process, and created in the fork server and its children."""

    def __init__(self, hosts: Hosts, names: Sequence[str], watching: Any = None) -> None:
        topology: Any = hosts.network
        workers = sum(name.startswith("worker") for name in names)
        links = [(*link, topology.bandwidth_bps)[:3] for link in topology.links(workers, len(names) - workers)]
        self._hosts, self._topology, self._names = hosts, topology, list(names)
        self.addresses = {name: f"10.77.{k >> 8}.{k & 255}" for k, name in enumerate(names, 1)}
        self._cables = {host: (switch, bits) for host, switch, bits in links if host in self.addresses}
        self._trunks = [link for link in links if link[0] not in self.addresses]
        switches = dict.fromkeys(end for link in links for end in link[:2] if end not in self.addresses)
        self._bridges = {switch: f"switch{k}" for k, switch in enumerate(switches)}
        self._made = self._netem = False
        self._watching, self._processes = watching, dict[int, str]()

    def fork(self, name: str, pipe: Any) -> int:
        """In the fork server, fork a child onto its host. The child's first word carries facts about the network, or
        the error. Raise RuntimeError, with the reason, if the network cannot be created.
        """
        try:
            if not self._made:
                self._make()
            pid = os.fork()
        except Exception as error:
            raise RuntimeError(_sentence(error)) from error
        self._processes[pid] = name
        if self._watching and pid == 0:
            self._watching.close()
        elif self._watching and name == self._names[-1]:  # the fork server forks no more, so it may start a thread
            parts = self._watching, self._hosts.watch_s, *self._queues()
            threading.Thread(target=watch, args=parts, name="minips-queues").start()
        if pid == 0:
            try:
                ControlPipe(pipe).send("host", self._enter(name))
            except BaseException as error:
                ControlPipe(pipe).send("failed", (_sentence(error), ""))
                os._exit(1)
        return pid

    def _queues(self) -> tuple[dict[str, str], dict[int, str]]:
        """Map each interface of the switches, and each host's process, to its queue, such as "switch → worker 0"."""
        ports = {f"port{k}": f"{self._cables[name][0]} → {name}" for k, name in enumerate(self._names)}
        trunks = {
            f"trunk{k}{end}": f"{one} → {other}"
            for k, (*ends, _) in enumerate(self._trunks)
            for end, one, other in (("a", *ends), ("b", *ends[::-1]))
        }
        own = {process: f"{name} → {self._cables[name][0]}" for process, name in self._processes.items()}
        return {**ports, **trunks}, own

    def _make(self) -> None:
        """Create the switches and the links between them, in fresh namespaces."""
        from pyroute2 import IPRoute, NetlinkError

        user, group = os.geteuid(), os.getegid()
        _unshare(_NEWUSER | NEWNET)
        for file, text in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
            Path("/proc/self", file).write_text(text)
        topology = self._topology
        with IPRoute() as kernel:
            with suppress(NetlinkError):
                kernel.tc("add", "netem", _index(kernel, "lo"), delay=1)
                self._netem = True
            if (topology.loss or topology.latency_s > UNMADE_S) and not self._netem:
                least = f"without it, loss must be 0 and latency_s at most {UNMADE_S:g}"
                raise RuntimeError(f"this kernel has no netem, to make {topology!r}: {least}")
            for bridge in self._bridges.values():
                kernel.link("add", ifname=bridge, kind="bridge", state="up")
            for k, (*ends, bits) in enumerate(self._trunks):
                kernel.link("add", ifname=f"trunk{k}a", kind="veth", peer=f"trunk{k}b")
                for end, switch in zip("ab", ends, strict=True):
                    self.plug(kernel, f"trunk{k}{end}", bits, self._bridges[switch])
        self._made = True

    def _enter(self, name: str) -> tuple[list[str], float]:
        """Move this process to its own host, and connect the host to its switch. Return the result of `_facts`."""
        from pyroute2 import IPRoute

        number, (switch, bits) = self._names.index(name), self._cables[name]
        with IPRoute() as switches:  # stays in the namespace in which it was opened
            _unshare(NEWNET)
            _set_tcp(self._hosts.congestion)
            with IPRoute() as kernel:
                port = {"ifname": f"port{number}", "net_ns_pid": os.getppid()}
                kernel.link("add", ifname="eth0", kind="veth", peer=port)
                kernel.link("set", ifname="lo", state="up")
                kernel.addr("add", index=_index(kernel, "eth0"), address=self.addresses[name], prefixlen=16)
                self.plug(switches, f"port{number}", bits, self._bridges[switch])
                self.plug(kernel, "eth0", bits)
            return self._facts(switches) if number == len(self._names) - 1 else ([], 0.0)

    def plug(self, kernel: Any, end: str, bits: float, bridge: str | None = None) -> None:
        """Set up one end of a link."""
        index, rate, topology, limit = _index(kernel, end), bits / 8, self._topology, self._limit(bridge)
        # It holds two packets, or the bytes that a late timer lets pass together; a larger one would exceed the rate.
        burst = max(2 * PACKET_BYTES, int(rate * 1e-4))
        kernel.tc("add", "tbf", index, handle="1:", rate=int(rate), burst=burst, limit=limit)
        if self._netem and (topology.latency_s or topology.loss):
            packets = int((limit + rate * topology.latency_s) / PACKET_BYTES) + 1
            shape = {"delay": int(topology.latency_s * 1e6), "loss": 100 * topology.loss, "limit": packets}
            kernel.tc("add", "netem", index, parent="1:1", handle="2:", **shape)
        kernel.link("set", index=index, state="up", master=_index(kernel, bridge) if bridge else 0)

    def _limit(self, bridge: str | None) -> int:
        """Return the limit on the bytes queued at one end of a link: a host's own end has no bridge."""
        hosts = self._hosts
        return hosts.buffer_bytes if bridge else hosts.host_buffer_bytes or hosts.buffer_bytes

    def _facts(self, switches: Any) -> tuple[list[str], float]:
        """Return facts about the network, and the round-trip time of a packet to the first host, in seconds, beyond
        that of a packet to this host itself. Only the last host measures, once the first host is ready.
        """
        topology, first, last = self._topology, self._names[0], self._names[-1]
        deadline = time.monotonic() + START_S / 2
        while not switches.link_lookup(ifname="port0", operstate="UP") and time.monotonic() < deadline:
            time.sleep(0.005)
        seconds, own_s = (min(_round_trip_s(self.addresses[host]) for _ in range(10)) for host in (first, last))
        queue = f"at most {self._hosts.buffer_bytes:,} bytes wait at each end of a link"
        if self._hosts.host_buffer_bytes:
            queue += f", at a host's own {self._hosts.host_buffer_bytes:,}"
        facts = [f"{len(self._names)} hosts on {topology!r}; {queue}; congestion control {self._hosts.congestion}"]
        if topology.latency_s and not self._netem:
            facts.append(f"the latency of {topology.latency_s * 1e3:g} ms a link is left out: this kernel has no netem")
        facts.append(f"a small packet from {last} to {first} and back takes {seconds * 1e3:.3f} ms")
        return facts, max(0.0, seconds - own_s)


def _round_trip_s(address: str) -> float:
    """Return a packet's round-trip time, in seconds. Nothing listens at port 1, so the host refuses immediately."""
    began = time.perf_counter()
    with suppress(ConnectionRefusedError):
        socket.create_connection((address, 1), FAREWELL_S).close()
    return time.perf_counter() - began


def _index(kernel: Any, name: str) -> int:
    """Return the number of a network interface."""
    return int(kernel.link_lookup(ifname=name)[0])


def _set_tcp(congestion: str) -> None:
    """Set this namespace's congestion control, and suppress the packets of IPv6's neighbour discovery."""
    with suppress(OSError):
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    try:
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(congestion)
    except OSError:
        allowed = " or ".join(_setting("net.ipv4.tcp_allowed_congestion_control").split())
        raise RuntimeError(f"congestion may be {allowed} here, not {congestion!r}") from None


def _unshare(flags: int) -> None:
    """Enter fresh namespaces of these kinds, and end as soon as the parent does. Raise OSError if that is forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    libc.prctl(_PDEATHSIG, signal.SIGKILL)


def _sentence(error: BaseException) -> str:
    """Return a sentence that says why hosts cannot be made and, if rights are lacking, which setting forbids it."""
    why, number = message_of(error), getattr(error, "errno", None) or getattr(error, "code", None)  # code: netlink
    if number:
        call = getattr(error, "filename", None) or "netlink"
        why = f"{call}: {os.strerror(number)}"
        if number in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS, errno.ENOSYS):
            by = next((f"{name} = {value}" for name, value in _FORBIDDING.items() if _setting(name) == value), "")
            why = f"{by} forbids it ({call})" if by else f"a container or a limit of this machine forbids it ({why})"
    return f"Hosts cannot be made here: {why}. {_INSTEAD}"


def _setting(name: str) -> str:
    """Return the value of a kernel setting; an empty text if the setting does not exist."""
    with suppress(OSError):
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    return ""
