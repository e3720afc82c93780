"""The server: what it answers, and to whom."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import marl_gem
from marl_gem.errors import MarlGemError
from marl_gem.runs import entries, index
from marl_gem.runs.library import RunLibrary
from marl_gem.types import to_json
from marl_gem.viewer.server import FIRST_PORT, Server
from tests.viewer.recorded import (
    HOSTILE,
    answer,
    bare_request,
    episode,
    failed,
    png,
    request,
    with_roles,
    write_run,
)

PNG = base64.b64decode(png().partition(",")[2])


def test_the_answers_that_the_page_needs(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode(n) for n in range(250)], [failed(999)], seed=2**63))
    run = answer(server, "run?run=run")
    assert (run["episodes"], run["pending"]) == (250, 1) and json.loads(run["config"])["seed"] == 2**63
    page = answer(server, "episodes?run=run&start=200&count=100")
    assert page["total"] == 251 and len(page["rows"]) == 51 and page["rows"][0]["seed"] == "1200"
    assert len(answer(server, "episodes?run=run&count=99999")["rows"]) <= 500
    position = answer(server, "position?run=run&key=3&sort=seed")
    assert (position["index"], position["before"], position["after"]) == (248, "4", "2")
    assert answer(server, "position?run=run&key=3&filter=error")["index"] is None
    shown = answer(server, "episode?run=run&key=talk-7")
    assert (shown["key"], len(shown["turns"]), shown["turns"][1]["tokens"]) == ("8", 3, 2)
    assert "logprobs" not in json.dumps(shown)
    assert answer(server, "tokens?run=run&key=8&turn=2") == {
        "ids": [7, 8],
        "logprobs": [-0.1, -2.5],
        "prompt": [1, 2, 3],
    }


def test_the_answer_for_an_episode_has_its_roles(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [with_roles(), episode()]))
    user, assistant = answer(server, "episode?run=run&key=1")["roles"]
    assert user == {"agent": "user", "parts": [{"kind": "text", "text": "You plan a walk."}]}
    assert [part["kind"] for part in assistant["parts"]] == ["text", "tool"]
    assert assistant["parts"][1]["name"] == "weather"
    assert answer(server, "episode?run=run&key=2")["roles"] == []


def test_counterparts_are_of_the_same_task(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    again = [episode(n, repeat=repeat) for n in range(3) for repeat in range(2)]
    write_run(tmp_path / "a", again)
    write_run(tmp_path / "b", again[::-1])
    server = serve(tmp_path)
    assert answer(server, "counterpart?run=a&key=4") == {"key": "3", "same": True}
    assert answer(server, "counterpart?run=a&key=4&other=b") == {"key": "3", "same": True}  # of the same repeat


def test_counterparts_are_found_wherever_they_lie_in_their_files(
    tmp_path: Path, serve: Callable[[Path], Server]
) -> None:
    tasks = [episode(n, options={"task": n}, seed=n) for n in range(3)]
    write_run(tmp_path / "a", tasks, [failed(9)])
    other_seeds = [episode(n, options={"task": n}, seed=n + 100) for n in (2, 0)]
    write_run(tmp_path / "b", [episode(7, id="x" * 5000), *other_seeds])
    server = serve(tmp_path)
    assert answer(server, "counterpart?run=a&key=1&other=b") == {"key": "3", "same": True}, "the task, in another seed"
    assert answer(server, "counterpart?run=a&key=2&other=b") == {"key": "1", "same": False}, "it does not have the task"
    assert answer(server, "counterpart?run=a&key=2") == {"key": "3", "same": False}, "the next of the same run"
    assert answer(server, "counterpart?run=a&key=e1") == {"key": "1", "same": False}, "after the last the first"


def test_a_run_may_grow_while_it_is_looked_at(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode(0)])
    server = serve(folder)
    for number in range(1, 4):
        with (folder / "episodes.jsonl").open("a") as file:
            file.write(to_json(episode(number)) + "\n")
        assert answer(server, "episodes?run=run")["total"] == answer(server, "run?run=run")["episodes"] == number + 1
    write_run(folder, [])
    assert answer(server, "episodes?run=run") == {"total": 0, "rows": []}


def test_a_long_run_is_shown_while_it_is_read(
    tmp_path: Path, serve: Callable[[Path], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, read = threading.Event(), entries.entry_of

    def slow(key: str, offset: int, line: bytes) -> entries.Entry:
        assert key != "26" or go_on.wait(20)
        return read(key, offset, line)

    monkeypatch.setattr(index, "SHOWN_EVERY", 10)
    monkeypatch.setattr(index, "entry_of", slow)
    server = serve(write_run(tmp_path / "run", [episode(n) for n in range(50)]))
    part = answer(server, "run?run=run")
    assert part["episodes"] == 20 and 0.3 < part["reading"] < 0.5 and part["agents"][1]["successes"] == 20
    rows = answer(server, "episodes?run=run&start=15")
    assert rows["total"] == 20 and rows["rows"][-1]["outcomes"]["assistant"]["success"]
    assert answer(server, "progress?run=run")["reading"] == part["reading"]
    threading.Timer(0.1, go_on.set).start()
    assert answer(server, "episodes?run=run&sort=seed")["total"] == 50, "a search waits for all of the run"
    assert answer(server, "progress?run=run")["reading"] is None
    complete = answer(server, "run?run=run")
    assert complete["episodes"] == answer(server, "episodes?run=run")["total"] == 50 and complete["reading"] is None


def test_values_that_json_does_not_have_do_not_break_an_answer(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode(0, id=HOSTILE, seed=2**80)])
    line = (folder / "episodes.jsonl").read_text()
    line = line.replace('"checked":true', '"checked":NaN').replace('"reward":1.0', '"reward":-1e999')
    (folder / "episodes.jsonl").write_text(line)
    server = serve(folder)
    shown = answer(server, "episode?run=run&key=1")
    assert shown.get("broken") or shown["turns"][2]["reward"] == "-inf"
    raw = folder / "episodes.jsonl"
    raw.write_text(to_json(episode(0)).replace('"reward":1.0', '"reward":1e999') + "\n")
    assert answer(server, "episode?run=run&key=1")["turns"][2]["total"] == "inf"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:{port}", True),
        ("localhost:{port}", True),
        ("LOCALHOST:9999", True),  # a port that was forwarded
        ("[::1]:{port}", True),
        ("evil.example:{port}", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:{port}", False),
        ("evil.example@localhost", True),  # still the name localhost, to whomever reads it
        ("localhost@evil.example", False),
        ("[", False),
        ("", False),
        ("0.0.0.0:{port}", False),
    ],
)
def test_the_server_answers_under_local_names_alone(
    tmp_path: Path, serve: Callable[[Path], Server], host: str, allowed: bool
) -> None:
    server = serve(write_run(tmp_path / "run", [episode()]))
    for path in ("/", "/api/runs", "/page.js"):
        status, _, body = request(server, path, Host=host.format(port=server.server_address[1]))
        assert (status == 200) == allowed
        assert allowed or (status in (403, 404) and b"talk" not in body)


def test_other_sites_may_link_here_but_not_ask(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode()]))
    for site in ("cross-site", "same-site"):
        assert request(server, "/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 200
        assert request(server, "/api/runs", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 403
        assert request(server, "/api/runs", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
        assert request(server, "/page.js", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
    assert request(server, "/api/runs", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors")[0] == 200
    assert "access-control-allow-origin" not in request(server, "/api/runs", Origin="http://evil.example")[1]


def test_other_users_of_the_machine_need_the_token(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode()])
    server, other = serve(folder), serve(folder)
    assert len(server.token) >= 32 and server.token != other.token
    wrong = (
        "",
        "x",
        server.token[:-1],
        server.token + "x",
        server.token.swapcase(),
        other.token,
        "%",
        "\u00e9".encode(),
    )
    for token in map(str, wrong):
        for path in ("", "/", "/api/runs", "/page.js", "/picture?run=run&name=curve.png"):
            for target in (f"/{token}{path}", f"{path}?token={server.token}", f"/?{server.token}"):
                status, headers, body = bare_request(server, target or "/", Cookie=server.token)
                assert status == 403, target
                assert server.token.encode() not in body and server.token not in str(headers) and b"talk" not in body
    assert request(server, "/")[0] == request(server, "/api/runs")[0] == 200
    status, headers, body = bare_request(server, f"/{server.token}")
    assert status == 308 and headers["location"] == f"/{server.token}/" and body == b""
    for path in ("/", "/page.js", "/style.css", "/api/runs"):
        _, headers, body = request(server, path)
        assert server.token.encode() not in body and "set-cookie" not in headers
        assert headers["referrer-policy"] == "no-referrer"


def test_who_lacks_the_token_is_shown_where_it_is(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode()]))
    status, headers, body = bare_request(server, "/", Accept="text/html,*/*")
    assert status == 403 and headers["content-type"].startswith("text/html")
    assert b"has printed the complete address in the terminal" in body and b"<script" not in body
    status, _, body = bare_request(server, "/earlier-token/api/runs", Accept="*/*")
    assert status == 403 and "Each start has another token" in json.loads(body)["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_the_server_is_read_only(tmp_path: Path, serve: Callable[[Path], Server], method: str) -> None:
    assert request(serve(write_run(tmp_path / "run", [episode()])), "/api/runs", method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fserver.py",
        "/page/../server.py",
        "/index.html/../../server.py",
        "//etc/passwd",
        "/api/../server.py",
        "/api/_run?run=run",
        "/picture?run=run&name=../secret.png",
        "/picture?run=run&name=config.json",
        "/picture?run=../outside&name=secret.png",
        "/api/run?run=..",
        "/api/run?run=/etc",
        "/api/run",
        "/api/episode?run=run&key=../1",
        "/api/episode?run=run&key=99",
        "/api/tokens?run=run&key=1&turn=99",
        "/api/tokens?run=run&key=1&turn=-1",
        "/api/episodes?run=run&start=x",
        "/api/episodes?run=run&filter=nothing",
        "/api/episodes?run=run&sort=__class__",
        "/%00",
        "/favicon.ico",
    ],
)
def test_other_paths_are_not_found(tmp_path: Path, serve: Callable[[Path], Server], path: str) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    status, headers, body = request(serve(write_run(tmp_path / "run", [episode()])), path)
    assert (
        status == 404
        and headers["content-type"] == "application/json"
        and b"secret" not in body.replace(b"/secret.png", b"")
    )
    assert json.loads(body)["error"]


def test_every_answer_forbids_what_the_page_does_not_need(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode()])
    (folder / "curve.png").write_bytes(PNG)
    server = serve(folder)
    for path in (
        "/",
        "/page.js",
        "/style.css",
        "/icon.svg",
        "/api/runs",
        "/picture?run=run&name=curve.png",
        "/nothing",
    ):
        _, headers, _ = request(server, path)
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["server"] == "marl_gem"
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"GIF89a", "no PNG"),
        (b"<svg onload=alert(1)>", "no PNG"),
        (PNG[:16] + b"\x00\x01\x00\x00" * 2 + PNG[24:], "no PNG of at most 50,000,000 pixels"),
        (PNG + bytes(64 * 2**20), "more than 67,108,864 bytes"),
    ],
)
def test_only_pictures_that_a_browser_can_bear_are_sent(
    tmp_path: Path, serve: Callable[[Path], Server], content: bytes, problem: str
) -> None:
    folder = write_run(tmp_path / "run", [episode()])
    (folder / "curve.png").write_bytes(content)
    status, _, body = request(serve(folder), "/picture?run=run&name=curve.png")
    assert status == 404 and problem in json.loads(body)["error"]
    (folder / "curve.png").write_bytes(PNG)
    assert request(serve(folder), "/picture?run=run&name=curve.png")[2] == PNG


def test_the_page_never_makes_markup_of_text() -> None:
    page = Path(marl_gem.__file__).parent / "viewer" / "page"
    scripts = "".join(file.read_text() for file in page.glob("*.js"))
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "Function("):
        assert word not in scripts
    assert "http" not in (page / "index.html").read_text() and "url(" not in (page / "style.css").read_text()


def test_many_requests_at_once(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode(n) for n in range(300)]))
    answers: list[int] = []

    def ask(number: int) -> None:
        answers.append(answer(server, f"episodes?run=run&text=({number})&start=0")["total"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [1] * 40


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = RunLibrary(write_run(tmp_path / "run", [episode()]))
    first = Server(library, 0)
    port = first.server_address[1]
    with pytest.raises(MarlGemError, match=f"port {port} is taken"):
        Server(library, port)
    monkeypatch.setattr("marl_gem.viewer.server.FIRST_PORT", port)
    second = Server(library)
    assert port < second.server_address[1] < port + 100
    first.server_close()
    second.server_close()
    with pytest.raises(MarlGemError, match="from 0 to 65535"):
        Server(library, 70_000)
    assert FIRST_PORT > 1024
