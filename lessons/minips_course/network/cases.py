"""The values under which each question and sentence comes out as expected, and otherwise."""

from typing import Any

OUTCOMES: dict[str, dict[str, Any]] = {}
TELLING: dict[str, list[str]] = {}
