"""The fields of a stage as text, ``field=value,field=value``, as `minips.stage.build` and the shell take them."""

import ast
import re
from typing import Any

_PORT = re.compile(r"=\s*((?:[\w.-]+|\[[\da-fA-F:.]+\]):\d+)\s*(?=[,)]|$)")


def read_fields(text: str) -> dict[str, Any]:
    """``field=value,…`` as Python would read the arguments of a call, where a bare word is a text and a call is a stage
    as `build` takes it; ``host:port`` needs no quotes.

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
            f"Expected field=value, field=value, …, with name(field=value, …) for a stage within; got {text!r:.99}."
        ) from None


def _argument(node: ast.expr) -> Any:
    """The value of an argument: a literal, a bare word, or a call with fields alone. ValueError for anything else."""
    match node:
        case ast.Name():
            return node.id
        case ast.Call(func=ast.Name(id=name), args=[], keywords=given):
            fields = {"name": name, **{str(one.arg): _argument(one.value) for one in given}}
            if len(fields) <= len(given):
                raise ValueError("a field comes twice")
            return fields
    return ast.literal_eval(node)
