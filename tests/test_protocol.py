"""PROTOCOL.md is what the code does: its sessions are played against a server, its arrays are decoded."""

import dataclasses
import hmac
import re
import socket
from pathlib import Path

import msgpack
import numpy as np
import pages
import pytest

import minips as ps
from minips.core import message
from minips.core.fields import ANSWERS, ENVELOPE, NEEDED, REQUESTS
from minips.core.membership import SOON_S
from minips.stage import names, stage_class
from minips.stages.transports import auth, framing

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
def test_the_words_of_identity_and_status_are_what_a_server_says():
    config = ps.Config(workers=2, consistency="asp", optimizer=ps.SGD(lr=0.5))
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config, updates=10).serve(token="secret") as server:
        assert play(server, session()[:3] + session("words")) == 5
        assert [text for _, text in server.events] == ["worker 0 has left: the disk is full"]


@pytest.mark.usefixtures("known_nonces")
def test_the_words_of_state_are_what_a_server_says():
    config = ps.Config(workers=2, consistency="asp", optimizer=ps.SGD(lr=0.5))
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config, updates=10).serve(token="secret") as server:
        assert play(server, session()[:3] + session("words3")) == 4


@pytest.mark.usefixtures("known_nonces")
def test_the_rows_of_a_shard_are_told_as_the_page_says():
    config = ps.Config(workers=1, aggregator="weightedmean")
    with ps.Server({"w": np.float32([1, 2, 3, 4])}, config).serve(token="secret") as server:
        assert play(server, session()[:3] + session("weighed")) == 3
        assert server._members[0].rows == 21


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


@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_another_version_is_refused_in_a_sentence_and_the_connection_goes_on(version):
    said = msgpack.packb([{"kind": "hello", "worker": 0}, []])
    words = f"The peer speaks version {version} of the protocol, and this is version 3."
    with (
        ps.Server({"w": np.zeros(2)}, ps.Config(workers=1)).serve() as server,
        ps.Tcp().connect(server.address, server.token) as channel,
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            channel.call([msgpack.packb({"v": version, "s": "msgpack", "c": "none"}), said]).result(WAIT_S)
        assert channel.call([msgpack.packb({"v": 3, "s": "msgpack", "c": "none"}), said]).result(WAIT_S)


def field_rows():
    """The page's two tables of fields, line by line, as the code has them."""
    for tables, needed in ((REQUESTS, NEEDED), (ANSWERS, ANSWERS)):
        found = {}
        for kind, fields in tables.items():
            for name, field in fields.items():
                found.setdefault((name, field.words), []).append(f"**{kind}**" if name in needed[kind] else kind)
        everywhere = {tuple(form.format(kind) for kind in tables): form.format("all") for form in ("{}", "**{}**")}
        for (name, words), kinds in found.items():
            yield f"| `{name}` | {words.rstrip(',')} | {everywhere.get((*kinds,)) or ', '.join(kinds)} |"


def test_the_page_has_the_fields_of_the_code():
    told = re.findall(r"^\| field \| value \|.*\n\|.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert "".join(told).splitlines() == [*field_rows()]
    first, stamp = re.findall(r"(?s)(The envelope holds .*?)\n\n((?:\|.*?\n)+)", TEXT)[0]
    names = re.findall(r"`(\w)`, ", first.partition("The\nserver")[0]) + re.findall(
        r"`(\w+)`(?=[^|\n]* \| \w+ )", stamp
    )
    assert names == [*ENVELOPE]


def other_fields(kind):
    """The fields of a request besides those of every request."""
    return REQUESTS[kind].keys() - {"kind", "memory", *(["worker"] if kind == "status" else [])}


def test_the_list_of_requests_has_their_fields():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", TEXT[TEXT.index("### Requests") :], re.MULTILINE)
    rows = rows[1 : 1 + len(REQUESTS)]  # after the heading
    told = {kind: {*re.findall(r"`(\w+)`", said)} for kind, said, _ in rows}
    told["push_pull"] = (told["push_pull"] - {"push", "pull"}) | told["push"]
    assert told == {kind: other_fields(kind) for kind in REQUESTS}
    answers = {kind: {*re.findall(r"`(\w+)`", answer)} for kind, _, answer in rows}
    for kind in ("hello", "alive", "state", "bye"):
        assert answers[kind] - {"worker"} == ANSWERS[kind].keys() - ANSWERS["alive"].keys()


# Values that a field may have, and values that it may not

GOOD = {
    "kind": [],
    "memory": ["none", "delta"],
    "worker": [0],
    "secret": ["ab" * 16],
    "again": [False],
    "clock": [0],
    "version": [0],
    "loss": [None, 3, 0.5],
    "of": [None, {}],
    "names": [None, [], ["w"]],
    "rows": [None, {}, {"w": [1, 0, 1]}],
    "config": [False, True],
    "diverged": [None],
    "failed": [None, "why"],
    "state": [False],
}
ODD = [None, True, -2, 2**63, 0.5, float("nan"), float("-inf"), "x", "0", b"x", [], [0], ["w", None], {}, {"w": 1},
       {"w": [True]}, {"w": ["0"]}, {"w": [0.5]}, {"": None}]  # fmt: skip
SHARE = [0, 21, 0.0, 2.5]


def cases():
    """Each field of each kind of request with values that fit, and with those of `ODD` that do not."""
    for kind, fields in REQUESTS.items():
        for name, field in fields.items():
            good = SHARE if (kind, name) == ("hello", "rows") else GOOD[name]
            odd = [value for value in ODD if type(value) not in field.fits or not field.fits[type(value)](value)]
            yield pytest.param(kind, name, good, odd, id=f"{kind}-{name}")


def test_the_documents_have_the_time_for_which_a_hello_waits():
    assert f"will be free within {SOON_S:g} s because the session's last connection broke, the server delays" in (
        " ".join(TEXT.split())
    )
    assert f"started again up to {SOON_S:g} seconds before its number is free, it waits" in (
        " ".join(pages.text("docs/clusters.md").split())
    )


def test_the_list_of_messages_has_their_fields():
    told = {
        kind: re.findall(r"\w+", fields) for kind, fields in re.findall(r"(?m)^    (\w+) +\{(.*?)\}", message.__doc__)
    }
    assert told.keys() == REQUESTS.keys() - {"push_pull"}
    for kind, fields in told.items():
        assert {*fields} == other_fields(kind), kind
    assert REQUESTS["push_pull"].keys() == REQUESTS["push"].keys() | REQUESTS["pull"].keys()
    (stamp,) = re.findall(r"``{(clock, .*?)}``", message.__doc__)
    assert stamp.split(", ") == [*ENVELOPE][3:]


@pytest.mark.parametrize(("kind", "name", "good", "odd"), [*cases()])
def test_each_field_of_each_request_is_checked(kind, name, good, odd):
    gradient = [["w", "exact", [["values", "float32", [4]]]]]
    envelope = msgpack.packb({"v": 3, "s": "msgpack", "c": "none"})
    config = ps.Config(workers=1, consistency="asp")

    def call(channel, **fields):
        pushes = "push" in kind
        said = {"kind": kind, "worker": 0, "memory": "none", **({"clock": 0, "version": 0} if pushes else {}), **fields}
        index, values = (gradient, [bytes(16)]) if pushes else ([], [])
        return channel.call([envelope, msgpack.packb([said, index]), *values]).result(WAIT_S)

    with (
        ps.Server({"w": np.float32([1, 2, 3, 4])}, config).serve() as server,
        ps.Tcp().connect(server.address, server.token) as channel,
    ):
        for value in odd:
            with pytest.raises(ValueError, match=r"^The header of .* needs .*; got .*\.$|^No message is of kind .*\.$"):
                call(channel, **{name: value})
            assert (server.shard.clocks, server.connected) == ([0], 0)
        with pytest.raises(ValueError, match=rf"^The header of {kind} has no field 'new'; it may have kind, .*\.$"):
            call(channel, new=1)
        hello = [envelope, msgpack.packb([{"kind": "hello", "worker": 0, "secret": GOOD["secret"][0]}, []])]
        for value in good:
            assert channel.call(hello).result(WAIT_S)
            assert call(channel, **{name: value})
        np.testing.assert_array_equal(server.params["w"], [1, 2, 3, 4])


@pytest.mark.parametrize("missing", ["worker", "clock", "version"])
def test_a_field_that_is_missing_is_named(missing):
    said = {name: 0 for name in ("worker", "clock", "version") if name != missing}
    frames = [msgpack.packb({"v": 3, "s": "msgpack", "c": "none"}), msgpack.packb([{"kind": "push", **said}, []])]
    with (
        ps.Server({"w": np.zeros(2)}, ps.Config(workers=1)).serve() as server,
        ps.Tcp().connect(server.address, server.token) as channel,
        pytest.raises(ValueError, match=f"The header of push needs .* under '{missing}'; got None"),
    ):
        channel.call(frames).result(WAIT_S)


ANSWER = {"clock": 0, "done": False, "outcome": None, "version": 0}
HELLO = {**ANSWER, "layout": {"w": [[2], "float32", 0, 2]}, "index": 0, "servers": 1, "silence_s": 30.0}
HELLO |= {"rejoin_s": 0.25, "secret": "ab" * 16}
BAD = [
    *({**HELLO, name: "x"} for name in HELLO if name not in ("version", "secret")),
    {**HELLO, "secret": 7},
    *(
        {key: value for key, value in HELLO.items() if key != name}
        for name in HELLO
        if name not in ("version", "outcome")
    ),
    {**HELLO, "layout": {"w": [[2], "float32", 0]}},
    {**HELLO, "layout": {"w": 3}},
    {**HELLO, "layout": {"w": [2, "float32", 0, 2]}},
    {**HELLO, "busy": "x"},
    {**HELLO, "silence_s": float("nan")},
]


@pytest.mark.parametrize("said", BAD, ids=lambda said: ",".join(sorted(said)))
def test_a_client_refuses_a_malformed_answer_in_a_sentence(said):
    stamp = {name: said[name] for name in ("clock", "done", "outcome", "busy") if name in said}
    header = {name: value for name, value in said.items() if name not in stamp}
    envelope = msgpack.packb({"v": 3, "s": "msgpack", "c": "none", **stamp})
    with (
        ps.Tcp().serve(lambda frames: [envelope, msgpack.packb([header, []])], token="t") as endpoint,
        pytest.raises(
            ValueError, match=r"^(The answer to hello|The first frame, a minips envelope,) needs .*; got .*\.$"
        ),
    ):
        ps.connect(endpoint.address, ps.Config(), token="t")


# What the page says of the order of calls, of rows and of heads


def test_the_head_of_a_call_is_read_by_its_length_alone():
    config = ps.Config(workers=1, consistency="asp")
    frames = [msgpack.packb({"v": 3, "s": "msgpack", "c": "none"}), msgpack.packb([{"kind": "hello", "worker": 0}, []])]
    with ps.Server({"w": np.zeros(2)}, config, rejoin_s=0.01).serve(token="t") as server:
        for tag, zeros in ((0, b"abc"), (1, bytes(3)), (2, bytes(3)), (4, bytes(3)), (255, b"\xff" * 3)):
            wire = auth.authenticate(ps.Tcp().dial(server.address, WAIT_S), "t", server.address, WAIT_S)
            body = b"".join(framing.pieces(tag, frames))
            wire.write([body[:1] + zeros + body[4:]])
            assert wire.receive(WAIT_S)[0] == 0
            wire.send(0, [frames[0], msgpack.packb([{"kind": "bye", "worker": 0}, []])])
            assert wire.receive(WAIT_S)[0] == 0
            wire.close()


def test_rows_without_names_bring_the_other_tensors_whole_and_repeat_in_order():
    config = ps.Config(transport="inproc", workers=1, consistency="asp")
    params = {"w": np.arange(6.0).reshape(3, 2), "b": np.ones(2)}
    with (
        ps.Server(params, config).serve(token="t") as server,
        ps.connect(server.address, config, token="t") as client,
    ):
        pulled = client.pull(rows={"w": [2, 0, 2]}).result(WAIT_S)
        np.testing.assert_array_equal(pulled["w"], [[4, 5], [0, 1], [4, 5]])
        np.testing.assert_array_equal(pulled["b"], [1, 1])


def test_a_second_push_waits_for_its_round_and_a_late_worker_goes_on_at_the_clock_of_its_answer():
    config = ps.Config(transport="inproc", workers=2, consistency={"name": "bsp", "backup": 1})
    ones = {"w": np.ones(2)}
    with (
        ps.Server({"w": np.zeros(2)}, config).serve(token="t") as server,
        ps.connect(server.address, config, worker=0, token="t") as fast,
        ps.connect(server.address, config, worker=1, token="t") as slow,
    ):
        for _ in range(3):
            assert fast.push(ones).result(WAIT_S) == "applied"
        assert slow.push(ones).result(WAIT_S) == "late"
        assert slow.clock == 3
    config = dataclasses.replace(config, consistency="bsp")
    with (
        ps.Server({"w": np.zeros(2)}, config).serve(token="t") as server,
        ps.connect(server.address, config, worker=0, token="t") as fast,
        ps.connect(server.address, config, worker=1, token="t") as slow,
    ):
        assert fast.push(ones).result(WAIT_S) == "held"
        second = fast.push(ones)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        assert slow.push(ones).result(WAIT_S) == "applied"
        assert second.result(WAIT_S) == "held"


def test_the_page_tells_every_word():
    told = re.findall(r"^\| `(\w+)` \| .*\|$", TEXT[TEXT.index("| `kind`") :], re.MULTILINE)
    assert set(REQUESTS) <= set(told)


def test_the_session_proves_the_token():
    (_, challenge), (_, proof), (_, answer), *_ = session()
    theirs, ours = challenge[128:160], proof[64:96]
    assert proof[128:160] == hmac.digest(b"secret", b"client" + theirs + ours, "sha256")
    assert answer[64:96] == hmac.digest(b"secret", b"server" + ours + theirs, "sha256")


def test_every_quantizer_is_shown_and_described():
    shown = [quantizer.name for quantizer, _, _ in arrays()]
    assert {*shown} == {*names("quantizer")}
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
    x = (
        np.arange(-4, 6, dtype="f4") / 4
        if parts.get("like", x).size == 0 and parts.get("like", x).shape[1:] == (10,)
        else x
    )
    encoded = quantizer.encode(x, np.random.default_rng(0))
    assert list(encoded) == list(parts)
    for name, part in parts.items():
        assert (encoded[name].dtype, encoded[name].shape) == (part.dtype, part.shape)
        if part.dtype.kind == "f" and quantizer.name == "powersgd":  # LAPACK's last bits differ from machine to machine
            np.testing.assert_allclose(np.abs(encoded[name]), np.abs(part), rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(encoded[name], part)
