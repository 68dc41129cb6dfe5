"""Lesson 12: a server that handles one call at a time, whoever calls over a socket."""

MUTANT = (
    "a server handles the calls of all its sockets one after another",
    "minips/stages/transports/endpoints.py",
    "                    answer = answer_of(connection, frames)\n",
    "                    one = service.__dict__.setdefault('one', threading.Lock())\n"
    "                    with one if hasattr(wire, 'framer') else suppress():\n"
    "                        answer = answer_of(connection, frames)\n",
)
