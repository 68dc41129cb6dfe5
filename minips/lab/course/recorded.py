"""Values that need what a machine may lack, kept from a run of the lessons, with the machine and the date.

values = lab.recorded("lecture.torch")       # where torch is missing
lab.record("lecture.torch", values)          # where it is there; written by `tests/execute_lessons.py` alone
"""

import datetime
import json
import os
import platform
from typing import Any

from minips import files
from minips.lab.course.questions import full_key
from minips.lab.course.state import shelf


def _file(key: str) -> Any:
    return shelf() / "recorded" / f"{full_key(key).replace('.', '_')}.json"


def record(key: str, values: dict[str, Any]) -> None:
    """Keep values that JSON can hold, if ``MINIPS_RECORD=1`` is set; else do nothing."""
    if os.environ.get("MINIPS_RECORD") == "1":
        machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
        kept = {"machine": machine, "date": f"{datetime.date.today():%B %Y}", "values": values}
        _file(key).parent.mkdir(exist_ok=True)
        files.write(_file(key), json.dumps(kept, indent=1) + "\n")


def recorded(key: str) -> dict[str, Any]:
    """The kept values; it prints what is missing here, and where they come from. ValueError if there are none."""
    try:
        kept = json.loads(_file(key).read_text())
    except FileNotFoundError:
        raise ValueError(f"Nothing was recorded under {key!r}.") from None
    missing = key.partition(".")[2]
    print(f"{missing} is not here. The values were recorded elsewhere: {kept['machine']}, {kept['date']}.")
    values: dict[str, Any] = kept["values"]
    return values
