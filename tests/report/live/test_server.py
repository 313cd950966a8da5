"""What the server answers over a real connection, and what it refuses."""

from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

import pytest

from drivetrain.report.contents import PageContents
from drivetrain.report.live import server as module
from drivetrain.report.live.answers import script_hashes
from drivetrain.report.live.server import LiveServer
from tests.deadlines import wait_until
from tests.report.live.served import (
    SECRET,
    add_event,
    ask,
    open_events,
    open_lines,
    render_simply,
    send_raw,
    served,
    write_run,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "runs"
    write_run(root / "a")
    write_run(root / "b b")
    (root / "note.txt").write_text(SECRET)
    return root


def test_the_list_and_its_files(root: Path) -> None:
    with served(root) as server:
        page = ask(server, "/")
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        for name in ("list.js", "list.css", "icon.svg"):
            assert ask(server, f"/assets/{name}").status == 200
        assert ask(server, "/favicon.ico").headers["Content-Type"] == "image/svg+xml"
        wait_until(lambda: len(ask(server, "/api/runs").json()["runs"]) == 2)
        runs = ask(server, "/api/runs").json()["runs"]
        assert [run["id"] for run in runs] == ["a", "b%20b"]


def test_the_page_of_a_run_and_of_several(root: Path) -> None:
    with served(root) as server:
        one = ask(server, "/api/run/b%20b").json()
        assert [run["name"] for run in one["runs"]] == ["b b"]
        assert (one["live"], list(one["versions"]), one["runs"][0]["state"]) == (True, ["b%20b"], "stopped")
        two = ask(server, "/api/compare?run=b%20b&run=a&run=a").json()
        assert [run["name"] for run in two["runs"]] == ["b b", "a"]
        assert ask(server, "/run/a").headers["Content-Type"] == "text/html; charset=utf-8"
        assert ask(server, "/compare?run=a&run=b+b").status == 200
        assert ask(server, "/compare").status == 400
        assert ask(server, "/compare?" + "&".join(f"run={n}" for n in range(30))).status == 400
        assert ask(server, "/compare?" + "&".join(f"run={n}" for n in range(100))).status == 404
        assert ask(server, "/compare?run=a&run=c").status == 404


def test_contents_are_collected_once_for_each_version(root: Path) -> None:
    collected = []

    def collect(paths: object) -> PageContents:
        collected.append(paths)
        return PageContents(title="", created="", version="", runs=[])

    with served(root, collect=collect) as server:
        first = ask(server, "/api/run/a").json()
        assert ask(server, "/run/a").status == 200
        assert len(collected) == 1
        add_event(root / "a", "train", update=3, loss=0.25)
        assert ask(server, "/api/run/a").json()["versions"] != first["versions"]
        assert len(collected) == 2


TARGETS = [
    "/../../etc/passwd",
    "/run/../../../etc/passwd",
    "/run/..%2f..%2f..%2fetc%2fpasswd",
    "/run/%2e%2e%2f%2e%2e%2fsecret.txt",
    "/run/%252e%252e%252fsecret.txt",
    "/run/..%5c..%5csecret.txt",
    "/run/..%c0%af..%c0%afsecret.txt",
    "/run//etc/passwd",
    "/run/%2fetc%2fpasswd",
    "/run/a%00",
    "/run/a%00.html",
    "/run/a/metrics.jsonl",
    "/run/a%2Fmetrics.jsonl",
    "/run/note.txt",
    "/run/..",
    "/run/.",
    "/run/",
    "/run",
    "/a/metrics.jsonl",
    "/note.txt",
    "/assets/../serve.py",
    "/assets/..%2fserve.py",
    "/assets/%2e%2e/serve.py",
    "/assets/live.js",
    "/assets/list.html",
    "/assets/",
    "/api/run/..%2f..%2fsecret.txt",
    "/api/run/%ff%fe",
    "/compare?run=../secret.txt",
    "/compare?run=..%2f..%2fsecret.txt",
    "/api/compare?run=%2fetc%2fpasswd",
    "//etc/passwd",
    "///etc/passwd",
    "/etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "http://127.0.0.1/etc/passwd",
    "file:///etc/passwd",
    "*",
    "\\..\\secret.txt",
]


def test_nothing_but_runs_is_served(root: Path) -> None:
    with served(root) as server:
        for target in TARGETS:
            reply = ask(server, target)
            assert (target, reply.status) == (target, 404)
            assert SECRET.encode() not in reply.body
            assert b"root:" not in reply.body


@pytest.mark.parametrize("name", ["a", "b%20b"])
def test_links_out_of_the_folder_are_not_served(root: Path, name: str) -> None:
    (root / "out").symlink_to(root.parent)
    run = root / name.replace("%20", " ")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(root.parent / "secret.txt")
    with served(root) as server:
        assert ask(server, "/run/out").status == 404
        for target in (f"/run/{name}", f"/api/run/{name}", f"/compare?run={name}&run=a"):
            reply = ask(server, target)
            assert (reply.status, SECRET.encode() in reply.body) == (404, False)


@pytest.mark.parametrize("target", ["/", "/api/runs", "/run/a", "/events", "/assets/list.js", "/nothing"])
def test_other_hosts_are_refused(root: Path, target: str) -> None:
    with served(root) as server:
        for host in ("evil.example", f"evil.example:{server.server_port}", ""):
            assert ask(server, target, headers={"Host": host}).status == 403
        name = target.encode()
        assert send_raw(server, b"GET " + name + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 403")
        assert send_raw(server, b"GET " + name + b"\r\n\r\n").count(b"This server answers only") == 1
        twice = b"GET " + name + b" HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert send_raw(server, twice).startswith(b"HTTP/1.0 403")


def test_every_answer_is_kept_from_doing_harm(root: Path) -> None:
    with served(root) as server:
        for target in ("/", "/api/runs", "/run/a", "/api/run/a", "/assets/list.js", "/nothing", "/compare"):
            headers = ask(server, target).headers
            policy = headers["Content-Security-Policy"]
            for part in (
                "default-src 'none'",
                "frame-ancestors 'none'",
                "base-uri 'none'",
                "script-src 'self'",
            ):
                assert part in policy
            script_part = policy.split("script-src")[1].split(";")[0]
            assert "unsafe" not in script_part
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "Access-Control-Allow-Origin" not in headers


def test_a_script_in_the_name_of_a_run_may_not_run(root: Path) -> None:
    """Even if the page did not escape it: only the scripts of a page without data are allowed."""
    name = "<script>alert(1)<!--"
    write_run(root / name)
    with served(root) as server:
        reply = ask(server, f"/run/{quote(name)}")
        assert b"<script>alert(1)" in reply.body
        own = script_hashes(render_simply(PageContents(title="", created="", version="", runs=[]), CLIENT))
        injected = script_hashes(reply.body.decode())[:1]
        policy = reply.headers["Content-Security-Policy"]
        assert [digest in policy for digest in (*own, *injected)] == [True, False]


CLIENT = (Path(module.__file__).parent / "assets" / "live.js").read_text()


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"]
)
def test_only_get_and_head(root: Path, method: str) -> None:
    with served(root) as server:
        reply = ask(server, "/api/runs", method=method)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


def test_head_has_the_headers_alone(root: Path) -> None:
    with served(root) as server:
        for target in ("/", "/run/a", "/events", "/nothing"):
            reply = ask(server, target, method="HEAD")
            assert reply.body == b""
            assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_a_head_that_is_too_long_is_refused(root: Path) -> None:
    with served(root) as server:
        line = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
        long = [
            line + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
            line + b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + b"\r\n",
            b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
        for request in long:
            assert send_raw(server, request).startswith(b"HTTP/1.0 431")
        assert ask(server, "/", headers={"X": "x" * 8000}).status == 200
        assert ask(server, "/").status == 200


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"\x16\x03\x01\x00\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_request_does_no_harm(root: Path, request_: bytes) -> None:
    with served(root) as server:
        send_raw(server, request_)
        assert ask(server, "/").status == 200


def test_a_client_that_never_ends_its_head_is_let_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEAD_TIMEOUT_S", 0.2)
    with served(root) as server:
        assert send_raw(server, b"GET / HTTP/1.1\r\nHost: local") == b""


def test_a_run_that_cannot_be_collected_says_so(root: Path) -> None:
    def collect(paths: object) -> PageContents:
        raise ValueError("<b>damaged</b>")

    with served(root, collect=collect) as server:
        reply = ask(server, "/run/a")
        assert (reply.status, reply.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")
        assert ask(server, "/").status == 200


def test_a_stream_begins_with_all_rows_and_goes_on_with_changes(root: Path) -> None:
    with served(root) as server:
        wait_until(lambda: len(server.catalogue.rows()) == 2)
        with open_events(server) as events:
            name, data = next(events)
            assert (name, [row["id"] for row in data["rows"]]) == ("all", ["a", "b%20b"])
            add_event(root / "a", "train", update=3, loss=0.125)
            name, data = next(events)
            assert (name, [(row["id"], row["loss"]) for row in data["rows"]]) == ("changes", [("a", 0.125)])


def test_a_stream_of_one_run_tells_nothing_of_others(root: Path) -> None:
    with served(root) as server:
        wait_until(lambda: len(server.catalogue.rows()) == 2)
        with open_events(server, "/events?run=b%20b") as events:
            assert [row["id"] for row in next(events)[1]["rows"]] == ["b%20b"]
            add_event(root / "a", "train", update=3, loss=0.125)
            wait_until(lambda: any(row["loss"] == 0.125 for row in server.catalogue.rows()))
            add_event(root / "b b", "train", update=3, loss=0.125)
            assert [row["id"] for row in next(events)[1]["rows"]] == ["b%20b"]


def test_a_stream_shows_that_it_lives(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMMENT_EVERY_S", 0.05)
    with served(root) as server:
        wait_until(lambda: len(server.catalogue.rows()) == 2)
        with open_lines(server) as lines:
            assert next(lines) == "retry: 1000"
            assert ": still here" in lines


def test_streams_are_limited(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STREAMS", 1)
    monkeypatch.setattr(module, "_COMMENT_EVERY_S", 0.05)
    with served(root) as server:
        with open_events(server) as events:
            next(events)
            reply = ask(server, "/events")
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
            assert ask(server, "/").status == 200
        wait_until(lambda: _is_free(server), what="the end of a stream whose reader went away")


def _is_free(server: LiveServer) -> bool:
    if not server.streams.acquire(blocking=False):
        return False
    server.streams.release()
    return True


def test_connections_are_limited(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 1)
    monkeypatch.setattr(module, "_COMMENT_EVERY_S", 0.05)
    with served(root) as server:
        with open_events(server) as events:
            next(events)
            with pytest.raises((OSError, HTTPException)):
                ask(server, "/")
        wait_until(lambda: _answers(server), what="the end of a stream whose reader went away")


def _answers(server: LiveServer) -> bool:
    try:
        return ask(server, "/").status == 200
    except OSError:
        return False


def test_a_new_server_takes_the_place_of_one_that_ended(root: Path) -> None:
    with served(root) as first:
        port = first.server_port
        with open_events(first) as events:
            next(events)
    with served(root, port=port) as second:
        wait_until(lambda: len(second.catalogue.rows()) == 2)
        with open_events(second) as events:
            assert [row["id"] for row in next(events)[1]["rows"]] == ["a", "b%20b"]
