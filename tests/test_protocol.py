"""PROTOCOL.md is what the code does: its sessions are played against a server, its arrays are decoded."""

import hmac
import re
import socket
from pathlib import Path

import msgpack
import numpy as np
import pytest

import minips as ps
from minips.core import protocol
from minips.stage import names, stage_class
from minips.stages.transports import auth

TEXT = (Path(ps.__file__).parent / "core" / "PROTOCOL.md").read_text(encoding="utf-8")
X = np.array([[0.5, -1, 0.25], [2, 0, -0.125]], "f4")
EVALUATED = {name: getattr(ps, name) for name in ps.__all__}
WAIT_S = 10


def block(kind):
    return re.search(rf"^```{kind}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[1]


def session(kind="session"):
    """Who speaks, and the bytes, in order."""
    spoken = []
    for line in block(kind).splitlines():
        if line[:1] in ("C", "S"):
            spoken.append((line[0], b""))
        elif line.startswith("    "):
            spoken[-1] = (spoken[-1][0], spoken[-1][1] + bytes.fromhex(line[4:51]))
        elif line.endswith(" zeros"):
            spoken[-1] = (spoken[-1][0], spoken[-1][1] + bytes(int(line.split()[0])))
    return spoken


def arrays():
    """A quantizer, its parts, and the values that they decode to."""
    for entry in re.split(r"^(?=\S)", block("arrays"), flags=re.MULTILINE)[1:]:
        said, *lines = entry.splitlines()
        *parts, values = lines
        rows = [re.fullmatch(r"  (\w+) +(\w+) +\((.*?)\) *(.*)", part).groups() for part in parts]
        shaped = {
            name: np.frombuffer(bytes.fromhex(text), dtype).reshape([int(n) for n in shape.split(",") if n.strip()])
            for name, dtype, shape, text in rows
        }
        yield eval(said, EVALUATED), shaped, [float(value) for value in values.removeprefix("  = ").split(",")]


def without_seconds(message):
    floats = rb"(\xa4busy\xcb|\xa6waited\xcb|\xa7heard_s\xcb|\xa7seconds\xcb).{8}"
    return re.sub(floats, lambda found: found[1] + bytes(8), message, flags=re.DOTALL)


def play(server, spoken):
    """Say what the client says, and hold what the server answers against the page; how many answers there were."""
    host, port = server.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), WAIT_S) as stream:
        for who, wanted in spoken:
            if who == "C":
                stream.sendall(wanted)
                continue
            got = b""
            while len(got) < len(wanted):
                some = stream.recv(len(wanted) - len(got))
                assert some, f"The server hung up after {got.hex(' ')}."
                got += some
            assert without_seconds(got) == wanted
    return sum(who == "S" for who, _ in spoken)


@pytest.fixture
def known_nonces(monkeypatch):
    monkeypatch.setattr(auth.secrets, "token_bytes", lambda count: bytes(range(count)))


@pytest.mark.usefixtures("known_nonces")
def test_the_session_is_what_a_server_says():
    config = ps.Config(workers=1, consistency="asp", optimizer=ps.SGD(lr=0.5))
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config).serve(token="secret") as server:
        assert play(server, session()) == 5


@pytest.mark.usefixtures("known_nonces")
def test_the_words_of_version_2_are_what_a_server_says():
    config = ps.Config(workers=2, consistency="asp", optimizer=ps.SGD(lr=0.5))
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config, updates=10).serve(token="secret") as server:
        assert play(server, session()[:3] + session("words")) == 5
        assert [text for _, text in server.events] == ["worker 0 has left: the disk is full"]


@pytest.mark.usefixtures("known_nonces")
def test_the_words_of_version_3_are_what_a_server_says():
    config = ps.Config(workers=2, consistency="asp", optimizer=ps.SGD(lr=0.5))
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config, updates=10).serve(token="secret") as server:
        assert play(server, session()[:3] + session("words3")) == 4


@pytest.mark.usefixtures("known_nonces")
def test_the_rows_of_a_shard_are_told_as_the_page_says():
    config = ps.Config(workers=1, aggregator="weightedmean")
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config).serve(token="secret") as server:
        assert play(server, session()[:3] + session("weighed")) == 3
        assert server._present[0].rows == 21


def test_what_a_worker_leaves_has_the_keys_of_the_page():
    config = ps.Config(transport="inproc", consistency="asp", workers=1, steps=2, overlap=True)
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))
    params = problem.init(np.random.default_rng(0))
    with ps.Server(params, config, updates=2).serve(token="t") as server:
        ps.work(problem, server.address, token="t")
        [part] = server.report()["left"]
    told = TEXT[TEXT.index("### State") : TEXT.index("### Memories")]
    assert set(part) == {*re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)}
    for key in (*part["link"], *part["link"]["encoder"], *part["link"]["decoder"]):
        assert f"`{key}`" in told
    seen, versions, arrived = part["seen"]
    assert (part["format"], [*seen], versions, [*arrived]) == (1, [*params], (1,), [*params])


def test_a_server_that_knows_version_1_alone_refuses_a_later_client_in_a_sentence():
    def of_version_1(frames):
        version = msgpack.unpackb(frames[0])["v"]
        raise ValueError(f"The peer speaks version {version!r} of the protocol, this is version 1.")

    with (
        ps.Tcp().serve(of_version_1, token="t") as endpoint,
        pytest.raises(ValueError, match="speaks version 3 of the protocol, this is version 1"),
    ):
        ps.connect(endpoint.address, ps.Config(), token="t")


def test_the_page_tells_every_word():
    told = re.findall(r"^\| `(\w+)` \| .*\|$", TEXT[TEXT.index("| `kind`") :], re.MULTILINE)
    assert set(protocol.KINDS) <= set(told)


def test_the_session_proves_the_token():
    (_, challenge), (_, proof), (_, answer), *_ = session()
    theirs, ours = challenge[128:160], proof[64:96]
    assert proof[128:160] == hmac.digest(b"secret", b"client" + theirs + ours, "sha256")
    assert answer[64:96] == hmac.digest(b"secret", b"server" + ours + theirs, "sha256")


def test_every_quantizer_is_shown_and_described():
    shown = [quantizer.name for quantizer, _, _ in arrays()]
    assert sorted(shown) == sorted(names("quantizer"))
    rows = re.findall(r"^\| (`[a-z0-9, `]+`) \| .*\|.*\|$", TEXT, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"\w+", row)}
    assert set(shown) <= described


@pytest.mark.parametrize(("quantizer", "parts", "values"), [*arrays()], ids=lambda one: getattr(one, "name", ""))
def test_arrays_decode_to_what_is_said(quantizer, parts, values):
    decoded = stage_class("quantizer", quantizer.name)().decode(parts)
    np.testing.assert_allclose(decoded.reshape(-1), np.float32(values), rtol=1e-6 * (quantizer.name == "powersgd"))


@pytest.mark.parametrize(("quantizer", "parts", "values"), [*arrays()], ids=lambda one: getattr(one, "name", ""))
def test_arrays_encode_to_what_is_said(quantizer, parts, values):
    x = np.arange(12, dtype="f4").reshape(3, 4) if quantizer.name == "powersgd" else X
    encoded = quantizer.encode(x, np.random.default_rng(0))
    assert list(encoded) == list(parts)
    for name, part in parts.items():
        assert (encoded[name].dtype, encoded[name].shape) == (part.dtype, part.shape)
        if part.dtype.kind == "f" and quantizer.name == "powersgd":  # LAPACK's last bits differ from machine to machine
            np.testing.assert_allclose(np.abs(encoded[name]), np.abs(part), rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(encoded[name], part)
