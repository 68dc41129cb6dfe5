"""Runs on hosts: the bits of processes on a real network, what is refused, and that nothing is ever left."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path

import misfits
import networkx
import numpy as np
import psutil
import pytest
from hosts import ALONE, Host, commands, joined, lacking

import minips as ps
from minips.engines import hosts, queues
from minips.stage import missing

ROOT = Path(__file__).parents[1]
PROBLEM = ps.SoftmaxRegression(*ps.datasets.digits())
SMALL = ps.LinearRegression(*misfits.rows())
MANY = {
    "one server": {"servers": 1},
    "two servers": {"servers": 2},
    "a ring": {"exchange": ps.RingAllReduce()},
    "a tree": {"exchange": ps.TreeAllReduce()},
}
PROGRAM = """
import os
from pathlib import Path

import minips as ps
from test_hosts import PROBLEM, config, digest

if __name__ == "__main__":
    run = ps.train(PROBLEM, config(2, "two servers"), engine=ps.Hosts())
    (rights,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)
    print(os.getuid(), rights, digest(run))
"""
GOING = """
import minips as ps
from test_hosts import SMALL

if __name__ == "__main__":
    said = []

    def watch(progress):
        if progress.applied and not said:
            said.append(print("going", flush=True))

    config = ps.Config(workers=2, servers=2, steps=100_000, delays=ps.Delays(0.02))
    ps.train(SMALL, config, engine=ps.Hosts(), progress=watch)
"""
TAKEN_AWAY = ["unshare", "--user", "--map-root-user", "sh", "-c", 'echo $0 > /proc/sys/user/$1 && shift && exec "$@"']


@pytest.fixture(scope="session")
def made_here() -> None:
    """Hosts can be made on this machine."""
    if absent := missing(ps.Hosts):
        pytest.skip(f"{', '.join(absent)} missing")
    if why := lacking():
        pytest.skip(why)
    bucket = "tc qdisc add dev one root tbf rate 10mbit burst 3028 limit 50000"
    made = f"ip link add one type veth peer name two && ip link add name three type bridge && {bucket}"
    done = subprocess.run([*ALONE, "sh", "-c", made], capture_output=True, text=True, timeout=20)
    if done.returncode:
        pytest.skip(done.stderr)
    assert not hosts.lacking()


@pytest.fixture
def own_namespace() -> None:
    """A user namespace can be made, whose limits are the test's."""
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    done = subprocess.run([*TAKEN_AWAY, "9", "max_net_namespaces", "true"], capture_output=True, text=True, timeout=20)
    if done.returncode:
        pytest.skip(done.stderr)


def config(steps: int, exchange: str) -> ps.Config:
    return ps.Config(workers=4, steps=steps, batch_size=32, **MANY[exchange])


def digest(run: ps.Run) -> str:
    return hashlib.sha256(b"".join(p.tobytes() for p in run.params.values())).hexdigest()


@cache
def of_processes(steps: int, exchange: str) -> str:
    return digest(ps.train(PROBLEM, config(steps, exchange)))


def python(*arguments: str, before: tuple[str, ...] = (), **options: object) -> "subprocess.Popen[str]":
    where = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONWARNINGS": "ignore"}
    command = [*before, sys.executable, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=where, **pipes, **options)


@pytest.fixture
def program() -> Iterator[Path]:
    """A place for a program, which other users can read."""
    with tempfile.TemporaryDirectory(prefix="minips-") as place:
        Path(place).chmod(0o755)
        yield Path(place, "program.py")


@pytest.mark.parametrize(
    ("exchange", "topology"),
    [
        pytest.param("two servers", ps.TwoRacks(bandwidth_bps=1e8, uplink_bps=5e7), marks=pytest.mark.soak),
        pytest.param("a ring", None, marks=pytest.mark.soak),
    ],
    ids=["two servers on two racks", "a ring on a star"],
)
def test_a_run_on_hosts_ends_at_the_bits_of_processes(made_here, exchange, topology):
    run = ps.train(PROBLEM, config(10, exchange), engine=ps.Hosts(topology))
    assert digest(run) == of_processes(10, exchange)
    facts = [text for at, text in run.events if at == 0.0]
    assert repr(topology or ps.Star(1e8)) in facts[0]
    assert "congestion control reno" in facts[0]
    assert facts[-1].startswith("a small packet from worker 3 to ")


@pytest.mark.soak
@pytest.mark.parametrize("exchange", MANY)
@pytest.mark.parametrize(
    "network",
    [*(kind(bits) for kind in (ps.Star, ps.TwoRacks) for bits in (20e6, 50e6, 100e6)), ps.Tree(5e7, fanout=2)],
    ids=repr,
)
def test_on_every_network_a_run_ends_at_the_bits_of_processes(made_here, network, exchange):
    assert digest(ps.train(PROBLEM, config(10, exchange), engine=ps.Hosts(network))) == of_processes(10, exchange)


def test_one_host_alone(made_here):
    run = ps.train(SMALL, ps.Config(workers=1, exchange="ring", steps=2), engine=ps.Hosts())
    assert run.updates == 2
    assert "a small packet from worker 0 to worker 0" in run.events[-1][1]


@pytest.mark.soak
@pytest.mark.parametrize("transport", ["http", "zmq", "grpc", "pyro", "thrift"])
def test_over_every_transport_of_a_network(made_here, transport):
    over = config(5, "two servers").with_({"transport": transport})
    assert digest(ps.train(PROBLEM, over, engine=ps.Hosts())) == of_processes(5, "two servers")


class Looks(ps.LinearRegression):
    """Each worker says where it is: its namespaces, its interfaces, what holds their rate, the congestion control."""

    def loss_and_gradient(self, params, rows=None):
        from pyroute2 import IPRoute

        with IPRoute() as kernel:
            names = sorted(link.get("ifname") for link in kernel.get_links())
            (eth0,) = kernel.link_lookup(ifname="eth0")
            (queue,) = kernel.get_qdiscs(index=eth0)
            held = queue.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
            addresses = [one.get_attr("IFA_ADDRESS") for one in kernel.get_addr(index=eth0)]
        control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        words = (os.readlink("/proc/self/ns/net"), os.readlink("/proc/self/ns/user"), names, addresses)
        print(*words, queue.get_attr("TCA_KIND"), 8 * held["rate"], held["limit"], control, os.getuid(), sep=";")
        return super().loss_and_gradient(params, rows)


def test_each_worker_has_a_host_of_its_own_whose_link_has_the_rate_and_the_buffer_that_were_asked_for(made_here):
    network = ps.Hosts(ps.Tree(bandwidth_bps=30e6, fanout=2), buffer_bytes=50_000)
    run = ps.train(Looks(*misfits.rows()), ps.Config(workers=3, steps=1), engine=network)
    said = [text.partition(": ")[2].split(";") for _, text in run.events if text.startswith("worker")]
    here = {os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "user")}
    assert len({words[0] for words in said} | here) == 3 + 2
    assert len({words[1] for words in said} | here) == 1 + 2
    assert {words[3] for words in said} == {f"['10.77.0.{k}']" for k in (2, 3, 4)}
    user = str(os.getuid())
    assert {(*words[2:3], *words[4:]) for words in said} == {
        ("['eth0', 'lo']", "tbf", "30000000", "50000", "reno", user)
    }


def test_a_host_may_have_a_longer_queue_of_its_own(made_here):
    network = ps.Hosts(ps.Star(30e6), buffer_bytes=50_000, host_buffer_bytes=60_000)
    run = ps.train(Looks(*misfits.rows()), ps.Config(workers=2, steps=1), engine=network)
    said = [text.split(";") for _, text in run.events if text.startswith("worker")]
    assert {words[6] for words in said} == {"60000"}
    fact = "at most 50,000 bytes wait at each end of a link, at a host's own 60,000"
    assert any(fact in text for _, text in run.events)


RACKS = {"rack 0 → rack 1", "rack 1 → rack 0"}


@pytest.mark.parametrize(
    ("topology", "ends"),
    [
        (ps.Star(1e8), {"server 0": "switch", "worker 0": "switch", "worker 1": "switch"}),
        (ps.TwoRacks(1e8, racks="01 1"), {"server 0": "rack 1", "worker 0": "rack 0", "worker 1": "rack 1"}),
    ],
    ids=repr,
)
def test_a_watched_run_has_rows_of_each_queue(made_here, topology, ends):
    """Nothing says at which times a row is read, or that a queue is ever full."""
    run = ps.train(PROBLEM, ps.Config(workers=2, steps=5), engine=ps.Hosts(topology, 50_000, watch_s=0.001))
    both = {f"{host} → {switch}" for host, switch in ends.items()} | {f"{ends[host]} → {host}" for host in ends}
    assert {*run.queues} == both | (RACKS if isinstance(topology, ps.TwoRacks) else set())
    for rows in run.queues.values():
        seconds, waiting, dropped = zip(*rows, strict=True)
        assert [*seconds] == sorted(seconds)
        assert min(waiting) >= 0
        assert max(waiting) <= 50_000
        assert [*dropped] == sorted(dropped)
        assert all(one[1:] != other[1:] for one, other in pairwise(rows))
    assert digest(run) == digest(ps.train(PROBLEM, ps.Config(workers=2, steps=5)))


def test_where_a_queue_is_full_packets_are_dropped(made_here):
    """Four workers push 200 kB at once to one server, over a switch that holds 10 kB: the counters are not all zero."""
    wide = ps.LinearRegression(np.ones((8, 50_000), np.float32), np.ones(8))
    engine = ps.Hosts(ps.Star(1e8), 10_000, host_buffer_bytes=4_000_000, watch_s=0.001)
    run = ps.train(wide, ps.Config(workers=4, steps=3, optimizer=ps.SGD(1e-6)), engine=engine)
    lost = {end: rows[-1][2] for end, rows in run.queues.items()}
    assert lost["switch → server 0"] > 0
    assert not any(count for end, count in lost.items() if end.endswith("→ switch"))
    assert max(waiting for _, waiting, _ in run.queues["switch → server 0"]) <= 10_000


def test_with_a_short_queue_of_its_own_a_host_drops_more_than_the_switch(made_here):
    wide = ps.LinearRegression(np.ones((8, 50_000), np.float32), np.ones(8))
    config = ps.Config(workers=4, servers=4, steps=5, optimizer=ps.SGD(1e-6))
    run = ps.train(wide, config, engine=ps.Hosts(ps.Star(1e8), 50_000, watch_s=0.001))
    lost = {end: rows[-1][2] for end, rows in run.queues.items()}
    own = sum(count for end, count in lost.items() if end.endswith("→ switch"))
    assert own > sum(lost.values()) / 2


def test_a_run_that_is_not_watched_has_no_rows(made_here):
    assert ps.train(SMALL, ps.Config(workers=1, steps=1), engine="hosts").queues == {}


class Refuses(ps.LinearRegression):
    def loss_and_gradient(self, params, rows=None):
        raise ArithmeticError("not today")


def test_a_watched_run_that_fails_leaves_no_process(made_here):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(RuntimeError, match="not today"):
        ps.train(Refuses(*misfits.rows()), ps.Config(workers=2, steps=1), engine=ps.Hosts(watch_s=0.001))
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


@pytest.mark.skipif(sys.platform != "linux", reason="rtnetlink is Linux's")
def test_a_reading_names_interfaces_of_this_machine():
    with queues.QueueCounters() as found:
        rows = [*found.read(), *found.read()]
    numbers = {number for number, _ in socket.if_nameindex()}
    assert {number for number, _, _ in rows} <= numbers
    assert all(waiting >= 0 and dropped >= 0 for _, waiting, dropped in rows)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (ps.cost.Ring(), "they do not forward what others send"),
        (ps.cost.FatTree(), "one machine has"),
        (networkx.path_graph(3), r"may have any kind"),
    ],
)
def test_what_hosts_cannot_be_is_refused(topology, words):
    with pytest.raises(ValueError, match=rf"Hosts cannot be .*{words}.*Simulated\(topology=…\)\.$"):
        ps.Hosts(topology)


@pytest.mark.parametrize("transport", ["shm", "pipe", "inproc"])
def test_a_transport_of_one_machine_is_refused(transport):
    with pytest.raises(ValueError, match=r"Only a network joins Hosts; got transport=.*Use tcp, http"):
        ps.train(SMALL, ps.Config(transport=transport), engine="hosts")


def test_a_second_link_is_refused():
    with pytest.raises(ValueError, match=r"two links\. Use link=None, and Hosts\(Star\(bandwidth_bps=1e\+08\)\)\.$"):
        ps.train(SMALL, ps.Config(link=ps.Link(1e8)), engine="hosts")


def test_on_another_system_the_sentence_says_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match=r"of Linux, and this is darwin\. Use engine=Simulated\(.*Processes\(\) and"):
        ps.train(SMALL, ps.Config(), engine="hosts")


def test_a_latency_and_a_loss_are_made_or_refused(made_here):
    """Only a kernel with netem makes them."""
    for network in (ps.Star(latency_s=0.01), ps.Star(loss=0.01)):
        try:
            run = ps.train(SMALL, ps.Config(workers=2, steps=1), engine=ps.Hosts(network))
        except RuntimeError as error:
            assert "this kernel has no netem" in str(error)  # noqa: PT017
        else:
            assert not any("no netem" in text for _, text in run.events)


def test_a_congestion_control_that_is_not_allowed_is_refused_with_those_that_are(made_here):
    with pytest.raises(RuntimeError, match=r"congestion may be .*reno.* here, not 'none'\. Use "):
        ps.train(SMALL, ps.Config(workers=2, steps=1), engine=ps.Hosts(congestion="none"))


class Dies(hosts.HostNetwork):
    """Worker 1 dies while its host is being made."""

    def _enter(self, name):
        if name == "worker 1":
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._enter(name)


class Fails(hosts.HostNetwork):
    """The last worker is refused its end of the cable."""

    def plug(self, kernel, end, bits, bridge=None):
        if end == "port3":
            raise PermissionError(1, "Operation not permitted")
        super().plug(kernel, end, bits, bridge)


class Ends(hosts.HostNetwork):
    """Its fork server dies before there is a network."""

    def _make(self):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Dies, r"^worker 1 ended before its work was done: its process was killed by SIGKILL\.$"),
        (
            Fails,
            r"^worker 2 failed: Hosts cannot be made here: .* forbids it \(netlink.*\)\. Use engine=Simulated\(",
        ),
        (Ends, r"ended before its work was done: its process was killed by SIGKILL\.$"),
    ],
)
def test_what_fails_while_hosts_are_made_ends_the_run_with_a_sentence(made_here, monkeypatch, network, words):
    monkeypatch.setattr(hosts, "HostNetwork", network)
    with pytest.raises(RuntimeError, match=words):
        ps.train(SMALL, ps.Config(workers=3, steps=1), engine="hosts")


TWENTY = pytest.mark.parametrize(
    "turn",
    [pytest.param(k, marks=pytest.mark.campaign if k else pytest.mark.soak) for k in range(20)],
)


@TWENTY
def test_kill_9_of_the_fork_server_ends_the_run_and_all_hosts(made_here, turn):
    killed = []

    def kill(progress):
        if progress.applied and not killed:
            (server,) = (c for c in psutil.Process().children() if "spawn_main" in " ".join(c.cmdline()))
            killed.extend(server.children())
            server.kill()

    config = ps.Config(workers=2, servers=2, steps=100_000, delays=ps.Delays(0.02))
    with pytest.raises(RuntimeError, match=r"ended before its work was done: its process was killed by SIGKILL"):
        ps.train(SMALL, config, engine="hosts", progress=kill)
    assert len(killed) == 4
    assert gone(killed)


@TWENTY
def test_kill_9_of_the_parent_ends_all_hosts(made_here, program, turn):
    program.write_text(GOING)
    interfaces, mounts, shared = of_machine()
    with python(str(program)) as run, ExitStack() as files:
        assert run.stdout.readline() == "going\n", run.stderr.read()
        family = psutil.Process(run.pid).children(recursive=True)
        held = [files.enter_context(open(f"/proc/{one.pid}/ns/net", "rb")) for one in family]  # nobody takes the number
        namespaces = {os.readlink(f"/proc/self/fd/{file.fileno()}") for file in held}
        assert len(namespaces - {os.readlink("/proc/self/ns/net")}) == 1 + 4
        run.kill()
        run.wait(20)
        assert gone(family)
        assert not namespaces & in_use() - {os.readlink("/proc/self/ns/net")}
    assert of_machine() == (interfaces, mounts, shared)


def gone(processes: list[psutil.Process]) -> bool:
    """True once these processes have ended: at the latest after ten seconds."""
    return not psutil.wait_procs(processes, timeout=10)[1]


def in_use() -> set[str]:
    """The network namespaces of all processes that may be looked at."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.add(os.readlink(process / "ns" / "net"))
        except OSError:
            continue
    return found


def of_machine() -> tuple[list[str], str, list[str]]:
    """The machine's interfaces, its mounts, and shared memory of minips."""
    interfaces = sorted(os.listdir("/sys/class/net"))
    return interfaces, Path("/proc/self/mounts").read_text(), sorted(map(str, Path("/dev/shm").glob("minips*")))


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME=/nonexistent", "TMPDIR=/tmp")
SHOWN = """
set -e  # in a mount namespace of its own: the Python of a folder that its owner alone may enter, for all to read
mkdir "$1" && mount --bind "$2" "$1" && mount -t tmpfs -o mode=755 none "$3" && mkdir -p "$2" && mount --bind "$1" "$2"
shift 3
exec "$@"
"""


def as_nobody(place: Path) -> tuple[str, ...]:
    """The beginning of a command that another user runs, who may read this Python and this checkout."""
    closed = [folder for folder in Path(sys.base_prefix).parents if not folder.stat().st_mode & 0o001]
    if not closed:
        return NOBODY
    if any(closed[-1] in path.parents for path in (ROOT, place, Path(sys.prefix))):
        pytest.skip(f"another user may not enter {closed[-1]}")
    return (
        "unshare",
        "--mount",
        "sh",
        "-c",
        SHOWN,
        "sh",
        str(place / "python"),
        sys.base_prefix,
        str(closed[-1]),
        *NOBODY,
    )


@pytest.mark.soak
def test_an_unprivileged_user_needs_no_rights(made_here, program):
    if os.getuid() or not shutil.which("setpriv"):
        pytest.skip("the test run is not root's, or there is no setpriv: then the others say this")
    program.write_text(PROGRAM)
    with python("-B", str(program), before=as_nobody(program.parent)) as run:
        said, errors = run.communicate(timeout=60)
    assert said.split() == ["65534", "0000000000000000", of_processes(2, "two servers")], errors


BY_HAND = """
from test_hosts import by_hand

if __name__ == "__main__":
    print(by_hand())
"""


def by_hand() -> str:
    """The commands of docs/clusters.md, on three hosts: the digest of the run that the server saves."""
    with ExitStack() as programs, joined(3) as (first, *others):

        def begin(host: Host, command: str) -> "subprocess.Popen[str]":
            program = host.popen(*host.in_shell(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            return programs.enter_context(program)

        def end(program: "subprocess.Popen[str]", status: int = 0) -> str:
            said, errors = program.communicate(timeout=60)
            assert program.returncode == status, errors
            return said + errors

        certificate, serve, copy, work = commands("minips serve --workers 2 ", first.address)
        copy = copy.replace("scp", "cp").replace(f"{first.address}:", f"{first.place}/")  # there is no SSH server
        end(begin(first, certificate))
        for command in (serve.partition("--certificate")[0], work.partition("--authority")[0]):
            assert "--plaintext" in end(begin(first, command), 2)
        server = begin(first, f"{serve} --steps 10 --save run.npz")
        assert "Serving 2 workers" in server.stderr.readline(), server.stderr.read()
        for host in others:
            end(begin(host, copy))
        workers = [begin(host, work) for host in others]
        assert sorted(end(worker)[:9] for worker in workers) == ["Worker 0:", "Worker 1:"]
        end(server)
        return digest(ps.Run.load(first.place / "run.npz"))


@pytest.mark.soak
def test_the_commands_of_the_page_serve_and_work_on_three_hosts(made_here):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl command")
    assert by_hand() == digest(ps.train(PROBLEM, ps.Config(workers=2, steps=10)))


@pytest.mark.soak
def test_the_commands_of_the_page_need_no_rights(made_here, program):
    if os.getuid() or not shutil.which("setpriv") or not shutil.which("openssl"):
        pytest.skip("the test run is not root's, or there is no setpriv or openssl")
    program.write_text(BY_HAND)
    with python("-B", str(program), before=as_nobody(program.parent)) as run:
        said, errors = run.communicate(timeout=120)
    assert said.strip() == digest(ps.train(PROBLEM, ps.Config(workers=2, steps=10))), errors


@pytest.mark.soak
def test_where_namespaces_are_taken_away_each_command_says_what_forbids_them(own_namespace, program):
    for setting, kind in (("max_net_namespaces", "net"), ("max_user_namespaces", "user")):
        words = f" failed: Hosts cannot be made here: user.max_{kind}_namespaces = 0 forbids it (unshare). Use engine="
        arguments = ["train", "--data", "synthetic", "--steps", "1", "--engine", "hosts"]
        with python("-m", "minips", *arguments, before=(*TAKEN_AWAY, "0", setting)) as run:
            said, errors = run.communicate(timeout=60)
        assert run.returncode == 1
        assert words in errors
        assert "Use engine=Simulated(topology=…), " in errors
        assert "Config.link=Link(…)" in errors
        assert not said


@pytest.mark.soak
def test_where_namespaces_are_taken_away_the_doctor_says_so(own_namespace):
    with python("-m", "minips", "doctor", before=(*TAKEN_AWAY, "0", "max_net_namespaces")) as run:
        said, _ = run.communicate(timeout=120)
    assert "engine hosts: Hosts cannot be made here: user.max_net_namespaces = 0" in " ".join(said.split())


AGAIN = """
import sys, time
import minips as ps
from minips.engines import hosts, queues
from test_hosts import SMALL

if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        ps.train(SMALL, ps.Config(workers=2, steps=1), engine=ps.Hosts())
        time.sleep(0.1)  # the kernel takes a namespace down a moment after its last process
"""


@pytest.mark.parametrize(
    "times", [pytest.param(10, marks=pytest.mark.soak), pytest.param(100, marks=pytest.mark.campaign)]
)
def test_the_kernel_counts_no_namespace_that_was_left(made_here, own_namespace, program, times):
    """Of the eight that this user may have, each run takes four."""
    program.write_text(AGAIN)
    with python(str(program), str(times), before=(*TAKEN_AWAY, "8", "max_net_namespaces")) as run:
        _, errors = run.communicate(timeout=20 + 3 * times)
    assert run.returncode == 0, errors
