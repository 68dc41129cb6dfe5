"""The fields of a stage as text, ``field=value,field=value``, for `minips.stage.build` and the command line."""

import ast
import re
from typing import Any

_PORT = re.compile(r"=\s*((?:[\w.-]+|\[[\da-fA-F:.]+\]):\d+)\s*(?=[,)]|$)")


def read_fields(text: str) -> dict[str, Any]:
    """Parse ``field=value,…`` like the arguments of a Python call. A bare word becomes a text, a call becomes a stage
    (a dict for `build`), and ``host:port`` needs no quotes.

    >>> read_fields("address=10.0.0.1:6379, tls=False, then=cosine(steps=20)")
    {'address': '10.0.0.1:6379', 'tls': False, 'then': {'name': 'cosine', 'steps': 20}}
    """
    quoted = _PORT.sub(r'="\1"', text)
    try:
        fields: dict[str, Any] = _argument(ast.parse(f"fields({quoted})", mode="eval").body)
        if fields.pop("name") != "fields" or not fields:
            raise ValueError
        return fields
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        raise ValueError(
            f"Expected field=value, field=value, …, with name(field=value, …) for a nested stage; got {text!r:.99}."
        ) from None


def _argument(node: ast.expr) -> Any:
    """The value of an argument: a literal, a bare word, or a call with named arguments. Else raises ValueError."""
    match node:
        case ast.Name():
            return node.id
        case ast.Call(func=ast.Name(id=name), args=[], keywords=given):
            fields = {"name": name, **{str(one.arg): _argument(one.value) for one in given}}
            if len(fields) <= len(given):
                raise ValueError("a field comes twice")
            return fields
    return ast.literal_eval(node)
