"""The page's server, built on Python's standard library. It is local and read-only.

It listens at 127.0.0.1 and answers GET alone, and only under a local host name, so that another site's name cannot be
made to point here (DNS rebinding). Pages of other sites may link to it, but get no data from it. Other users of the
machine can reach the port: every path begins with a token, which is drawn at the start and part of `Server.url`. It is
in the path because there it comes along with all relative addresses of the page, and no cookie of this host holds it,
which servers at other ports would be sent.
"""

from __future__ import annotations

import errno
import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isfinite
from typing import Any
from urllib.parse import parse_qs, urlsplit

from marl_gem.errors import MarlGemError, RecordError
from marl_gem.runs.library import RunLibrary
from marl_gem.viewer.api import Api
from marl_gem.viewer.scripts import read_page

FIRST_PORT = 7475
PORTS = 100
"""So many ports are tried, from the first one up, if none is given."""

NAMES = {"localhost", "127.0.0.1", "::1"}

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""The page may run this server's scripts, show its pictures and data: URLs, and ask it questions. Nothing else."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "png": "image/png",
}

NO_TOKEN = (
    "The address lacks the token of this viewer, which keeps out other users of the machine. marl-gem view has printed "
    "the complete address in the terminal where it was started; open that one. Each start has another token."
)

REFUSAL = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>marl_gem</title>
<h1>This cannot be shown</h1>
<p>{}</p>
</html>
"""


class Server(ThreadingHTTPServer):
    """Serve the runs of a library. `serve_forever()` works until it is interrupted; `server_close()` frees the port.

    Args:
        library: the runs.
        port: where to listen. None takes the first free port from `FIRST_PORT` up, 0 any free port.

    Raises:
        MarlGemError: the port is taken, or may not be used.
    """

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would share a port that is taken

    def __init__(self, library: RunLibrary, port: int | None = None) -> None:
        self.api = Api(library)
        self.token = secrets.token_urlsafe(24)
        self.page = {name: text.encode() for name, text in read_page().items()}
        candidates = range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]
        for candidate in candidates:
            try:
                super().__init__(("127.0.0.1", candidate), _Handler)
                return
            except OverflowError:
                raise MarlGemError(f"a port is a number from 0 to 65535, not {candidate}") from None
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise MarlGemError(f"port {candidate} cannot be used: {error.strerror}. Choose another") from error
        raise MarlGemError(
            f"port {port} is taken; choose another, or none to get one that is free"
            if port is not None
            else f"all ports from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} are taken; choose one with --port"
        )

    @property
    def url(self) -> str:
        """The page's address, with the token."""
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may close the connection before the answer comes; print any other error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = -1
    disable_nagle_algorithm = True  # otherwise the body waits 40 ms for the acknowledgement of the headers

    def do_GET(self) -> None:
        try:
            url = urlsplit(self.path)
            token, slash, name = url.path.removeprefix("/").partition("/")
            self._check(token, name)
            if slash:
                self._answer(name, parse_qs(url.query, keep_blank_values=True, max_num_fields=100))
            else:
                self._send(HTTPStatus.PERMANENT_REDIRECT, TYPES["html"], b"", Location=f"/{token}/")
        except _Refused as error:
            if "text/html" in self.headers.get("Accept", ""):  # not the page's questions, but somebody with a browser
                self._send(error.status, TYPES["html"], REFUSAL.format(error).encode())
            else:
                self._send_json(error.status, {"error": str(error)})
        except (MarlGemError, ValueError) as error:  # ValueError: the URL is malformed
            self._send_json(HTTPStatus.NOT_FOUND, {"error": str(error)})

    def _refuse(self) -> None:
        self.close_connection = True  # there may be a body that is not read
        self._send_json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "this server is read-only; it answers GET alone"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def version_string(self) -> str:
        return "marl_gem"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _check(self, token: str, name: str) -> None:
        """Refuse what does not come from this user's page. Nothing that is sent back holds a token."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or urlsplit(f"//{hosts[0]}").hostname not in NAMES:
            raise _Refused(HTTPStatus.FORBIDDEN, "this server answers under the name localhost alone")
        site, mode = (self.headers.get(f"Sec-Fetch-{name}", "") for name in ("Site", "Mode"))
        if site in ("cross-site", "same-site") and (mode, name) != ("navigate", ""):
            raise _Refused(HTTPStatus.FORBIDDEN, "other sites may not ask this server anything")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            raise _Refused(HTTPStatus.FORBIDDEN, NO_TOKEN)

    def _answer(self, name: str, parameters: dict[str, list[str]]) -> None:
        if (file := name or "index.html") in self.server.page:
            self._send(HTTPStatus.OK, TYPES[file.rpartition(".")[2]], self.server.page[file])
        elif name == "picture":
            self._send(HTTPStatus.OK, TYPES["png"], self.server.api.picture(parameters))
        elif name.startswith("api/") and (question := self.server.api.questions.get(name.removeprefix("api/"))):
            self._send_json(HTTPStatus.OK, question(parameters))
        else:
            raise RecordError(f"there is nothing at {name[:100]}")

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        try:
            body = json.dumps(value, allow_nan=False, separators=(",", ":"))
        except ValueError:
            body = json.dumps(finite(value), separators=(",", ":"))
        self._send(status, TYPES["json"], body.encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | HEADERS | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def finite(value: Any) -> Any:
    """The same with NaN and infinities, which JSON does not have, as text."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
