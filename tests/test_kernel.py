"""A notebook's stop button: one sentence, no process left, and the kernel goes on."""

import queue
import time

import psutil
import pytest
from jupyter_client.manager import start_new_kernel


def started():
    """A kernel. Another program may take a port that was free when the kernel's were chosen: once more then."""
    try:
        return start_new_kernel(kernel_name="python3")
    except RuntimeError:
        return start_new_kernel(kernel_name="python3")


LONG_RUN = """
import minips as ps
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))
config = ps.Config(workers=2, steps=10_000, delays=ps.Delays(seconds=0.01))
ps.train(problem, config, progress=lambda now: print("under way") if now.applied else None)
"""


@pytest.mark.outside
def test_the_stop_button_during_a_run():
    manager, client = started()
    try:
        kernel = psutil.Process(manager.provisioner.process.pid)
        client.execute(LONG_RUN, stop_on_error=False)  # or the kernel would drop what comes right after the error
        heard = messages_until(client, lambda message: "under way" in message["content"].get("text", ""))
        workers = [child for child in kernel.children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]
        assert len(workers) == 4  # a server, two workers, and the process that they are forked from
        manager.interrupt_kernel()
        heard = messages_until(client, lambda message: message["msg_type"] == "error")
        shown = "\n".join(heard[-1]["content"]["traceback"])
        assert shown.strip() == "The run was interrupted; all that it started has ended."
        assert not [message for message in heard if message["content"].get("name") == "stderr"]
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
        client.execute("print(ps.train(problem, ps.Config(workers=2, steps=3)).updates)")
        messages_until(client, lambda message: message["content"].get("text", "").strip() == "6")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


PANEL_RUN = """
import minips as ps
from minips import lab
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))
config = ps.Config(workers=2, steps=100_000, delays=ps.Delays(seconds=0.01))
bench = lab.Workbench(problem, config, predict=False)
bench.run("A")
"""


@pytest.mark.soak
@pytest.mark.outside
def test_the_stop_button_ends_the_run_of_a_panel():
    manager, client = started()
    try:
        client.execute_interactive(PANEL_RUN, timeout=60)
        kernel = psutil.Process(manager.provisioner.process.pid)
        deadline = time.monotonic() + 30
        while len(workers := kernel.children(recursive=True)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        manager.interrupt_kernel()
        client.execute("print(bench.wait(30), bench.runs['A'].stopped, bench.job.run_button.disabled)")
        messages_until(client, lambda message: message["content"].get("text", "").strip() == "True True False")
        _, alive = psutil.wait_procs([one for one in workers if "spawn_main" in cmdline(one)], timeout=10)
        assert not alive
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def cmdline(process):
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def messages_until(client, last):
    """All that the kernel says, to the first message for which ``last`` holds."""
    heard = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            heard.append(client.get_iopub_msg(timeout=1))
        except queue.Empty:
            continue
        if last(heard[-1]):
            return heard
    raise AssertionError(f"the kernel never said it; it said {[message['content'] for message in heard]}")
