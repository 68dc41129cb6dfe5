"""A real JupyterLab with a real kernel, and Debian's chromium to look at it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, Page

CHROMIUM = Path("/usr/bin/chromium")
LESSONS = Path(__file__).parents[2] / "lessons"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONFIG = """
from jupyterlab.galata import configure_jupyter_server
configure_jupyter_server(c)
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = {port}
c.ServerApp.allow_root = True
c.FileContentsManager.delete_to_trash = False
"""
NO_NEWS = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
PATIENCE_MS = 90_000
ADDRESS = r"http://localhost:\d+/(?:lab|tree)\S*\?token=\w+"
CLIPPED = """() => [...document.querySelectorAll('.minips-panel')].flatMap(panel => {
    const edge = panel.getBoundingClientRect()
    const label = '.widget-label, .widget-label-basic'
    const seen = [...panel.querySelectorAll(
            label + ', select, button, input, img, pre, td, p, h3, .lm-TabBar-tabLabel')]
        .filter(one => one.offsetParent !== null && one.getClientRects().length)
        .filter(one => !(one.matches(label) && one.closest('.minips-bare')))  // for screen readers alone
    const cut = seen.filter(one => {
        const box = one.getBoundingClientRect()
        const table = one.closest('.minips-table')
        return (!table && (box.right > edge.right + 1 || box.left < edge.left - 1))
            || (one.matches(label + ', pre, button, .lm-TabBar-tabLabel') && one.scrollWidth > one.clientWidth + 1)
            || (one.matches('.widget-label') && one.scrollHeight > one.clientHeight + 4)
    })
    const boxes = seen.filter(one => one.matches('select, button, input, img, .widget-label'))
    const overlapping = boxes.filter((one, i) => boxes.slice(i + 1).some(other => {
        const a = one.getBoundingClientRect(), b = other.getBoundingClientRect()
        return !one.contains(other) && !other.contains(one) && !one.parentElement.contains(other)
            && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1
    }))
    const scrolling = [panel, ...panel.querySelectorAll('*')].filter(one => one.offsetParent !== null
        && !one.matches('.minips-table, select, input') && one.scrollWidth > one.clientWidth + 1
        && ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
    return [...cut.map(one => 'cut: ' + one.outerHTML.slice(0, 200)),
            ...scrolling.map(one => 'scrolls: ' + one.outerHTML.slice(0, 200)),
            ...overlapping.map(one => 'overlaps: ' + one.outerHTML.slice(0, 200))]
})"""
"""What is cut off, scrolls sideways or lies over something else in the panels, as pieces of HTML."""


UNTOLD = """() => [...document.querySelectorAll('.minips-panel :is(select, input, button)')]
    .filter(one => one.offsetParent !== null && !one.closest('.minips-view') && !one.title)
    .map(one => one.outerHTML.slice(0, 200))"""
"""The controls without a description of their own, which screen readers say and a resting pointer is shown, as pieces
of HTML; those of views are tested with the views."""


LISTEN = """() => {
    window.unanswered = new Set()
    const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session
    kernel.anyMessage.connect((sender, {msg, direction}) => {
        if (direction === 'send' && msg.header.msg_type === 'comm_msg') window.unanswered.add(msg.header.msg_id)
        if (msg.header.msg_type === 'status' && msg.content.execution_state === 'idle')
            window.unanswered.delete(msg.parent_header.msg_id)
    })
}"""
"""From now on the page knows which of its widgets' messages the kernel has not dealt with yet."""


RESTS = """async () => {
    const {content, sessionContext} = window.jupyterapp.shell.currentWidget
    window.renderer ??= content.rendermime.createRenderer('application/vnd.jupyter.widget-view+json')
    const manager = await window.renderer._manager.promise
    return sessionContext.isReady && sessionContext.session.kernel.status === 'idle'
        && manager.restoredStatus && !manager._kernelRestoreInProgress
}"""
"""True if the kernel has started, and the page has asked it for the widgets that were there before."""
RESTING_S = 1.0
"""For so long that must be true, since the page asks twice. While a kernel starts, some of its messages do not reach
the page; a widget whose message is lost is a "widget model not found"."""


HEARS = """() => Promise.race([
    window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestExecute(
        {code: '', silent: true, store_history: false}).done.then(() => true),
    new Promise(resolve => setTimeout(() => resolve(false), 5000)),
])"""
"""True if the page hears what the kernel publishes: the end of a request comes that way."""


class Lab:
    """A page of JupyterLab with one notebook open in it."""

    def __init__(self, page: Page, address: str, folder: Path, server: int) -> None:
        self.page, self.address, self.folder, self._server = page, address, folder, server

    def open(self, name: str) -> None:
        """Open a notebook, and no other one; wait until its kernel listens and its widgets are restored."""
        self.page.goto(f"{self.address}/lab/tree/{name}?reset")
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.connectionStatus"
            " === 'connected'",
            timeout=PATIENCE_MS,
        )
        self.wait_for_rest()
        self.page.evaluate(LISTEN)

    def wait_for_rest(self) -> None:
        """Wait until the kernel is idle and answers, and no widgets are being restored."""
        deadline = time.monotonic() + PATIENCE_MS / 1_000
        rests_since = None
        while rests_since is None or time.monotonic() - rests_since < RESTING_S:
            assert time.monotonic() < deadline, "the page's kernel is not idle, or its widgets are not restored"
            rests = self.page.evaluate(RESTS) and self.page.evaluate(
                HEARS
            )  # `wait_for_function` would take its promise for true
            rests_since = (rests_since or time.monotonic()) if rests else None
            self.page.wait_for_timeout(100)

    def write(self, *cells: str) -> None:
        """Open a new notebook with these cells."""
        book = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata={"kernelspec": KERNEL})
        nbformat.write(book, self.folder / "mine.ipynb")
        self.open("mine.ipynb")

    def run_all(self) -> None:
        """Run all cells, as the menu does, to the last one or to the first error."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def run_cell(self, index: int, source: str | None = None) -> None:
        """Run one cell as a reader does: click into it, perhaps type something else, press Ctrl and Enter."""
        editor = self.page.locator(".jp-Cell .cm-content").nth(index)
        editor.click()
        if source is not None:
            self.page.keyboard.press("Control+A")
            self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Control+Enter")

    def output(self, index: int) -> Locator:
        """What stands under a cell."""
        return self.page.locator(".jp-Cell").nth(index).locator(".jp-OutputArea")

    def control(self, label: str) -> Locator:
        return self.page.get_by_label(label, exact=True)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def spawned(self) -> list[psutil.Process]:
        """The processes that runs have started from this JupyterLab's kernels."""
        found = []
        for child in psutil.Process(self._server).children(recursive=True):
            with suppress(psutil.Error):
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def tracebacks(self) -> int:
        """How many errors the notebook shows."""
        return self.page.locator(".jp-OutputArea", has_text="Traceback (most recent call last)").count()


def ask(address: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(address, method=method), timeout=30) as answer:
        content = answer.read()
    return json.loads(content) if content else None


@contextmanager
def jupyterlab(home: Path) -> Iterator[tuple[str, Path, int]]:
    """A JupyterLab on a free port that knows nothing of this machine's user: its address, its folder, its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (home / "tmp").mkdir()
    shutil.copytree(LESSONS, home / "lessons")
    settings = home / "config/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(NO_NEWS))
    (home / "server.py").write_text(CONFIG.format(port=port))
    own = {name: str(home / name.split("_")[1].lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    environment = {
        **{name: value for name, value in os.environ.items() if name != "MINIPS_AUTOPLAY"},
        **own,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "IPYTHONDIR": str(home / "ipython"),
        "TMPDIR": str(home / "tmp"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_GALATA_ROOT_DIR": str(home / "lessons"),
    }
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--config", str(home / "server.py")],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(server, f"{address}/api/status", home / "server.log")
            yield address, home / "lessons", server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
                server.wait(5)


@contextmanager
def newcomers(home: Path, *command: str) -> Iterator[str]:
    """A Jupyter of somebody who has no settings, as ``python -m command`` starts it: its address, with the token."""
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG"))}
    environment |= {"HOME": str(home), "TMPDIR": str(home)}
    with (
        (home / "server.log").open("w+") as log,
        subprocess.Popen(
            [sys.executable, "-m", *command, "--no-browser", "--allow-root"],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            deadline = time.monotonic() + 60
            while not (found := re.search(ADDRESS, (home / "server.log").read_text())):
                assert server.poll() is None, (home / "server.log").read_text()
                assert time.monotonic() < deadline, (home / "server.log").read_text()
                time.sleep(0.2)
            yield found[0]
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_for(server: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with suppress(OSError), urllib.request.urlopen(address, timeout=2):
            return
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")
