"""Old names of modules that moved to a course. Importing one still works, and warns once with the new name.

A course's ``MOVED`` maps each old name to the modules that now contain the old module's contents.
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

GROUP = "minips.course"
"""The entry-point group of courses."""
PACKAGES = ("minips.lab.course", "minips.lab.measure")
"""The packages that contained the old modules."""


class Moved(MetaPathFinder, Loader):
    """A finder for moved modules that no other finder can find."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        known = name.rpartition(".")[0] in PACKAGES and any(new_names(name))
        return ModuleSpec(name, self) if known else None

    def exec_module(self, module: ModuleType) -> None:
        news = [*new_names(module.__name__)]
        for new in news:
            names = vars(import_module(new))
            vars(module).update((name, names[name]) for name in names if name == "__getattr__" or name[:2] != "__")
        message = f"The module {module.__name__} is now {' and '.join(news)}. The old name works until minips 0.3."
        warnings.warn(message, DeprecationWarning, stacklevel=2)


def new_names(old: str) -> Iterator[str]:
    """Yield the modules that contain the old one's contents; none if no course lists it."""
    for entry in entry_points(group=GROUP):
        with suppress(Exception):  # the error is raised again when the course is used
            yield from getattr(import_module(entry.module), "MOVED", {}).get(old, ())


def install() -> None:
    """Let Python ask `Moved` for modules that it does not find."""
    if not any(isinstance(finder, Moved) for finder in sys.meta_path):
        sys.meta_path.append(Moved())
