"""`drivetrain report --live`: serves all runs in a folder until Ctrl-C."""

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.report.live.access import Access, is_loopback, new_token
from drivetrain.report.live.address import DEFAULT_HOST, DEFAULT_PORT
from drivetrain.report.live.catalogue import Catalogue
from drivetrain.report.live.pages import Collect, Pages, Render
from drivetrain.report.live.routes import Routes
from drivetrain.report.live.server import LiveServer

__all__ = ["address_of", "live_server", "poll_until_closed", "serve_live"]

_POLL_EVERY_S = 0.5
_NOTICES_CTRL_C_S = 0.2


def serve_live(
    directory: Path,
    *,
    collect: Collect,
    render: Render,
    announce: Callable[[str], None],
    host: str = DEFAULT_HOST,
    port: int | None = None,
) -> None:
    """Serves the runs in a folder until Ctrl-C; `announce` gets the address once it can be opened.

    Without `port`, the default port is taken or, if that is in use, a free one.
    """
    server = live_server(directory, collect=collect, render=render, host=host, port=port)
    threading.Thread(target=poll_until_closed, args=(server.catalogue,), daemon=True).start()
    try:
        announce(address_of(server, host=host))
        server.serve_forever(poll_interval=_NOTICES_CTRL_C_S)
    except KeyboardInterrupt:
        pass
    finally:
        server.catalogue.close()
        server.server_close()


def live_server(
    directory: Path, *, collect: Collect, render: Render, host: str = DEFAULT_HOST, port: int | None = None
) -> LiveServer:
    """A server that listens already; an address that others can reach gets a token."""
    catalogue = Catalogue(directory)
    token = None if is_loopback(host) else new_token()
    ports = [DEFAULT_PORT, 0] if port is None else [port]
    for place, number in enumerate(ports):
        access = Access(token=token, cookie=f"drivetrain-report-{number}")
        pages = Pages(catalogue, collect=collect, render=render)
        routes = Routes(catalogue, pages=pages, access=access)
        try:
            return LiveServer((host, number), catalogue=catalogue, routes=routes)
        except (OSError, OverflowError) as error:
            if getattr(error, "errno", None) == errno.EADDRINUSE and place + 1 < len(ports):
                continue
            raise _refused(error, host=host, port=number) from error
    raise AssertionError("the last port either works or raises")


def poll_until_closed(catalogue: Catalogue) -> None:
    """Looks for changes all the time; a disk that is away for a while is no reason to end."""
    pause = threading.Event()
    while not catalogue.is_closed:
        with suppress(OSError):
            catalogue.poll()
        pause.wait(_POLL_EVERY_S)


def address_of(server: LiveServer, *, host: str) -> str:
    """The address to open, with the token if one is needed."""
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    shown = f"[{name}]" if ":" in name else name
    token = server.routes.token
    return f"http://{shown}:{server.server_port}/{f'?token={token}' if token else ''}"


def _refused(error: Exception, *, host: str, port: int) -> BadInputError:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return BadInputError(f"--port {port} is in use by another program; --port 0 takes a free port.")
    if number == errno.EACCES:
        return BadInputError(f"--port {port} is not open to you; --port {DEFAULT_PORT} works.")
    if isinstance(error, OverflowError):
        return BadInputError(f"--port {port} must be from 0 to 65535; --port {DEFAULT_PORT} works.")
    return BadInputError(f"--host {host} is no address of this host ({error}); --host {DEFAULT_HOST} works.")
