"""Old names of modules that went to a course: importing one still works, and warns once, with the new name.

A course keeps them as ``MOVED``: by the old name, the modules that have between them what the old one had.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from types import ModuleType

PACKAGES = ("minips.lab.course", "minips.lab.measure")
"""Where modules were."""


class Moved(MetaPathFinder, Loader):
    """Finds what nobody else finds."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        known = name.rpartition(".")[0] in PACKAGES and any(new_names(name))
        return ModuleSpec(name, self) if known else None

    def exec_module(self, module: ModuleType) -> None:
        news = [*new_names(module.__name__)]
        for new in news:
            names = vars(import_module(new))
            vars(module).update((name, value) for name, value in names.items() if not name.startswith("__"))
        message = f"The module {module.__name__} is now {' and '.join(news)}. The old name works until minips 0.3."
        warnings.warn(message, DeprecationWarning, stacklevel=2)


def new_names(old: str) -> Iterator[str]:
    """The modules that have what the old one had; none where no course knows it."""
    for entry in entry_points(group="minips.course"):
        with suppress(Exception):  # which is told where the course is needed
            yield from getattr(import_module(entry.module), "MOVED", {}).get(old, ())


def install() -> None:
    """Let Python ask here for modules that it does not find."""
    if not any(isinstance(finder, Moved) for finder in sys.meta_path):
        sys.meta_path.append(Moved())
