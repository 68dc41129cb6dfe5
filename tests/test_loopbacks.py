"""Hosts with both loopbacks, with one of them and with none; names, numbers and ports that are spelled by users."""

import socket
import subprocess
import sys

import pytest
import trustme
from hosts import ALONE, ROOT, environment, lacking
from loopbacks import NETWORK, TRANSPORTS, said

import minips as ps

UP = """
import fcntl, os, socket, struct, sys
kind, *command = sys.argv[1:]
if kind == "127.0.0.1":
    with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as file:
        file.write("1")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    if kind != "none":
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
    if kind == "::1":
        nobody = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes(4))
        fcntl.ioctl(sock, 0x8916, nobody)  # SIOCSIFADDR: the loopback loses 127.0.0.1
os.execv(command[0], command)
"""
HAS_SIX = not socket.has_ipv6 or said("tcp", "[::1]") == "tcp://[::1]"


def on_a_host_with(kind, *program, tmp_path, timeout=240):
    """The output of a Python program on a host that has this loopback alone, or none."""
    if why := lacking():
        pytest.skip(why)
    command = [*ALONE, sys.executable, "-c", UP, kind, sys.executable, *program]
    done = subprocess.run(
        command, env=environment(str(tmp_path)), capture_output=True, text=True, timeout=timeout, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    return done.stdout


def told(kind, *hosts, tmp_path):
    """What each transport did at each host, by their names."""
    lines = on_a_host_with(kind, "tests/loopbacks.py", *hosts, tmp_path=tmp_path).splitlines()
    return {(name, host): what for name, host, what in (line.split("|", 2) for line in lines)}


@pytest.mark.parametrize(
    ("kind", "host", "other"),
    [("::1", "[::1]", "127.0.0.1"), pytest.param("127.0.0.1", "127.0.0.1", "[::1]", marks=pytest.mark.soak)],
)
def test_one_loopback_is_enough(kind, host, other, tmp_path):
    done = told(kind, host, "localhost", other, tmp_path=tmp_path)
    for name in TRANSPORTS:
        assert done.pop((name, "None")).removesuffix("inproc").removesuffix(f"://{host}") in (name, "", "pipe", "shm")
    for name in NETWORK:
        assert done.pop((name, host)) == done.pop((name, "localhost")) == f"{name}://{host}"
        words = f"OSError: {name}://{other}:0 cannot be served: Cannot assign requested address. Name an address that "
        assert done.pop((name, other)) == f"{words}this machine has."
    assert not done


@pytest.mark.soak
def test_without_a_loopback_the_address_is_named(tmp_path):
    done = told("none", tmp_path=tmp_path)
    for name in NETWORK:
        assert done[name, "None"].startswith("ConnectionError: ")
        assert f" {name}://127.0.0.1:" in done[name, "None"]
    assert {done[name, "None"] for name in ("inproc", "pipe", "shm")} == {"inproc", "pipe", "shm"}


@pytest.mark.soak
def test_a_run_needs_no_127_0_0_1(tmp_path):
    done = told("::1", "train", tmp_path=tmp_path)
    assert all(done[name, "train"] == "[6, 6]" for name in NETWORK)


SELF = """
import sys
import minips as ps

with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write("40000 40001")
for name in sys.argv[1:]:
    transport, address = ps.build("transport", name), f"{name}://127.0.0.1:40000"
    for _ in range(4):
        try:
            transport.connect(address, "token", timeout=20.0)
        except ConnectionError as error:
            print(name, str(error).partition(":")[0], sep="|", flush=True)
    with transport.serve(lambda frames: frames, address, "token") as endpoint:
        print(name, endpoint.address, sep="|", flush=True)
"""
"""The system gives clients two ports, and connects a client to itself if it dials the port that it got."""


def test_a_client_that_the_system_connects_to_itself_finds_no_server_and_leaves_it_the_port(tmp_path):
    names = [name for name in NETWORK if name != "zmq"]  # libzmq dials by itself
    told = on_a_host_with("127.0.0.1", "-c", SELF, *names, tmp_path=tmp_path)
    lines = [line.split("|") for line in told.splitlines()]
    for name in names:
        *errors, served = [words for other, words in lines if other == name]
        assert served == f"{name}://127.0.0.1:40000"
        assert len(errors) == 4
        assert {*errors} == {f"No server answers at {name}"}


BY_HAND = """
import os, re, subprocess, sys
minips, common = [sys.executable, "-m", "minips"], ["--data", "synthetic", "--token-file", "token"]
def run(*command):
    return subprocess.Popen([*minips, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
os.chdir(sys.argv[1])
doctor = run("doctor").communicate()[0]
assert "a small push and pull over TCP travels for" in doctor and "do not work" not in doctor, doctor
for bind in ([], ["--bind", "tcp://[::1]:0"], ["--bind", "http://[::1]:7071", "--transport", "http", "--servers", "2"]):
    serve = run("serve", *common, "--workers", "1", "--steps", "3", *bind)
    while "--connect" not in (line := serve.stderr.readline()):
        assert line, "it did not serve"
    address = re.search(r"--connect (\\S+)", line)[1]
    assert "://[::1]:" in address, address
    assert "0 of 3 updates" in run("status", address, "--token-file", "token").communicate()[0]
    print(run("work", *common, "--connect", address).communicate(timeout=60)[0], end="")
    assert serve.wait(60) == 0, serve.stderr.read()
    serve.communicate()
"""


@pytest.mark.soak
def test_doctor_and_a_run_by_hand_need_no_127_0_0_1(tmp_path):
    done = on_a_host_with("::1", "-c", BY_HAND, str(tmp_path), tmp_path=tmp_path)
    assert done.count("the run is over, after 3 pushes") == 3


@pytest.mark.skipif(not HAS_SIX, reason="this machine has no ::1")
@pytest.mark.parametrize("name", NETWORK)
def test_both_loopbacks_are_served_by_number_and_by_name(name):
    assert said(name, "[::1]") == f"{name}://[::1]"
    assert said(name, "localhost") == f"{name}://127.0.0.1"
    assert said(name, None) == f"{name}://127.0.0.1"


@pytest.mark.skipif(not HAS_SIX, reason="this machine has no ::1")
@pytest.mark.parametrize("name", NETWORK)
def test_localhost_reaches_a_server_at_either_loopback(name):
    transport = ps.build("transport", name)
    with transport.serve(lambda frames: frames, f"{name}://[::1]:0", "token") as endpoint:
        port = endpoint.address.rpartition(":")[2]
        with transport.connect(f"{name}://localhost:{port}", "token") as channel:
            assert [bytes(frame) for frame in channel.call([b"hello"]).result(10)] == [b"hello"]


@pytest.mark.skipif(not HAS_SIX, reason="this machine has no ::1")
def test_tls_knows_a_server_by_the_number_of_its_host(tmp_path):
    authority = trustme.CA()
    made = authority.issue_cert("::1")
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server, client = ps.Tcp(certificate=str(tmp_path / "server.pem")), ps.Tcp(authority=str(tmp_path / "ca.pem"))
    with server.serve(lambda frames: frames, "tcp://[::1]:0", "token") as endpoint:
        with client.connect(endpoint.address, "token") as channel:
            assert [bytes(frame) for frame in channel.call([b"hello"]).result(10)] == [b"hello"]
        with pytest.raises(OSError, match="There is no TLS with the peer"):
            client.connect(endpoint.address.replace("[::1]", "localhost"), "token")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
@pytest.mark.parametrize("name", NETWORK)
def test_a_taken_port_is_told_in_one_sentence(name, host, capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = f"{name}://{host or '127.0.0.1'}:{port}"
        with pytest.raises(OSError, match=r"cannot be served") as refused:
            ps.build("transport", name).serve(lambda frames: frames, f"{name}://{host}:{port}", "token")
    why = "Address already in use. Choose another port, or 0 for a free one."
    assert str(refused.value) == f"{shown} cannot be served: {why}"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("host", ["192.0.2.1", "nosuch.invalid", "x" * 100])
@pytest.mark.parametrize("name", NETWORK)
def test_a_host_that_is_another_or_none_is_told_in_a_sentence(name, host, capfd):
    with pytest.raises(
        OSError, match=rf"^{name}://{host}:7 cannot be served: .*\. Name an address that this machine has"
    ):
        ps.build("transport", name).serve(lambda frames: frames, f"{name}://{host}:7", "token")
    assert capfd.readouterr() == ("", "")
