"""Lesson 12: a server that handles one call at a time, whoever calls."""

MUTANT = (
    "a server handles the calls of all its connections one after another",
    "minips/stages/transports/endpoints.py",
    "                    answer = answer_of(connection, frames)\n",
    "                    with service.__dict__.setdefault('one', threading.Lock()):\n"
    "                        answer = answer_of(connection, frames)\n",
)
