"""One learner's way through lesson 00 in a real browser: the real JupyterLab, the real kernel, Debian's chromium."""

import json
import os
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

import pytest
from playwright.sync_api import Page, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
LESSONS = Path(__file__).parents[2] / "lessons"
LESSON = "00_train_in_a_minute.ipynb"
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


@contextmanager
def jupyterlab(home: Path) -> Iterator[str]:
    """A JupyterLab on a free port that knows nothing of this machine's user; its address."""
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
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
                server.wait(5)


def _wait_for(server: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with suppress(OSError), urllib.request.urlopen(address, timeout=2):
            return
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def run_all(page: Page) -> None:
    """Run all cells of the open notebook, as the menu does, to the last one or to the first error."""
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")


@pytest.mark.outside
@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser to test in: {CHROMIUM} is not installed")
def test_a_learner_predicts_swaps_a_stage_and_sees_the_result(tmp_path: Path) -> None:
    with jupyterlab(tmp_path) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(30_000)
        expect.set_options(timeout=30_000)
        page.goto(f"{address}/lab/tree/{LESSON}")
        page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.connectionStatus"
            " === 'connected'",
            timeout=60_000,
        )
        outputs = page.locator(".jp-OutputArea")

        run_all(page)
        expect(outputs.get_by_text("Make your prediction first").first).to_be_visible()
        page.get_by_label("more than nine in ten").check()

        run_all(page)  # up to the second question
        expect(outputs.get_by_text("You predicted").first).to_be_visible()
        page.get_by_label("it stays within 3 percentage points").check()

        run_all(page)
        quantizer = page.get_by_label("B quantizer", exact=True)
        quantizer.scroll_into_view_if_needed()
        quantizer.select_option("sign")
        expect(page.get_by_label("B quantizer fraction")).to_have_count(0)
        page.get_by_role("button", name="Run", exact=True).click()
        results = outputs.locator("table", has_text="Results")
        expect(results).to_contain_text("Sign()", timeout=60_000)
        expect(results).to_contain_text("accuracy")
        expect(outputs.get_by_text("× A's bytes")).to_be_visible()
        results.scroll_into_view_if_needed()
        page.screenshot(path=tmp_path / "workbench.png")

        page.get_by_label("B consistency backup").fill("9")
        page.get_by_label("B consistency backup").press("Enter")
        expect(outputs.get_by_role("alert").first).to_contain_text("needs more than 9 workers")
        browser.close()
