"""The HTTP server: GET and HEAD, limits of size, time and number, and streams of changes."""

import json
import socket
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from socketserver import BaseServer, TCPServer
from typing import Any

from drivetrain.report.live.answers import Answer, refusal, secure_headers
from drivetrain.report.live.catalogue import Catalogue, News
from drivetrain.report.live.head_reader import HeadReader, HeadTooLongError
from drivetrain.report.live.routes import Request, Routes, StreamOf

__all__ = ["LiveServer"]

_MOST_CONNECTIONS = 128
_MOST_STREAMS = 32
_MOST_HEAD_BYTES = 16 * 1024
_HEAD_TIMEOUT_S = 10.0
_SEND_TIMEOUT_S = 10.0
_COMMENT_EVERY_S = 5.0
_RETRY_MS = 1000
# Changes within this time are sent together.
_PAUSE_S = 0.25


class LiveServer(ThreadingHTTPServer):
    """Serves a catalogue; every connection has a thread of its own that ends with the process."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], *, catalogue: Catalogue, routes: Routes) -> None:
        self.catalogue = catalogue
        self.routes = routes
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer would ask for the name of this host, which can take long without a name server.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to tell anybody."""


class _Handler(BaseHTTPRequestHandler):
    """One connection with one request."""

    server: LiveServer
    server_version = "drivetrain"
    sys_version = ""

    def __init__(self, request: Any, client_address: Any, server: BaseServer) -> None:
        # What send_error needs if the head cannot be read at all.
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", "GET"
        super().__init__(request, client_address, server)

    def setup(self) -> None:
        super().setup()
        # An open file of the socket would keep the connection open.
        self.rfile.close()
        reader = HeadReader(self.connection, most_bytes=_MOST_HEAD_BYTES, timeout_s=_HEAD_TIMEOUT_S)
        self.rfile = BufferedReader(reader)

    def handle(self) -> None:
        try:
            super().handle()
        except HeadTooLongError:
            self.send_error(431)
            _empty(self.connection)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def do_GET(self) -> None:
        self.connection.settimeout(_SEND_TIMEOUT_S)
        request = Request(
            target=self.path,
            hosts=self.headers.get_all("Host") or [],
            cookies="; ".join(self.headers.get_all("Cookie") or []),
        )
        answer = self._answer(request)
        if isinstance(answer, StreamOf):
            self._stream(answer)
        else:
            self._send(answer)

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """A sentence instead of a page; other methods than GET and HEAD are not allowed."""
        if code == 501:
            self._send(refusal(405, "Only GET and HEAD are answered here.", ("Allow", "GET, HEAD")))
        else:
            self._send(refusal(code, "This request cannot be answered."))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: their addresses may hold the token."""

    def _answer(self, request: Request) -> Answer | StreamOf:
        try:
            return self.server.routes.answer(request)
        except Exception as error:
            # A run that is half written or damaged must not take the others along.
            return refusal(500, f"This page cannot be made: {error}")

    def _send(self, answer: Answer) -> None:
        self._begin(answer.status, answer.kind, [*answer.headers, ("Content-Length", str(len(answer.body)))])
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _begin(self, status: int, kind: str, headers: Sequence[tuple[str, str]]) -> None:
        self.close_connection = True
        own = {name for name, _ in headers}
        common = [(name, value) for name, value in secure_headers() if name not in own]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in [*headers, *common]:
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, wanted: StreamOf) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._send(refusal(503, "Too many pages are open.", ("Retry-After", "5")))
            return
        try:
            self._begin(200, "text/event-stream; charset=utf-8", [])
            if self.command != "HEAD":
                self._send_changes(wanted)
        finally:
            self.server.streams.release()

    def _send_changes(self, wanted: StreamOf) -> None:
        """First the rows as they are, then each change; a comment now and then shows who has gone."""
        catalogue = self.server.catalogue
        self.wfile.write(f"retry: {_RETRY_MS}\n\n".encode())
        news = catalogue.wait(0, only=wanted.ids, timeout_s=0)
        self.wfile.write(_event("all", news))
        while not catalogue.is_closed:
            news = catalogue.wait(news.number, only=wanted.ids, timeout_s=_COMMENT_EVERY_S)
            has_news = bool(news.rows or news.gone)
            self.wfile.write(_event("changes", news) if has_news else b": still here\n\n")
            time.sleep(_PAUSE_S)


def _event(name: str, news: News) -> bytes:
    data = json.dumps({"rows": news.rows, "gone": news.gone})
    return f"event: {name}\ndata: {data}\n\n".encode()


def _empty(connection: socket.socket) -> None:
    """Reads what is on its way, so that closing does not discard the answer before it is read."""
    connection.settimeout(1.0)
    for _ in range(16):
        if not connection.recv(2**16):
            return
