"""Every error that leaves a module, and the one way it reaches the wire.

    RouterError                     500  router_error
    ├── ConfigError                      (stops the start, exit 2)
    ├── BadRequest                  400  the client's request cannot be served
    │   ├── BodyTooLarge            413  body_too_large
    │   ├── BadTarget               400  bad_request_target
    │   ├── TargetTooLong           414  target_too_long
    │   ├── HeadTooLarge            431  headers_too_large
    │   └── ClientTooSlow           408  request_timeout
    ├── BudgetExceeded              429  budget_exceeded
    ├── TooManyConnections          503  too_many_connections
    ├── Unauthorized                401  invalid_api_key
    ├── Forbidden                   403  forbidden
    ├── NotFound                    404  unknown_url
    │   └── ModelNotFound           404  model_not_found
    ├── WebSocketRefused            426  websocket_unsupported
    ├── LoopDetected                508  loop_detected
    ├── EngineError                 502  engine_error      (seen by clients only without an upstream)
    │   ├── EngineBusy              429  engine_busy
    │   ├── EngineTimeout           504  engine_timeout
    │   ├── EngineCrash             502  engine_crash
    │   ├── EngineGarbage           502  engine_garbage
    │   └── EngineUnavailable       503  engine_unavailable
    └── UpstreamError               502  upstream_error
        ├── UpstreamUnreachable     502  upstream_unreachable
        ├── UpstreamTimeout         504  upstream_timeout
        └── UpstreamBroken          502  upstream_disconnected

A message says what happened, which value, which limit, what to do; it never holds a key, a URL query or a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class RouterError(Exception):
    """Base of everything this project raises on purpose; carries its HTTP status and OpenAI error code."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "router_error"
    type: ClassVar[str] = "needle_router_error"
    #: False when a repeat of the same request cannot succeed (``x-should-retry``, openai-python `_should_retry`).
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code  # type: ignore[misc]  # an instance may be more specific than its class


class ConfigError(RouterError):
    """The configuration cannot be used; holds every problem found, one line each."""

    code = "config_error"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class BadRequest(RouterError):
    """The request cannot be served as it stands."""

    status, code, type = 400, "invalid_request", "invalid_request_error"


class BodyTooLarge(BadRequest):
    """The body is larger than ``server.max_body_mb``."""

    status, code = 413, "body_too_large"


class BadTarget(BadRequest):
    """The request target is one that a proxy must not pass on (RFC 9112 section 3.2)."""

    code = "bad_request_target"


class TargetTooLong(BadRequest):
    """The request target is longer than ``server.max_url_kb``."""

    status, code = 414, "target_too_long"


class HeadTooLarge(BadRequest):
    """The header fields are more than ``server.max_headers`` or ``server.max_header_kb`` allow."""

    status, code = 431, "headers_too_large"


class ClientTooSlow(BadRequest):
    """The request did not arrive within ``server.header_timeout_s`` and ``server.body_timeout_s``."""

    status, code, retryable = 408, "request_timeout", True


class TooManyConnections(RouterError):
    """All of ``server.max_connections`` are taken."""

    status, code, retryable = 503, "too_many_connections", True


class ShuttingDown(RouterError):
    """The router stops, and the answer was not complete within ``server.drain_timeout_s``."""

    status, code, retryable = 503, "shutting_down", True


class BudgetExceeded(RouterError):
    """A `budget` policy refuses what would go to the upstream: its cap for the day or the month is reached."""

    status, code, type = 429, "budget_exceeded", "insufficient_quota"


class Unauthorized(RouterError):
    """A router key is configured and the request did not carry it."""

    status, code, type = 401, "invalid_api_key", "invalid_request_error"


class Forbidden(RouterError):
    """The request comes from where none is accepted: a page of another site, or under a foreign name."""

    status, code, type = 403, "forbidden", "invalid_request_error"


class NotFound(RouterError):
    """No such endpoint here."""

    status, code, type = 404, "unknown_url", "invalid_request_error"


class ModelNotFound(NotFound):
    """No model of that name is served here."""

    code = "model_not_found"


class WebSocketRefused(RouterError):
    """A WebSocket handshake where none is passed on; clients fall back to HTTP on it."""

    status, code, type = 426, "websocket_unsupported", "invalid_request_error"


class LoopDetected(RouterError):
    """The request has already passed through this router (RFC 9110 section 7.6.3, `Via`)."""

    status, code = 508, "loop_detected"


class EngineError(RouterError):
    """The engine could not decide. With an upstream this is an outcome with a reason, never an answer."""

    status, code, type = 502, "engine_error", "engine_error"


class EngineBusy(EngineError):
    """Every worker queue is full."""

    status, code, retryable = 429, "engine_busy", True


class EngineTimeout(EngineError):
    """The engine did not answer within its deadline."""

    status, code, retryable = 504, "engine_timeout", True


class EngineCrash(EngineError):
    """The engine process ended during the request."""

    code, retryable = "engine_crash", True


class EngineGarbage(EngineError):
    """The engine's answer is not an envelope."""

    code = "engine_garbage"


class EngineUnavailable(EngineError):
    """The engine is loading, failed to load, or switched off."""

    status, code, retryable = 503, "engine_unavailable", True


class UpstreamError(RouterError):
    """The upstream could not be asked, or its answer could not be passed on."""

    status, code, type, retryable = 502, "upstream_error", "upstream_error", True


class UpstreamUnreachable(UpstreamError):
    """No connection to the upstream."""

    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time."""

    status, code = 504, "upstream_timeout"


class UpstreamBroken(UpstreamError):
    """The upstream ended the connection before its answer was complete."""

    code = "upstream_disconnected"


def envelope(error: RouterError) -> dict[str, Any]:
    """The OpenAI error object: all four keys, `param` and `code` nullable (OpenAPI schema `Error`)."""
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}
