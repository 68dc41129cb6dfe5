"""The folder of a checkpoint: what a server finds there after a crash, what it refuses, and a disk that is full."""

import contextlib
import dataclasses
import os
import random
import resource
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import minips as ps
from minips.drivers.journal import Journal
from minips.results import saved
from minips.results.origin import origin_of

SMALL = 2**16
"""The size of a journal's file that a few pushes fill."""
ONE = ps.Config(workers=1, consistency="asp", transport="inproc", optimizer=ps.Adam(lr=0.1))
DELTA = ps.Codec(quantizer=ps.TopK(fraction=0.25), memory=ps.Delta())
PARAMS = {"w": np.zeros((8, 4), np.float32), "b": np.zeros(3)}


def gradients(clock):
    rng = np.random.default_rng(clock)
    return {name: rng.standard_normal(x.shape).astype(x.dtype) for name, x in PARAMS.items()}


def kept(folder, config=ONE, **fields):
    fields = {"every": 10, "journal_bytes": SMALL, **fields}
    return ps.Server(PARAMS, config, checkpoint=ps.Checkpoint(folder, **fields))


def serve(*how, **fields):
    return kept(*how, **fields).serve(token="t" * 16)


def crashed(folder, pushes, config=ONE, **fields):
    """A copy of the folder of a server that has acknowledged these pushes, as kill -9 leaves it; and its parameters."""
    with (
        serve(folder / "alive", config, **fields) as server,
        ps.connect(server.address, config, token=server.token) as client,
    ):
        for clock in range(pushes):
            client.push_pull(gradients(clock)).result(10)
        if writer := server._files._writer:
            writer.join(10)
        shutil.copytree(folder / "alive", folder / "crashed")
        return folder / "crashed", server.params


def recovered(folder, config=ONE, **fields):
    with kept(folder, config, **fields) as server:
        return server.params, server.shard


def same(params, others):
    assert params.keys() == others.keys()
    for name, p in params.items():
        assert p.tobytes() == others[name].tobytes()


@pytest.mark.parametrize("codec", [ps.Codec(), DELTA], ids=["exact", "delta"])
@pytest.mark.parametrize("pushes", [0, 1, 9, 10, 11, 200])
def test_a_server_goes_on_with_all_that_it_has_acknowledged(tmp_path, pushes, codec):
    config = dataclasses.replace(ONE, push=codec)
    folder, params = crashed(tmp_path, pushes, config)
    again, shard = recovered(folder, config)
    same(again, params)
    assert (shard.clocks, shard.version, shard.applied) == ([pushes], pushes, pushes)


def test_a_folder_keeps_the_last_snapshots_of_bounded_size(tmp_path):
    folder, _ = crashed(tmp_path, 200, keep=3)
    names = sorted(path.name for path in folder.glob("server-0-*.npz"))
    assert len(names) == 3  # of more: a snapshot that is due waits until the one before is written
    assert {path.stat().st_size for path in folder.glob("*.journal-?")} == {SMALL}
    run = ps.Run.load(folder)
    assert run.updates == max(int(name.split("-")[2][:-4]) for name in names)
    assert (run.stopped, run.diverged) == (True, None)


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_only_their_owner_reads_the_files_that_hold_secrets(tmp_path):
    folder, _ = crashed(tmp_path, 25)
    files = [*folder.glob("server-0-*.npz"), *folder.glob("*.journal-?")]
    assert len(files) == 4
    assert {path.stat().st_mode & 0o077 for path in files} == {0}


def test_a_server_whose_address_is_taken_leaves_no_file_open(tmp_path):
    tcp = dataclasses.replace(ONE, transport="tcp")
    with kept(tmp_path / "a", tcp).serve() as one, pytest.raises(OSError, match="in use"):
        kept(tmp_path / "b", tcp).serve(one.address)
    for path in (tmp_path / "b").iterdir():  # `nothing_is_left` has looked at the descriptors; the folder goes on
        assert path.exists()
    with kept(tmp_path / "b", tcp) as again:
        assert again.shard.clocks == [0]


def test_each_server_of_a_run_may_have_a_folder_of_its_own(tmp_path):
    config = dataclasses.replace(ONE, servers=2)
    with ps.Server(PARAMS, config, index=1, checkpoint=tmp_path / "one"):
        pass
    assert ps.Checkpoint(tmp_path / "one").config() == config


def test_the_losses_and_the_counts_of_the_time_before_are_there(tmp_path):
    with serve(tmp_path) as server, ps.connect(server.address, ONE, token=server.token) as client:
        for clock in range(25):
            client.push(gradients(clock), loss=float(clock)).result(10)
        server._files._writer.join(10)
        shutil.copytree(tmp_path, tmp_path.with_name("copy"))
        losses = list(server.losses)
    with serve(tmp_path.with_name("copy")) as again:
        rows = [(step, loss) for _, step, loss in again.losses]
        assert rows == [(step, loss) for _, step, loss in losses] == [(n + 1, float(n)) for n in range(25)]
        assert all(abs(now - then) < 1 for (now, *_), (then, *_) in zip(again.losses, losses, strict=True))
        assert again.shard.staleness == server.shard.staleness
        assert [text for _, text in again.events][-1].endswith(" pushes from its journal")


def test_a_session_keeps_its_rank_and_others_do_not_get_it(tmp_path):
    with serve(tmp_path / "a") as server, ps.connect(server.address, ONE, token=server.token) as client:
        client.push_pull(gradients(0)).result(10)
        secret = client.protocol.servers[0].secret
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    with serve(tmp_path / "b") as again:
        with pytest.raises(ValueError, match="Worker 0 is held by another session"):
            ps.connect(again.address, ONE, token=again.token)
        with ps.drivers.client.Client([again.address], ONE, 0, again.token, secrets=[secret]) as client:
            assert client.clock == 1


def test_a_worker_that_does_not_come_back_leaves_once_another_has_come(tmp_path):
    two = dataclasses.replace(ONE, workers=2, consistency=ps.BSP())
    with serve(tmp_path / "a", two) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ps.connect(server.address, two, worker=i, token=server.token)) for i in (0, 1)]
        clients[0].push(gradients(0)).result(10)
        secret = clients[0].protocol.servers[0].secret
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    checkpoint = ps.Checkpoint(tmp_path / "b", every=10, journal_bytes=SMALL)
    with ps.Server(PARAMS, two, checkpoint=checkpoint, silence_s=0.2).serve(token="t" * 16) as again:
        assert (again.shard.clocks, again.shard.live) == ([1, 0], {0, 1})
        with ps.drivers.client.Client([again.address], two, 0, again.token, secrets=[secret]) as client:
            client.pull().result(10)
        assert again.shard.version == 1
        assert any("worker 1 did not come back after the server's restart" in text for _, text in again.events)


OTHERS = {
    "another config": (lambda folder: None, {"config": ONE.with_({"optimizer": "sgd"})}, "it differs in optimizer"),
    "a snapshot cut in two": (lambda folder: cut(newest(folder)), {}, "is not a complete file of a saved run"),
    "a foreign snapshot": (lambda folder: newest(folder).write_bytes(b"hello"), {}, "is not a complete file"),
    "another server's snapshot": (lambda folder: rename(folder), {}, "is not a snapshot of server 0"),
    "no snapshot": (lambda folder: [path.unlink() for path in folder.glob("*.npz")], {}, "without its snapshot"),
    "no journal": (lambda folder: [path.unlink() for path in folder.glob("*.journal-?")], {}, "are missing"),
    "another size": (lambda folder: None, {"journal_bytes": 2 * SMALL}, "bytes"),
}


def newest(folder):
    return max(folder.glob("server-0-*.npz"), key=lambda path: int(path.stem.split("-")[2]))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1000])


def rename(folder):
    values = saved.read(newest(folder))
    saved.write(newest(folder), {**values, "who": "server 1"})


@pytest.mark.parametrize(("change", "how", "words"), OTHERS.values(), ids=OTHERS)
def test_what_a_server_cannot_go_on_with_is_a_sentence(tmp_path, change, how, words):
    folder, _ = crashed(tmp_path, 25)
    change(folder)
    with pytest.raises(ValueError, match=words) as error:
        recovered(folder, **how)
    assert str(error.value).endswith((".", "?"))
    assert "\n" not in str(error.value)


def mutate(folder, rng):
    """Damage one file: flip a bit, zero or repeat a block, cut the end off, delete it, or exchange it with another."""
    path = rng.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    at, size = rng.randrange(len(data)), rng.choice([1, 8, 64, 512])
    kind = rng.choice(["flip", "zero", "repeat", "cut", "delete", "swap"])
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "zero":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "repeat":
        block = data[at : at + size]
        to = rng.randrange(len(data))
        data[to : to + len(block)] = block[: len(data) - to]
    elif kind == "cut":
        del data[at:]
    elif kind == "delete":
        path.unlink()
        return f"delete {path.name}"
    else:
        other = rng.choice(sorted(folder.iterdir()))
        data, mine = bytearray(other.read_bytes()), data
        other.write_bytes(mine)
    path.write_bytes(data)
    return f"{kind} {path.name} at {at}, {size} bytes"


def damaged(tmp_path, seeds):
    config = dataclasses.replace(ONE, push=DELTA)
    folder, params = crashed(tmp_path, 57, config)
    outcomes = {"bits": 0, "sentence": 0}
    for seed in seeds:
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        what = mutate(copy, random.Random(seed))
        try:
            again, shard = recovered(copy, config)
        except (ValueError, OSError) as error:
            refused = str(error)
            assert refused.endswith((".", "?")), what
            outcomes["sentence"] += 1
        else:
            assert all(p.tobytes() == params[name].tobytes() for name, p in again.items()), what
            assert shard.clocks == [57], what
            outcomes["bits"] += 1
        shutil.rmtree(copy)
    assert min(outcomes.values()) > len(seeds) // 10


def test_a_damaged_folder_is_a_sentence_or_the_undisturbed_bits(tmp_path):
    damaged(tmp_path, range(60))


@pytest.mark.soak
def test_two_thousand_damaged_folders_are_sentences_or_the_undisturbed_bits(tmp_path):
    damaged(tmp_path, range(100, 2100))


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the size of files")
def test_a_full_disk_refuses_the_push_and_leaves_clock_and_file_as_they_were(tmp_path):
    program = """
        import resource, sys, numpy as np, minips as ps
        sys.path.insert(0, sys.argv[2])
        from test_checkpoints import ONE, gradients, serve
        with serve(sys.argv[1]) as server, ps.connect(server.address, ONE, token=server.token) as client:
            for clock in range(5):
                client.push_pull(gradients(clock)).result(10)
            before = server.params, list(server.shard.clocks), server._files._journal.number
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
            try:
                client.push_pull(gradients(5)).result(10)
            except RuntimeError as error:
                print(error)
            assert (list(server.shard.clocks), server._files._journal.number) == before[1:]
            assert all(x.tobytes() == before[0][name].tobytes() for name, x in server.params.items())
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            client.push_pull(gradients(5)).result(10)
            assert server.shard.clocks == [6]
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "run"), os.path.dirname(__file__)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "was refused, and nothing was changed, since it cannot be written to the journal" in done.stdout
    _, shard = recovered(tmp_path / "run")
    assert shard.clocks == [6]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100


def test_train_refuses_a_folder_that_holds_a_run_unless_it_resumes(tmp_path):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    config = ps.Config(workers=2, steps=12, transport="inproc")
    run = ps.train(problem, config, engine="threads", checkpoint=ps.Checkpoint(tmp_path / "run", every=4))
    same(ps.Run.load(tmp_path / "run").params, run.params)
    with pytest.raises(ValueError, match=r"holds a run\. Go on with it by resume="):
        ps.train(problem, config, engine="threads", checkpoint=tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no run to go on with"):
        ps.train(problem, config, engine="threads", resume=tmp_path / "empty")
    with pytest.raises(ValueError, match="differ in their class"):
        ps.train(ps.LinearRegression(problem.X, problem.y * 1.0), config, engine="threads", resume=tmp_path / "run")
    same(ps.Run.load(tmp_path / "run").params, run.params)  # what is refused loses nothing
    longer = dataclasses.replace(config, steps=20)
    more = ps.train(problem, longer, engine="threads", resume=tmp_path / "run")
    same(more.params, ps.train(problem, longer, engine="threads").params)
    assert (more.updates, len(more.losses)) == (40, 20)
    with pytest.raises(TypeError, match=r"checkpoint takes a ps.Checkpoint, or the path of its folder; got 7"):
        ps.train(problem, config, checkpoint=7)


def test_a_snapshot_resumes_like_a_saved_run_in_another_folder(tmp_path):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    push = ps.Codec(quantizer=ps.TopK(fraction=0.2), memory=ps.ErrorFeedback())
    config = ps.Config(workers=2, servers=2, steps=10, transport="inproc", push=push, optimizer="adam")
    slow = dataclasses.replace(config, delays=ps.Delays(seconds=0.05))  # each snapshot is written before the next
    ps.train(problem, slow, engine="threads", checkpoint=ps.Checkpoint(tmp_path / "run", every=4))
    (tmp_path / "run" / "run.npz").unlink()
    before = ps.Run.load(tmp_path / "run", problem)
    assert before.updates == 16
    assert all(before.state["workers"])
    run = ps.train(problem, config, engine="threads", resume=before, checkpoint=tmp_path / "other")
    same(run.params, ps.train(problem, config, engine="threads").params)
    assert before.predict(problem.X[:3]).shape == (3,)


def test_a_snapshot_that_cannot_be_written_is_an_event_and_the_journal_goes_on(tmp_path):
    with serve(tmp_path) as server, ps.connect(server.address, ONE, token=server.token) as client:
        (tmp_path / "server-0-10.npz").mkdir()
        for clock in range(15):
            client.push_pull(gradients(clock)).result(10)
        server._files._writer.join(10)
        assert any("a snapshot could not be written: " in text for _, text in server.events)
        assert server.shard.clocks == [15]
        (tmp_path / "server-0-10.npz").rmdir()
    again, shard = recovered(tmp_path)
    assert shard.clocks == [15]
    same(again, server.params)


def test_a_journal_has_room_for_a_round_of_a_wordy_serializer(tmp_path):
    params = {"w": np.zeros(500_000, np.float32)}
    config = dataclasses.replace(ONE, push=ps.Codec(serializer=ps.Json()), workers=4)
    with ps.Server(params, config, checkpoint=ps.Checkpoint(tmp_path)) as server:
        assert server._files._journal.nbytes > 4 * 4 * 3 * params["w"].nbytes


def test_a_folder_that_holds_no_run_yet_takes_another_problem_and_other_workers(tmp_path):
    checkpoint = ps.Checkpoint(tmp_path)
    for classes, workers in ((2, 2), (3, 4)):
        problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=32, classes=classes))
        checkpoint.keep_origin(origin_of(problem, problem.init(np.random.default_rng(0))))
        assert len(checkpoint.secrets(workers)) == workers


def test_a_server_starts_where_nobody_has_written_a_first_snapshot_yet(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for index in range(2):  # of servers that start at the same time, or were killed just before their first snapshot
        Journal(folder / f"server-{index}", bytes(16), 2**16).close()
    (tmp_path / "token").write_text("t" * 32)
    (tmp_path / "token").chmod(0o600)
    command = [sys.executable, "-m", "minips", "serve", "--checkpoint", str(folder), "--index", "1"]
    command += ["--servers", "2", "--bind", "tcp://127.0.0.1:0", "--token-file", str(tmp_path / "token")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout.readline().startswith(f"minips: the run is kept in {folder}")
        finally:
            process.kill()
    assert ps.Checkpoint(folder).config().servers == 2


def test_two_servers_never_use_one_folder(tmp_path):
    config = ps.Config(workers=1, steps=4)
    with ps.Server(PARAMS, config, checkpoint=tmp_path / "run").serve(token="t" * 32) as server:
        with pytest.raises(OSError, match=r"is in use by another process.*choose another folder"):
            ps.Server(PARAMS, config, checkpoint=tmp_path / "run")
        with ps.connect(server.address, config, token="t" * 32) as client:
            client.push({name: np.ones_like(x) for name, x in PARAMS.items()}).result(30.0)
        ended = {name: x.copy() for name, x in server.params.items()}
    with ps.Server(PARAMS, config, checkpoint=tmp_path / "run").serve(token="t" * 32) as server:
        for name, x in ended.items():
            assert server.params[name].tobytes() == x.tobytes()
