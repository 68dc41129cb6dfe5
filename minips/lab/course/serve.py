"""JupyterLab as a program that says its address as soon as it answers: after its log, and only if it has started.

`minips.lab.course.jupyter` runs this file with JupyterLab's options, outside of any package, since only JupyterLab has
to be imported.
"""

import sys
from pathlib import Path
from typing import Any

STYLE = Path(__file__).with_name("settings") / "custom"
"""The folder of the style sheet ``custom.css``, which JupyterLab loads. It makes room for the lessons' names."""


def serve(options: list[str]) -> None:
    """Run JupyterLab until Ctrl-C."""
    from jupyterlab.labapp import LabApp

    server = LabApp.initialize_server(argv=options, static_custom_path=[str(STYLE)])
    server.io_loop.add_callback(say_address, server)
    server.start()


def say_address(server: Any) -> None:
    """Print the address that opens the first page."""
    opens = "" if not server.open_browser else ", if none opens by itself"
    print(f"Open this address in a browser{opens}:\n{address_of(server)}", file=sys.stderr, flush=True)


def address_of(server: Any) -> str:
    """Return the address of the first page, with the token that lets its reader in."""
    token = server.identity_provider.token
    page = server.default_url.removeprefix(server.base_url)
    return f"{server.connection_url}{page}" + (f"?token={token}" if token else "")


if __name__ == "__main__":
    serve(sys.argv[1:])
