"""Execute lessons and keep what came out: `python tests/execute_lessons.py 05 07`, or all of them without a number.

The saved outputs are what a reader without a kernel sees, and what the test run compares with.
"""

import base64
import datetime
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from minutes import pieces
from nbclient import NotebookClient
from PIL import Image

MEASURED = 3
"""The version of all that lessons measure: bytes, draws, losses, the ways of frames. A change of one of these raises
it, and the lessons are executed again, which writes it into their metadata.
"""

LESSONS = Path(__file__).parents[1] / "lessons"


def execute(path: Path) -> None:
    """Run all cells in a fresh kernel, in an empty folder, as unattended runs do."""
    book = nbformat.read(path, as_version=4)
    metadata = dict(book.metadata)  # without what this machine's kernel says of itself
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        options = {"timeout": 240, "store_widget_state": False, "coalesce_streams": True}
        NotebookClient(book, resources=resources, **options).execute()
    taken = [round(sum(map(seconds, part)), 1) for part in pieces(book)]
    book.metadata = nbformat.from_dict({**metadata, "minips": {"measured": MEASURED, "seconds": taken}})
    for number, cell in enumerate(book.cells):
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
                own = output.metadata.get("image/png", {}).get("alt", "")
                output.metadata["image/png"] = {"alt": words_beside(book, number) or own}
    nbformat.write(book, path)


def seconds(cell: Any) -> float:
    """How long a cell ran."""
    told = cell.metadata.get("execution", {})
    begin, end = told.get("iopub.status.busy"), told.get("iopub.status.idle")
    if not (begin and end):
        return 0.0
    return (datetime.datetime.fromisoformat(end) - datetime.datetime.fromisoformat(begin)).total_seconds()


def words_beside(book: Any, number: int) -> str:
    """The caption of a cell's pictures, in the cells next to it, without marks and links, for screen readers."""
    near = [book.cells[i] for i in (number + 1, number - 1, number + 2) if 0 <= i < len(book.cells)]
    captions = [
        re.search(r"\*?(The (?:still )?picture[^*]*)", cell.source) for cell in near if cell.cell_type == "markdown"
    ]
    words = next((" ".join(found[1].split()) for found in captions if found), "")
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words).replace("`", "")


def smaller(picture: str) -> str:
    """A PNG in base64 in fewer bytes and the same pixels: without the opacity, where all of it is opaque."""
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        opaque = image.mode == "RGBA" and image.getchannel("A").getextrema() == (255, 255)
        packed = io.BytesIO()
        (image.convert("RGB") if opaque else image).save(packed, "PNG", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


if __name__ == "__main__":
    os.environ.update(MINIPS_AUTOPLAY="1", MINIPS_RECORD="1", PYDEVD_DISABLE_FILE_VALIDATION="1")
    os.environ.pop("MPLBACKEND", None)
    for number in sys.argv[1:] or [""]:
        for path in sorted(LESSONS.glob(f"{number}*.ipynb")):
            execute(path)
            print(path.name, flush=True)
