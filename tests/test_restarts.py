"""An engine starts a process that has died again, and the run ends at the undisturbed bits."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import minips as ps
from minips import seeds

PROBLEM = ps.SoftmaxRegression(*ps.datasets.digits())
STEPS, WAIT_S = 120, 60.0
DELAYS = ps.Delays(seconds=0.004)
"""A step's time, so that a kill strikes while the run is under way."""
CODECS = {
    "exact": ps.Codec(),
    "feedback": ps.Codec(quantizer=ps.TopK(fraction=0.1), memory=ps.ErrorFeedback()),
    "delta": ps.Codec(quantizer=ps.TopK(fraction=0.1), memory=ps.Delta()),
    "qsgd": ps.Codec(quantizer=ps.QSGD()),
}
BASE = ps.Config(workers=2, steps=STEPS, batch_size=32, optimizer=ps.Adam(lr=0.01))


def config_of(codec="exact", **fields):
    return dataclasses.replace(BASE, push=CODECS[codec], **fields)


def same(run, config):
    undisturbed = ps.train(PROBLEM, config, engine="threads")
    assert run.updates == undisturbed.updates
    for name, p in run.params.items():
        assert p.tobytes() == undisturbed.params[name].tobytes()
    assert [row[1:] for row in run.losses] == [row[1:] for row in undisturbed.losses]


class Killer:
    """A progress callback that kills processes of the run, each at a clock, and notes which of them it has struck."""

    def __init__(self, *plan, number=signal.SIGKILL):
        self.left, self.struck, self.number = list(plan), [], number

    def __call__(self, progress):
        clock = progress.applied * STEPS // progress.updates
        while self.left and clock >= self.left[0][0]:
            _, who = self.left.pop(0)
            for process in psutil.Process().children(recursive=True):
                with_name = process.name() == "minips-" + who.replace(" ", "")
                if with_name and process.status() != psutil.STATUS_ZOMBIE:
                    process.send_signal(self.number)
                    self.struck.append((who, clock))


def train(config, *plan, restart=3, **how):
    """Train while these parties are killed at these clocks; each of them has to be struck."""
    killer = Killer(*plan)
    slow = dataclasses.replace(config, delays=DELAYS)
    run = ps.train(PROBLEM, slow, engine=ps.Processes(restart=restart), progress=killer, **how)
    assert [who for who, _ in killer.struck] == [who for _, who in plan]
    assert all(clock < STEPS for _, clock in killer.struck)
    return run


def test_a_killed_server_and_a_killed_worker_are_started_again():
    config = config_of("delta", servers=2)
    run = train(config, (30, "server 1"), (70, "worker 0"))
    same(run, config)
    texts = [text for _, text in run.events]
    assert "server 1 was started again: its process was killed by SIGKILL" in texts
    assert "worker 0 was started again: its process was killed by SIGKILL" in texts
    assert any(text.startswith("server 1: the run goes on from") for text in texts)
    times = [at for at, _, _ in run.losses]
    assert times == sorted(times)


def test_a_server_that_is_started_again_in_a_pause_goes_on_after_it():
    config = config_of()
    killer = Killer((40, "server 0"))
    steps = []

    def strike(now):
        steps.append(now.step)
        killer(ps.Progress.of(config, 2 * now.step, 2 * STEPS, []))

    slow = dataclasses.replace(config, delays=DELAYS)
    run = ps.train(PROBLEM, slow, engine=ps.Processes(restart=1), every=20, on_eval=strike)
    assert killer.struck
    assert steps == [20, 40, 60, 80, 100, 120]
    same(run, config)


@pytest.mark.soak
def test_after_the_last_restart_the_error_names_the_folder_with_the_run(tmp_path):
    config = config_of()
    with pytest.raises(RuntimeError, match="server 0 ended before its work was done") as error:
        train(config, (40, "server 0"), restart=0, checkpoint=tmp_path / "run")
    assert str(error.value).endswith(f"resume={str(tmp_path / 'run')!r}.")
    same(ps.train(PROBLEM, config, resume=tmp_path / "run"), config)


def test_a_ring_whose_rank_is_killed_starts_again_from_its_last_common_snapshot(tmp_path):
    config = config_of("feedback", exchange=ps.RingAllReduce())
    run = train(config, (50, "worker 1"), checkpoint=ps.Checkpoint(tmp_path / "run", every=20))
    same(run, config)
    assert any("all workers were started again, since worker 1" in text for _, text in run.events)


def without_its_parent(folder, config, at):
    """Train in a process that is killed with all its children at this clock; then go on here."""
    program = f"""
        import os, signal, dataclasses
        import minips as ps
        from test_restarts import CODECS, DELAYS, PROBLEM

        def strike(progress):
            if progress.applied >= {at} * progress.updates // {STEPS}:
                os.killpg(0, signal.SIGKILL)

        if __name__ == "__main__":
            config = ps.Config.from_dict({config.to_dict()!r})
            slow = dataclasses.replace(config, delays=DELAYS)
            checkpoint = ps.Checkpoint({str(folder)!r}, every=20)
            ps.train(PROBLEM, slow, checkpoint=checkpoint, progress=strike)
    """
    file = folder.with_name("parent.py")
    file.write_text(textwrap.dedent(program))
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    process = subprocess.Popen([sys.executable, file], start_new_session=True, env={**os.environ, "PYTHONPATH": path})
    assert process.wait(WAIT_S) == -signal.SIGKILL
    deadline = time.monotonic() + WAIT_S
    while any(_of_group(each, process.pid) for each in psutil.process_iter()) and time.monotonic() < deadline:
        time.sleep(0.02)
    same(ps.train(PROBLEM, config, resume=folder), config)


def _of_group(process, group):
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def test_a_run_goes_on_after_its_parent_and_all_children_were_killed(tmp_path):
    without_its_parent(tmp_path / "run", config_of("delta", servers=2), 50)


@pytest.mark.soak
def test_a_ring_goes_on_after_its_parent_was_killed(tmp_path):
    without_its_parent(tmp_path / "run", config_of("feedback", exchange=ps.RingAllReduce()), 50)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("servers", [1, 2])
def test_ten_times_a_run_goes_on_after_its_parent_was_killed(tmp_path, servers, seed):
    codec = ["exact", "feedback", "delta", "qsgd"][seed % 4]
    without_its_parent(tmp_path / "run", config_of(codec, servers=servers), random.Random(seed).randrange(10, 110))


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_five_times_a_ring_whose_rank_is_killed_starts_again(tmp_path, seed):
    config = config_of(["exact", "feedback"][seed % 2], exchange=ps.RingAllReduce())
    at = random.Random(seed).randrange(10, 110)
    same(train(config, (at, f"worker {seed % 2}"), checkpoint=ps.Checkpoint(tmp_path / "run", every=20)), config)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("codec", ["exact", "feedback", "qsgd"])
def test_twenty_times_a_killed_worker_is_started_again(codec, servers, seed):
    config = config_of(codec, servers=servers)
    same(train(config, (random.Random(seed).randrange(10, 110), f"worker {seed % 2}")), config)


@pytest.mark.parametrize(("seconds", "silent"), [(0.3, False)])
def test_a_worker_that_is_stopped_for_less_than_the_silence_goes_on(seconds, silent):
    config = config_of()
    stopper = Killer((40, "worker 1"), number=signal.SIGSTOP)

    def stop_and_go_on(progress):
        before = len(stopper.struck)
        stopper(progress)
        if len(stopper.struck) > before:
            time.sleep(seconds)
            for process in psutil.Process().children(recursive=True):
                if process.name() == "minips-worker1":
                    process.send_signal(signal.SIGCONT)

    slow = dataclasses.replace(config, delays=DELAYS)
    same(ps.train(PROBLEM, slow, engine=ps.Processes(restart=1), progress=stop_and_go_on), config)
    assert stopper.struck


@pytest.mark.soak
@pytest.mark.parametrize("consistency", [ps.BSP(), ps.ASP()])
def test_a_worker_that_is_stopped_for_longer_than_the_silence_no_longer_counts_until_it_comes_back(
    tmp_path, consistency
):
    config = config_of(transport=ps.Tcp(), delays=ps.Delays(seconds=0.02), consistency=consistency)
    (tmp_path / "token").write_text("t" * 32)
    (tmp_path / "token").chmod(0o600)
    start = PROBLEM.init(seeds.init(config.seed))
    with (
        ps.Server(start, config, silence_s=1.0, updates=2 * STEPS).serve(token="t" * 32) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        command = [sys.executable, "-m", "minips", "work", "--connect", server.address]
        command += ["--token-file", str(tmp_path / "token"), "--rank", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            other = pool.submit(ps.work, PROBLEM, server.address, token="t" * 32, rank=0, timeout=WAIT_S)
            ended = pool.submit(server.wait, WAIT_S)
            try:
                wait_until(lambda: server.shard.applied >= STEPS // 2)
                process.send_signal(signal.SIGSTOP)
                silent = wait_until(lambda: server.events)
                process.send_signal(signal.SIGCONT)
                said, _ = process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
        run = ended.result(WAIT_S)
        assert other.result(WAIT_S).pushes > 0
    assert process.returncode == 0, said
    assert [text for _, text in run.events] == [text for _, text in silent]
    assert run.events[0][1].startswith("worker 1 has been silent for 1.")
    assert run.events[0][1].endswith("it no longer counts")
    assert run.updates <= 2 * STEPS if consistency == ps.BSP() else run.updates == 2 * STEPS
    assert run.losses[-1][-1] < run.losses[0][-1]


def wait_until(true):
    """Wait until a function returns something that is true. Returns a copy of it."""
    deadline = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found if found is True else [*found]
