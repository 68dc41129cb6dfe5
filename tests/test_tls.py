"""TCP under TLS: the contract of a transport holds, and who answers is known."""

import contextlib
import dataclasses
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import numpy as np
import pages
import pytest
import trustme

import minips as ps
from minips.stages.transports import tls
from minips.stages.transports.certificates import files, issue_certificate
from minips.stages.transports.framing import pieces
from minips.stages.transports.wire import CALL
from minips.testing.transports import Watched, check_transport


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def papers(authority, tmp_path_factory):
    """The fields of a Tcp whose server is 127.0.0.1."""
    place = tmp_path_factory.mktemp("papers")
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(place / "certificate.pem")
    issued.private_key_pem.write_to_path(place / "key.pem")
    authority.cert_pem.write_to_path(place / "authority.pem")
    return {name: str(place / f"{name}.pem") for name in ("certificate", "key", "authority")}


def test_the_contract_holds(papers):
    check_transport(ps.Tcp(**papers), cycles=20)


def test_a_run_makes_its_own_certificate_for_one_address():
    certificate, key = issue_certificate("127.0.0.1")
    other, _ = issue_certificate("127.0.0.2")
    with files(certificate + key, certificate, other) as (mine, known, stranger):
        transport = ps.Tcp(certificate=mine, authority=known)
        with transport.serve(lambda frames: frames) as endpoint:
            with transport.connect(endpoint.address) as channel:
                assert bytes(channel.call([b"a gradient"]).result(20)[0]) == b"a gradient"
            with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                ps.Tcp(authority=stranger).connect(endpoint.address)
        with (
            transport.serve(lambda frames: frames, "tcp://127.0.0.2:0") as endpoint,
            pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            transport.connect(endpoint.address)
    assert not os.path.exists(mine)


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl command")
def test_the_certificate_that_the_page_makes(tmp_path):
    (command,) = re.findall(r"^openssl req .*\n .*$", pages.text("docs/clusters.md"), flags=re.MULTILINE)
    subprocess.run(
        command.replace("10.0.0.1", "127.0.0.1"), shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    at = {"certificate": tmp_path / "server.pem", "key": tmp_path / "server.key", "authority": tmp_path / "server.pem"}
    transport = ps.Tcp(**{name: str(path) for name, path in at.items()})
    with transport.serve(lambda frames: frames) as endpoint, transport.connect(endpoint.address) as channel:
        assert bytes(channel.call([b"a gradient"]).result(20)[0]) == b"a gradient"


def test_a_run_ends_with_the_same_bits_as_without(papers):
    config = ps.Config(workers=2, steps=5, transport=ps.Tcp(**papers))
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, features=20, classes=3))
    runs = [
        ps.train(problem, one, engine="threads") for one in (config, dataclasses.replace(config, transport=ps.Tcp()))
    ]
    for name, x in runs[0].params.items():
        np.testing.assert_array_equal(x, runs[1].params[name])


def test_nothing_can_be_read_on_the_way(papers):
    """Both ways through a proxy that keeps what it sees, and takes one connection."""
    seen = []

    def pass_on(source, target):
        while some := source.recv(2**16):
            seen.append(some)
            target.sendall(some)
        target.shutdown(socket.SHUT_WR)

    transport = ps.Tcp(**papers, pool=1)
    secret = b"the gradient of all our work " * 100
    with transport.serve(lambda frames: frames) as endpoint, socket.create_server(("127.0.0.1", 0)) as proxy:
        dialled = []
        connecting = threading.Thread(
            target=lambda: dialled.append(transport.connect(f"tcp://127.0.0.1:{proxy.getsockname()[1]}"))
        )
        connecting.start()
        near, _ = proxy.accept()
        far = socket.create_connection(endpoint.address.removeprefix("tcp://").split(":"))
        with near, far:
            pipes = [threading.Thread(target=pass_on, args=pair) for pair in ((near, far), (far, near))]
            for pipe in pipes:
                pipe.start()
            connecting.join(20)
            with dialled[0] as channel:
                assert bytes(channel.call([secret]).result(20)[0]) == secret
            for pipe in pipes:
                pipe.join(20)
    assert len(b"".join(seen)) > 2 * len(secret)
    assert secret[:20] not in b"".join(seen)


@pytest.mark.soak
def test_a_stranger_of_another_authority_is_no_server(papers, tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with ps.Tcp(**papers).serve(lambda frames: frames) as endpoint:
        with pytest.raises(ConnectionError, match="TLS"):
            ps.Tcp(authority=str(tmp_path / "other.pem")).connect(endpoint.address)
        with pytest.raises(ConnectionError):
            ps.Tcp().connect(endpoint.address, timeout=2.0)
        with ps.Tcp(**papers).connect(endpoint.address) as channel:
            assert bytes(channel.call([b"still here"]).result(20)[0]) == b"still here"


def test_a_stranger_that_shakes_hands_byte_by_byte_is_hung_up_on(papers, monkeypatch):
    monkeypatch.setattr(tls, "HANDSHAKE_S", 1.0)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
    with (
        ps.Tcp(**papers).serve(lambda frames: frames) as endpoint,
        socket.create_connection(ps.Tcp().host_and_port(endpoint.address)) as stranger,
    ):
        stranger.settimeout(0.1)
        for byte in hello[:200]:  # one every tenth of a second, 20 s in all
            try:
                stranger.send(bytes([byte]))
                if not stranger.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the stranger is still connected")


def half_a_message(sock):
    sock._put(encrypted(sock, bytes(200_000))[:100_000])


def bytes_of_a_record(sock):
    with contextlib.suppress(OSError):
        for byte in encrypted(sock, bytes(10_000))[:50]:
            sock._put(bytes([byte]))
            time.sleep(0.2)


def reads_nothing(sock):
    body = b"".join(pieces(CALL, [bytes(2**25)]))
    with contextlib.suppress(OSError):
        sock.sendmsg([memoryview(body)])


def encrypted(sock, frame):
    sock._tls.write(b"".join(pieces(CALL, [frame])))
    return sock._outgoing.read()


@pytest.mark.parametrize("stalls", [half_a_message, bytes_of_a_record, reads_nothing])
def test_a_peer_that_stalls_is_dropped_and_one_that_is_idle_is_not(papers, stalls):
    service = Watched()
    server = ps.Tcp(**papers, stalled_s=1.0, pool=1)
    with (
        server.serve(service) as endpoint,
        ps.Tcp(**papers, pool=1).connect(endpoint.address) as idle,
        ps.Tcp(**papers, pool=1).connect(endpoint.address) as channel,
    ):
        for one in (idle, channel):
            one.call([b"a"]).result(20)
        stalls(channel._wire._sock)
        assert service.left.wait(20)
        assert bytes(idle.call([b"still here"]).result(20)[0]) == b"still here"


def test_a_server_without_tls_is_said_to_have_none(papers):
    with ps.Tcp().serve(lambda frames: frames) as endpoint, pytest.raises(ConnectionError, match="TLS"):
        ps.Tcp(**papers).connect(endpoint.address)


@pytest.mark.parametrize("field", ["certificate", "key"])
def test_a_file_that_the_server_cannot_read_is_named_with_its_field(papers, tmp_path, field):
    gone = str(tmp_path / "gone.pem")
    broken = ps.Tcp(**{**papers, field: gone})
    with pytest.raises(ValueError, match=rf"Tcp\.{field} names '{gone}', which cannot be read: No such file"):
        broken.serve(lambda frames: frames)


def test_an_authority_that_the_client_cannot_read_is_named(papers, tmp_path):
    gone = str(tmp_path / "gone.pem")
    words = rf"Tcp\.authority names '{gone}', which cannot be read: No such file"
    with ps.Tcp(**papers).serve(lambda frames: frames) as endpoint, pytest.raises(ValueError, match=words):
        ps.Tcp(authority=gone).connect(endpoint.address)


def test_files_that_do_not_belong_together_are_both_named(papers, tmp_path):
    other = trustme.CA().issue_cert("127.0.0.1")
    other.private_key_pem.write_to_path(tmp_path / "other.pem")
    broken = ps.Tcp(certificate=papers["certificate"], key=str(tmp_path / "other.pem"))
    with pytest.raises(ValueError, match=r"Tcp\.certificate='.*' with Tcp\.key='.*other\.pem' cannot be used"):
        broken.serve(lambda frames: frames)
