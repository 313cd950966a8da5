"""Runs written by hand, a server over them on a free port, and requests as no library would send them."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.report.contents import PageContents, RunContents
from drivetrain.report.live.serve import live_server, poll_until_closed
from drivetrain.report.live.server import LiveServer
from tests.deadlines import HANG_S

SECRET = "this must not be served"


def write_run(path: Path, *, updates: Sequence[int] = (1, 2), **recipe: Any) -> Path:
    """A run directory with a training event for each update."""
    path.mkdir(parents=True, exist_ok=True)
    asked = {"model": "toy_model", "dataset": "digits", "best_by": None, **recipe}
    (path / "recipe.yaml").write_text(
        "".join(f"{name}: {json.dumps(value)}\n" for name, value in asked.items())
    )
    (path / "identity.json").write_text(json.dumps(asked))
    (path / "plan.json").write_text(json.dumps({"total_updates": 10}))
    (path / "metrics.jsonl").write_bytes(b"")
    for update in updates:
        add_event(path, "train", update=update, loss=1 / update, elapsed_seconds=float(update))
    return path


def add_event(path: Path, event: str, **values: Any) -> None:
    """Appends an event to the metrics of a run."""
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": event, **values}) + "\n")


def collect_simply(paths: Sequence[Path]) -> PageContents:
    """Contents with the events of each run as a fact, in the place of the real ones."""
    runs = [_contents_of(path) for path in paths]
    return PageContents(title="runs", created="", version="", runs=runs)


def _contents_of(path: Path) -> RunContents:
    text = (path / "metrics.jsonl").read_text()
    return RunContents(
        id=path.name,
        name=path.name,
        kind="training",
        state="stopped",
        task="classification",
        headline=[],
        facts=[("events", str(text.count("\n"))), ("text", text)],
        command="",
        curves=[],
        recipe=[],
        plan=[],
        tables=[],
        environment=[],
        warnings=[],
    )


def render_simply(contents: PageContents, client: str) -> str:
    """A page without care for what the data hold: the server must not depend on that."""
    return f"<html><body>{contents['runs']}<script>{client}</script></body></html>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def served(root: Path, *, port: int = 0, **options: Any) -> Iterator[LiveServer]:
    """A server over a folder, which looks for changes as the command does."""
    chosen = {"collect": collect_simply, "render": render_simply, **options}
    server = live_server(root, port=port, **chosen)
    threads = [
        threading.Thread(target=poll_until_closed, args=(server.catalogue,)),
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}),
    ]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        server.catalogue.close()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(HANG_S)


def ask(
    server: LiveServer, target: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Reply:
    """One request; the target goes out as it is written here."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=HANG_S)
    try:
        connection.putrequest(method, target, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        return Reply(status=reply.status, headers=dict(reply.getheaders()), body=reply.read())
    finally:
        connection.close()


def send_raw(server: LiveServer, request: bytes) -> bytes:
    """All that comes back after bytes that need not be a request."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=HANG_S) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(2**16):
            parts.append(part)
        return b"".join(parts)


@contextmanager
def open_events(server: LiveServer, target: str = "/events") -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a stream, as (name, data); comments are left out."""
    with open_lines(server, target) as lines:
        yield _events(lines)


@contextmanager
def open_lines(server: LiveServer, target: str = "/events") -> Iterator[Iterator[str]]:
    """The lines of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=HANG_S)
    connection.request("GET", target)
    with connection.getresponse() as reply:
        yield (line.decode().rstrip("\n") for line in iter(reply.readline, b""))


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)
