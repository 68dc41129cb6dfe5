"""Values that only a library can compute. For machines without it, a lesson's run recorded them, with machine and date.

values = lab.recorded("lecture.torch")       # if torch is missing
lab.record("lecture.torch", values)          # if torch is installed; only `tests/execute_lessons.py` writes
"""

import datetime
import json
import os
import platform
from typing import Any

from minips import files
from minips.lab.course.courses import course_of
from minips.lab.course.questions import full_key


def _file(key: str) -> Any:
    full = full_key(key)
    name = full.removeprefix(course_of(full).prefix).replace(".", "_")
    return course_of(full).notebooks / "recorded" / f"{name}.json"


def record(key: str, values: dict[str, Any]) -> None:
    """Write values, which must be valid in JSON, if the environment has ``MINIPS_RECORD=1``; otherwise do nothing."""
    if os.environ.get("MINIPS_RECORD") == "1":
        machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
        kept = {"machine": machine, "date": f"{datetime.date.today():%B %Y}", "values": values}
        _file(key).parent.mkdir(exist_ok=True)
        files.write(_file(key), json.dumps(kept, indent=1) + "\n")


def recorded(key: str) -> dict[str, Any]:
    """Return the recorded values; print their origin, and which library is missing. ValueError if there are none."""
    try:
        kept = json.loads(_file(key).read_text())
    except FileNotFoundError:
        raise ValueError(f"Nothing was recorded under {key!r}.") from None
    missing = key.partition(".")[2]
    print(f"{missing} is not here. The values were recorded elsewhere: {kept['machine']}, {kept['date']}.")
    values: dict[str, Any] = kept["values"]
    return values
