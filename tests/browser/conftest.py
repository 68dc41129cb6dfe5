"""A JupyterLab for each module of tests, and a page of it for each test, whose console has to stay without an error."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_page import ARGUMENTS, CHROMIUM, PATIENCE_MS, Lab, ask, jupyterlab
from playwright.sync_api import Browser, Page, expect, sync_playwright


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """As people have it: with scrollbars, which playwright hides unless told otherwise."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser to test in: {CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        shown = ["--hide-scrollbars"]
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, ignore_default_args=shown)
        yield running
        running.close()


@pytest.fixture
def view_page(chromium: Browser) -> Iterator[Page]:
    """A page without a network, for `View.html`; its console has to stay without an error."""
    context = chromium.new_context(offline=True)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert errors == []


@pytest.fixture(scope="module")
def server(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, int]]:
    with jupyterlab(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def jupyter(chromium: Browser, server: tuple[str, Path, int]) -> Iterator[Lab]:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield Lab(page, *server)
    page.close()
    for session in ask(f"{server[0]}/api/sessions"):  # before the assertion, lest the next test meets them
        ask(f"{server[0]}/api/sessions/{session['id']}", "DELETE")
    assert errors == []
