"""A JupyterLab for each module of tests, and a page of it for each test, whose console has to stay without an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_page import ARGUMENTS, CHROMIUM, PATIENCE_MS, Lab, ask, jupyterlab
from playwright.sync_api import Browser, Page, expect, sync_playwright


@contextmanager
def browser(**options: Any) -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no browser to test in: {CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, **options)
        yield running
        running.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def chromium_with_scrollbars() -> Iterator[Browser]:
    """As people have it; playwright hides scrollbars unless told otherwise."""
    with browser(ignore_default_args=["--hide-scrollbars"]) as running:
        yield running


@pytest.fixture
def view_page(chromium_with_scrollbars: Browser) -> Iterator[Page]:
    """A page without a network, for `View.html`; its console has to stay without an error."""
    context = chromium_with_scrollbars.new_context(offline=True)
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


@pytest.fixture(scope="module")
def server_with_scrollbars(
    chromium_with_scrollbars: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, int]]:
    with jupyterlab(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def jupyter(chromium: Browser, server: tuple[str, Path, int]) -> Iterator[Lab]:
    yield from lab_in(chromium, server)


@pytest.fixture
def jupyter_with_scrollbars(
    chromium_with_scrollbars: Browser, server_with_scrollbars: tuple[str, Path, int]
) -> Iterator[Lab]:
    yield from lab_in(chromium_with_scrollbars, server_with_scrollbars)


def lab_in(browser: Browser, server: tuple[str, Path, int]) -> Iterator[Lab]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield Lab(page, *server)
    assert errors == []
    page.close()
    for session in ask(f"{server[0]}/api/sessions"):
        ask(f"{server[0]}/api/sessions/{session['id']}", "DELETE")
