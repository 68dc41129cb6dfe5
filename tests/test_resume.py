"""Runs that are saved, loaded and resumed, and files that are none."""

import contextlib
import json
import zipfile

import numpy as np
import pytest

import minips as ps
from minips.results import saved

PROBLEM = ps.SoftmaxRegression(*ps.datasets.digits())
TOPK = ps.Codec(quantizer=ps.TopK(fraction=0.05), memory=ps.ErrorFeedback())
OPTIMIZERS = [ps.SGD(momentum=0.9, nesterov=True, schedule=ps.Cosine(steps=40)), ps.Adagrad(), ps.Adam(lr=0.01)]


def assert_same(run, other):
    assert run.params.keys() == other.params.keys()
    for name, p in run.params.items():
        np.testing.assert_array_equal(p, other.params[name], strict=True)


def halves(config, path, engine):
    """The whole run, and the run of its second half, resumed from the file of the first."""
    whole = ps.train(PROBLEM, config, engine=engine)
    ps.train(PROBLEM, config.with_({"steps": config.steps // 2}), engine=engine).save(path)
    return whole, ps.train(PROBLEM, config, engine=engine, resume=path)


@pytest.mark.parametrize("push", [ps.Codec(), TOPK], ids=["exact", "topk"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
def test_20_steps_saved_and_resumed_to_40_are_40_steps(optimizer, push, tmp_path):
    config = ps.Config(optimizer=optimizer, push=push, workers=2, servers=2, steps=40)
    whole, rest = halves(config, tmp_path / "run.npz", "simulated")
    assert_same(whole, rest)
    assert [row[1:] for row in whole.losses] == [row[1:] for row in rest.losses]
    assert (rest.updates, rest.config) == (80, config)


@pytest.mark.soak
@pytest.mark.parametrize("push", [ps.Codec(), TOPK], ids=["exact", "topk"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
def test_20_steps_saved_and_resumed_to_40_are_40_steps_in_processes(optimizer, push, tmp_path):
    config = ps.Config(optimizer=optimizer, push=push, workers=2, servers=2, steps=40)
    assert_same(*halves(config, tmp_path / "run.npz", "processes"))


@pytest.mark.parametrize(
    "fields",
    [
        {"overlap": True, "push": TOPK},
        {"pull": ps.Codec(quantizer=ps.QSGD()), "push": ps.Codec(quantizer=ps.QSGD())},
        {"pull": ps.Codec(quantizer=ps.Uniform(), memory=ps.Delta()), "push": ps.Codec(ps.Sign(), memory=ps.Delta())},
        {"exchange": ps.RingAllReduce(), "push": TOPK},
        {"exchange": ps.RingAllReduce(), "push": TOPK, "overlap": True},
        {"exchange": ps.TwoShot(), "push": ps.Codec(ps.QSGD(), ps.Delta())},
        {"sampling": "epoch", "accumulate": 2},
    ],
    ids=["overlap", "qsgd", "delta", "ring", "ring overlap", "two shots", "epoch"],
)
@pytest.mark.parametrize("engine", ["simulated", "threads"])
def test_resumed_runs_are_the_same_whatever_the_links_remember(fields, engine, tmp_path):
    assert_same(*halves(ps.Config(workers=2, steps=12, **fields), tmp_path / "run.npz", engine))


@pytest.mark.parametrize("engine", ["processes", "simulated"])
def test_a_run_without_rounds_goes_on_with_all_that_was_applied(engine, tmp_path):
    config = ps.Config(workers=3, steps=20, consistency="asp", push=ps.Codec(ps.Sign(), memory=ps.Delta()))
    first = ps.train(PROBLEM, config.with_({"steps": 10}), engine=engine)
    run = ps.train(PROBLEM, config, engine=engine, resume=first)
    assert (first.updates, run.updates, len(run.losses)) == (30, 60, 20)
    clocks = run.state["servers"][0]["shard"]["clocks"]
    assert sum(clocks) == 60  # those that came after an end have not been taken
    for worker, link in enumerate(run.state["servers"][0]["links"]):  # both halves of the memory hold the same
        sent = run.state["workers"][worker]["links"][0]["encoder"]["memory"]
        for name, state in link["decoder"]["memory"].items():
            np.testing.assert_array_equal(state["known"], sent[name]["known"])


def test_a_run_without_rounds_goes_on_with_rounds():
    config = ps.Config(workers=2, steps=6, consistency="asp", timeout_s=10.0)
    first = ps.train(PROBLEM, config, engine="threads")
    run = ps.train(PROBLEM, config.with_({"steps": 10, "consistency": "bsp"}), engine="threads", resume=first)
    assert (run.updates, run.late) == (20, 0)


def test_a_run_that_a_function_has_ended_goes_on_from_there(tmp_path):
    config = ps.Config(workers=2, servers=2, steps=20, push=TOPK, optimizer="adam")
    whole = ps.train(PROBLEM, config, engine="threads")
    for engine in ("threads", "simulated"):
        ended = ps.train(PROBLEM, config, engine=engine, every=5, on_eval=lambda now: now.step == 10)
        assert ended.stopped
        assert ended.updates == 20
        assert_same(ps.train(PROBLEM, engine=engine, resume=ended), whole)  # the config is the run's


def test_a_resumed_run_holds_the_record_of_both(tmp_path):
    config = ps.Config(workers=2, steps=10)
    first = ps.train(PROBLEM, config.with_({"steps": 4}), engine="threads")
    run = ps.train(PROBLEM, config, engine="threads", resume=first)
    assert [step for _, step, _ in run.losses] == [*range(1, 11)]
    assert [at for at, _, _ in run.losses] == sorted(at for at, _, _ in run.losses)
    assert run.seconds > first.seconds
    assert run.bytes_sent > first.bytes_sent
    assert len(run.trace) > len(first.trace)
    assert run.staleness.total() == run.updates == 20
    assert_same(first, ps.train(PROBLEM, config.with_({"steps": 4}), engine="threads"))  # nothing was written into it


def test_a_saved_run_is_the_run(tmp_path):
    config = ps.Config(workers=3, steps=6, consistency="ssp", push=TOPK, link=ps.Link(latency_s=1e-4))
    run = ps.train(PROBLEM, config, engine="threads")
    run.save(tmp_path / "run")
    again = ps.Run.load(tmp_path / "run")
    for name, value in vars(run).items():
        if name == "trace":
            assert again.trace.spans == value.spans
        elif name not in ("params", "problem", "state"):
            assert getattr(again, name) == value, name
    assert_same(run, again)
    assert again.summary() == run.summary()
    np.testing.assert_array_equal(again.predict(PROBLEM.X), run.predict(PROBLEM.X))
    np.testing.assert_array_equal(ps.Run.load(tmp_path / "run", PROBLEM).predict(PROBLEM.X), run.predict(PROBLEM.X))


def test_numpy_alone_reads_the_parameters(tmp_path):
    run = ps.train(PROBLEM, ps.Config(workers=1, steps=2), engine="simulated")
    run.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        np.testing.assert_array_equal(file["params/W"], run.params["W"])


def test_saving_replaces_a_file_at_once_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(b"an older file")
    run = ps.train(PROBLEM, ps.Config(workers=1, steps=2), engine="simulated")
    run.state["servers"][0]["shard"]["policy_state"]["odd"] = object()
    with pytest.raises(TypeError, match=r"policy_state/odd is <object .*>, of type object, which cannot be saved"):
        run.save(path)
    assert path.read_bytes() == b"an older file"
    del run.state["servers"][0]["shard"]["policy_state"]["odd"]
    run.save(path)
    assert_same(ps.Run.load(path), run)
    assert [one.name for one in tmp_path.iterdir()] == ["run.npz"]


def test_values_come_back_as_they_were(tmp_path):
    values = {
        "a": [1, -2.5, float("inf"), None, True, "ü", 2**100],
        "b": {"t": (1, (2,)), 3: np.float32(1.5), ("x", 1): np.arange(6, dtype=">i2").reshape(2, 3)},
        "keys": {np.int64(0): np.float32(1.0), np.int64(1): np.ones(2), "1": np.zeros(2), 1: np.full(2, 3.0)},
        "empty": [{}, (), [], np.zeros((0, 3), "f4"), np.array(7.0)],
    }
    saved.write(tmp_path / "v", values)
    again = saved.read(tmp_path / "v")
    assert repr(again) == repr({"format": saved.FORMAT, **values})
    assert again["b"]["t"] == (1, (2,))
    assert isinstance(again["b"][3], np.float32)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.npz"
    ps.train(PROBLEM, ps.Config(workers=1, steps=2), engine="simulated").save(path)
    return path


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_torn_file_is_a_sentence(file, share):
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"run.npz is not a complete file of a saved run"):
        ps.train(PROBLEM, ps.Config(workers=1, steps=4), engine="simulated", resume=file)


def test_a_file_with_a_flipped_byte_is_a_sentence(file):
    whole = bytearray(file.read_bytes())
    for at in range(200, len(whole), max(1, len(whole) // 40)):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        file.write_bytes(broken)
        with contextlib.suppress(ValueError):  # some bytes mean nothing
            ps.Run.load(file)


def test_a_foreign_file_is_a_sentence(tmp_path):
    path = tmp_path / "foreign.npz"
    np.savez(path, w=np.zeros(3))
    with pytest.raises(ValueError, match=r"foreign.npz is not a file of minips: it has no entry 'minips'"):
        ps.Run.load(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"array.npy is not a complete file of a saved run"):
        ps.Run.load(tmp_path / "array.npy")
    np.savez(path, minips=np.frombuffer(b'{"map": [["format", 1]]}', np.uint8))
    with pytest.raises(ValueError, match="holds no saved run"):
        ps.Run.load(path)
    np.savez(path, minips=np.frombuffer(b"[1, 2]", np.uint8))
    with pytest.raises(ValueError, match="is not a file that minips wrote"):
        ps.Run.load(path)
    with pytest.raises(FileNotFoundError):
        ps.Run.load(tmp_path / "nothing")


def test_a_newer_file_is_a_sentence(file, tmp_path):
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    text = json.dumps({"map": [["format", saved.FORMAT + 1], ["anything", {"new": 1}]]}).encode()
    np.savez(tmp_path / "text.npz", minips=np.frombuffer(text, np.uint8))
    with zipfile.ZipFile(tmp_path / "text.npz") as archive:
        entries["minips.npy"] = archive.read("minips.npy")
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"has the format 2, and this minips reads formats up to 1. Install a newer"):
        ps.Run.load(file)


def test_what_does_not_go_together_is_refused():
    config = ps.Config(workers=2, steps=4)
    run = ps.train(PROBLEM, config, engine="simulated")

    def resume(problem=PROBLEM, run=run, engine="simulated", **fields):
        return ps.train(problem, config.with_({"steps": 8, **fields}), engine=engine, resume=run)

    with pytest.raises(
        ValueError, match=r"has applied 8 updates, and the config makes 8 in all. Config.steps is the total"
    ):
        resume(steps=4)
    with pytest.raises(ValueError, match="The run has workers 2, and the config 3"):
        resume(workers=3)
    with pytest.raises(ValueError, match="The run has optimizer 'sgd', and the config 'adam'"):
        resume(optimizer="adam")
    with pytest.raises(ValueError, match=r"The run has push.memory 'none', and the config 'errorfeedback'"):
        resume(push=TOPK)
    with pytest.raises(ValueError, match=r"differ in their class: minips.problems:LinearRegression and minips"):
        resume(ps.LinearRegression(*ps.datasets.diabetes()))
    with pytest.raises(TypeError, match="resume takes a Run, or the path of a saved one; got 7"):
        resume(run=7)
    with pytest.raises(ValueError, match="delay_versions=2 pulls return earlier parameters"):
        resume(engine=ps.Simulated(delay_versions=2))
    run.state = None
    with pytest.raises(ValueError, match="has no state"):
        resume()
    run.diverged = "At step 3."
    run.state = {}
    with pytest.raises(ValueError, match=r"A run that has diverged cannot resume: At step 3."):
        resume()


def test_all_that_does_not_go_together_is_told_at_once():
    run = ps.train(PROBLEM, ps.Config(workers=2, steps=4), engine="simulated")
    changes = {"workers": 3, "servers": 2, "optimizer": "adam", "local": ps.LocalSteps(2), "steps": 4}
    with pytest.raises(ValueError, match=r"The run has workers 2, and the config 3") as refused:
        ps.train(ps.LinearRegression(*ps.datasets.diabetes()), ps.Config(**changes), engine="simulated", resume=run)
    told = str(refused.value)
    assert "The run has servers 1, and the config 2: its state would not fit. The run has optimizer 'sgd'" in told
    assert "The run has local=None, and the config LocalSteps(" in told
    assert (
        "and the config makes 8 in all. Config.steps is the total: with workers=2 give more than 4, as in run." in told
    )
    assert "differ in their class: minips.problems:LinearRegression and" in told


@pytest.mark.parametrize(("workers", "steps"), [(1, 8), (1, 4), (4, 2), (4, 4), (2, 4)])
def test_too_few_steps_are_told_along_with_other_workers(workers, steps):
    run = ps.train(PROBLEM, ps.Config(workers=2, steps=4), engine="simulated")
    with pytest.raises(ValueError, match=r"The run has") as refused:
        ps.train(PROBLEM, ps.Config(workers=workers, steps=steps), engine="simulated", resume=run)
    told = str(refused.value)
    assert ("has workers 2, and the config" in told) == (workers != 2)
    assert ("Config.steps is the total" in told) == (steps <= 4)


def test_the_rate_may_change_where_a_run_goes_on():
    config = ps.Config(workers=2, steps=4, optimizer=ps.SGD(lr=0.5))
    run = ps.train(PROBLEM, config, engine="simulated")
    slower = config.with_({"steps": 8, "optimizer.lr": 0.05})
    assert ps.train(PROBLEM, slower, engine="simulated", resume=run).updates == 16
