"""The tools that npm brings, for tests of the views' JavaScript."""

import os
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent / "browser"
REQUIRED = "MINIPS_NEEDS_NODE_MODULES"
"""If this variable of the environment is set, a test fails where it would be skipped."""


def needs_tools() -> None:
    """Skip the test if the tools are not there."""
    if not (TOOLS / "node_modules").is_dir():
        leave = pytest.fail if os.environ.get(REQUIRED) else pytest.skip
        leave("npm ci --ignore-scripts --prefix tests/browser brings the tools")
