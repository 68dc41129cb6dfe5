"""All panels: those of `minips.lab`, and those that a lesson of the course has in its module ``panel``."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from minips.lab import Panel, panels
from minips_course import LESSONS

MODULES = [name for word in LESSONS if find_spec(name := f"minips_course.{word}.panel")]
PANELS: dict[str, type[Panel[Any, Any]]] = {
    f"lab.{name}": getattr(panels, name) for name in panels.__all__ if name != "Panel"
}
"""Maps what a notebook writes to each panel's class."""
for module in MODULES:
    PANELS |= {
        f"{module}.{name}": made
        for name, made in vars(import_module(module)).items()
        if isinstance(made, type) and issubclass(made, Panel) and made.__module__ == module
    }
IMPORTS = "".join(f"import {module}\n" for module in MODULES)
"""The lines that a notebook needs before."""
