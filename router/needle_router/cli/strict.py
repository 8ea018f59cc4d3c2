"""The server's reading of requests, stricter than uvicorn's where a proxy has to be.

By the time an app is called, httptools has reduced an absolute-form target to its path and let a second Host pass; what
the client meant by them cannot be told any more, so they are refused here.
"""

from __future__ import annotations

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from needle_router.errors import BadRequest, BadTarget, envelope


class StrictProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with its 400s in OpenAI's shape."""

    def on_headers_complete(self) -> None:
        """Check what the app will not see. An error raised here makes the parser stop, and the answer a 400."""
        if not self.url.startswith(b"/"):
            raise BadTarget("only origin-form targets are served")
        hosts = sum(name == b"host" for name, _ in self.headers)
        # RFC 9112 section 3.2: exactly one, and none only before HTTP/1.1.
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise BadRequest("the request needs exactly one Host")
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Say that the request could not be read, and close."""
        error = BadRequest("The request is not one that can be read in one way only: see RFC 9112, sections 3 and 6.")
        body = orjson.dumps(envelope(error))
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-should-retry: false\r\nconnection: close\r\n\r\n" % len(body)
        )
        self.transport.write(head + body)
        self.transport.close()
