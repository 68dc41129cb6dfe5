"""The notebooks, pages and pictures of the lessons in a wheel, beside the course's modules. Hatch runs this."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KINDS = (".ipynb", ".md", ".png", ".svg", ".json")


class Notebooks(BuildHookInterface):
    """An editable install finds them in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built."""
        lessons = Path(self.root, "lessons")
        for path in [*lessons.iterdir(), *lessons.glob("recorded/*")] if version == "standard" else []:
            if path.suffix in KINDS:
                name = path.relative_to(lessons).as_posix()
                build_data["force_include"][str(path)] = f"minips_course/notebooks/{name}"
