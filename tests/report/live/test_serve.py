"""The server as a command: its address, its token, its port, and its end."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.report.live import serve
from drivetrain.report.live.serve import address_of, live_server
from tests.deadlines import HANG_S
from tests.report.live.served import ask, collect_simply, render_simply, served, write_run

ROOT = Path(__file__).parents[3]
SCRIPT = """
import signal
import sys
from pathlib import Path
from drivetrain.report.live.serve import serve_live
from tests.report.live.served import collect_simply, render_simply
# A shell's background job ignores Ctrl-C, and so would this child of it.
signal.signal(signal.SIGINT, signal.default_int_handler)
serve_live(
    Path(sys.argv[1]), collect=collect_simply, render=render_simply, port=0,
    announce=lambda address: print(address, flush=True),
)
print("ended")
"""


def test_on_this_host_no_token_is_needed(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert address_of(server, host="127.0.0.1") == f"http://127.0.0.1:{server.server_port}/"


def test_from_elsewhere_the_token_opens_and_becomes_a_cookie(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    with served(tmp_path, host="0.0.0.0") as server:
        address = address_of(server, host="0.0.0.0")
        assert address.startswith(f"http://{socket.gethostname()}:{server.server_port}/?token=")
        token = address.partition("?token=")[2]
        for target in ("/", "/run/a", "/api/runs", "/events", "/assets/list.js", "/?token=wrong", "/?token="):
            reply = ask(server, target)
            assert (target, reply.status) == (target, 403)
            assert b"toy_model" not in reply.body
            assert "Set-Cookie" not in reply.headers
        welcome = ask(server, f"/run/a?token={token}")
        assert welcome.status == 200
        assert token.encode() not in welcome.body
        assert b"url=/run/a" in welcome.body
        cookie, _, marks = welcome.headers["Set-Cookie"].partition("; ")
        assert marks == "Path=/; HttpOnly; SameSite=Strict"
        for target in ("/", "/run/a", "/api/runs"):
            assert ask(server, target, headers={"Cookie": cookie}).status == 200
            assert ask(server, target, headers={"Cookie": cookie[:-1]}).status == 403
        assert ask(server, "/", method="POST", headers={"Cookie": cookie}).status == 405


def test_the_path_of_a_welcome_is_escaped(tmp_path: Path) -> None:
    with served(tmp_path, host="0.0.0.0") as server:
        token = address_of(server, host="0.0.0.0").partition("?token=")[2]
        body = ask(server, f'/"><script>alert(1)</script>?token={token}').body
        assert b"<script>" not in body
        for target in ("//evil.example/", "///evil.example"):
            assert b'"0;url=/evil.example' in ask(server, f"{target}?token={token}").body


def test_the_default_port_gives_way_to_a_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(serve, "DEFAULT_PORT", port)
        server = live_server(tmp_path, collect=collect_simply, render=render_simply)
        server.server_close()
        assert server.server_port not in (0, port)
        with pytest.raises(BadInputError, match=f"--port {port} is in use .*; --port 0 takes a free port"):
            live_server(tmp_path, collect=collect_simply, render=render_simply, port=port)


@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("127.0.0.1", 70000, "--port 70000 must be from 0 to 65535; --port 8421 works"),
        ("127.0.0.1", -1, "--port -1 must be from 0 to 65535; --port 8421 works"),
        ("192.0.2.1", 0, "--host 192.0.2.1 is no address of this host .*; --host 127.0.0.1 works"),
        ("no such host", 0, "--host no such host is no address of this host .*; --host 127.0.0.1 works"),
    ],
)
def test_an_address_that_cannot_be_had_is_named(tmp_path: Path, host: str, port: int, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        live_server(tmp_path, collect=collect_simply, render=render_simply, host=host, port=port)


def test_ctrl_c_ends_it_while_a_page_is_open(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", address)
        assert found, address
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=HANG_S) as connection:
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.0 200")
            process.send_signal(signal.SIGINT)
            assert process.wait(HANG_S) == 0
        assert process.stdout.read() == "ended\n"
