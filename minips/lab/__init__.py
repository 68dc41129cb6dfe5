"""Widgets and pictures: the workbench, panels, predictions, exercises. No other package draws or shows anything.

In a notebook that imports it, matplotlib's figures follow the page's theme (`minips.lab.pictures`).

The names come from `minips.lab.face`. It is imported when a name is first used, since the processes of
`minips.lab.measure` need neither widgets nor pictures.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from minips.lab import moved, pictures

moved.install()
pictures.follow_theme()


def check_libraries() -> None:
    """ModuleNotFoundError if a library for widgets or pictures is not installed."""
    for library in ("ipywidgets", "matplotlib"):
        if not find_spec(library):
            raise ModuleNotFoundError(
                f'The lab needs {library}, which is not installed. Install it with: pip install "minips[lab]"'
            )


if TYPE_CHECKING:
    from minips.lab.face import *  # noqa: F403
else:

    def __getattr__(name):
        if name == "__all__" or not name.startswith("__"):
            if name != "measure":
                check_libraries()
            if find_spec(f"minips.lab.{name}"):
                return import_module(f"minips.lab.{name}")
            names = vars(import_module("minips.lab.face"))
            if name in names:
                return names[name]
        raise AttributeError(f"minips.lab has no {name!r}")

    def __dir__():
        return sorted(import_module("minips.lab.face").__all__)
