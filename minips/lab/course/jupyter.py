"""Starts JupyterLab on a learner's folder: one server for each folder, on a free port; one Ctrl-C ends it."""

import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

FLAGS = ("--no-browser", "--allow-root", "--debug")
"""JupyterLab's options that take no value."""
FIRST_PORT, PORTS = 8888, 50
"""The first port that is tried, and the number of ports that are tried."""
SETTINGS = Path(__file__).with_name("settings")
"""A folder of JupyterLab's settings. They answer no to its question whether to fetch news, unless the user has answered
it. The question would cover the lesson, and JupyterLab asks it even if ``LabApp.news_url`` is None. They also leave
the sidebar's width to the names of the lessons.
"""
PROGRAM = Path(__file__).with_name("serve.py")
"""The program that becomes JupyterLab."""


def checked(options: Sequence[str]) -> list[str]:
    """Return the options. ValueError if one is not ``--option=value``: JupyterLab would open its value as a folder."""
    for option in options:
        if not (option in FLAGS or (option.startswith("--") and "=" in option)):
            raise ValueError(
                f"Expected JupyterLab's options as --option=value or one of {', '.join(FLAGS)}; got {option!r}."
            )
    return list(options)


def free_port(wanted: int | None) -> int:
    """Return the wanted port or, if None, the first free one. OSError if this user cannot use it, or none is free."""
    why = ""
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, sys.platform != "win32")
            try:
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
            except OverflowError:
                raise ValueError(f"Expected a port from 0 to 65535; got {port}.") from None
            except OSError as error:
                why = (error.strerror or str(error)).lower()
    if wanted is not None:
        raise OSError(f"Port {wanted} cannot be used: {why}. Choose another one, or leave --port out.")
    raise OSError(f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free. Name one with --port.")


def running(folder: Path) -> str | None:
    """Return the address of a server that this user already runs on the folder; None if there is none."""
    from jupyter_server.serverapp import list_running_servers

    for server in list_running_servers():
        if Path(server["root_dir"]).resolve() == folder.resolve():
            return f"{server['url']}lab?token={server['token']}"
    return None


def open_again(address: str, options: Sequence[str]) -> None:
    """Name a server that already runs, and open it in a browser."""
    print(f"JupyterLab runs on this folder already: {address}", file=sys.stderr)
    if "--no-browser" not in options:
        webbrowser.open(address)


def start(folder: Path, page: str, port: int | None, options: Sequence[str]) -> None:
    """Turn this process into JupyterLab on the folder and one of its pages.

    OSError as in `free_port`; RuntimeError if this user is root, which JupyterLab does not allow without an option.
    """
    port = free_port(port)
    if is_root() and not allows_root(options):
        raise RuntimeError("You are root. JupyterLab starts as root only with --allow-root.")
    os.environ.setdefault("JUPYTER_TOKEN", secrets.token_hex(16))
    command = [sys.executable, "-P", str(PROGRAM), "--notebook-dir", str(folder), f"--ServerApp.port={port}"]
    command += [
        "--ServerApp.port_retries=0",
        "--ServerApp.answer_yes=True",  # otherwise Ctrl-C asks first, and JupyterLab goes on without an answer
        f"--LabApp.default_url=/lab/tree/{page}",
        "--LabApp.custom_css=True",
    ]
    if "--debug" not in options:
        command += ["--log-level=WARN", "--LabApp.log_level=WARN"]
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([str(SETTINGS), *([others] if others else [])])
    print("JupyterLab starts. Ctrl-C ends it.", file=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stderr.flush()
    os.execv(sys.executable, [*command, *options])


def is_root() -> bool:
    """Return True if this process may do everything."""
    return getattr(os, "geteuid", lambda: 1)() == 0


def allows_root(options: Sequence[str]) -> bool:
    """Return True if JupyterLab starts as root with these options, or because of the user's own settings."""
    from jupyter_server.serverapp import ServerApp

    server = ServerApp()
    server.load_config_file()
    server.parse_command_line([*options])
    return bool(server.allow_root)
