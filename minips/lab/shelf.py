"""The notebooks of the lessons: their folder, their order, their names."""

from pathlib import Path


def shelf() -> Path:
    """The folder of the lessons: a checkout's, or the one that was installed with the package."""
    package = Path(__file__).parents[1]
    checkout = (package.parent / "lessons").is_dir() and (package.parent / "pyproject.toml").exists()
    return (package.parent if checkout else package) / "lessons"


def notebooks() -> list[Path]:
    """The notebooks of the lessons, in their order. FileNotFoundError where there are none."""
    paths = sorted(shelf().glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise FileNotFoundError(f"There are no lessons in {shelf()}. Install minips again, or clone its repository.")
    return paths


def notebook(key: str) -> str:
    """The file name of the lesson that a key belongs to, under which the learner's progress is kept.

    >>> notebook("08.1")
    '08_trust_nobody.ipynb'
    """
    return next((path.name for path in notebooks() if path.name[:2] == key[:2]), key[:2])
