"""What `check` concludes from an upstream's model list."""

import pytest

from needle_router.cli.check import judged


@pytest.mark.parametrize(
    ("status", "body", "has_key", "state", "text"),
    [
        pytest.param(200, b'{"data": [{}]}', True, "ok", "h answers and lists 1 model", id="one model"),
        pytest.param(200, b'{"data": []}', False, "ok", "h answers and lists 0 models", id="no models"),
        pytest.param(200, b"<html>", True, "warning", "is no list of models", id="a web page"),
        pytest.param(200, b"[]", True, "warning", "is no list of models", id="a list"),
        pytest.param(401, b"", True, "failed", "refuses upstream.api_key (HTTP 401)", id="wrong key"),
        pytest.param(401, b"", False, "ok", "asks for a key, which clients send themselves", id="no key"),
        pytest.param(404, b"", False, "warning", "has no /v1/models", id="other paths"),
        pytest.param(500, b"", False, "failed", "h answers with HTTP 500", id="broken"),
        pytest.param(302, b"", False, "failed", "h answers with HTTP 302", id="a redirect is not followed"),
    ],
)
def test_a_status_and_a_body_say_how_an_upstream_is(status, body, has_key, state, text):
    found_state, found_text = judged("h", status, body, has_key=has_key)
    assert found_state == state
    assert text in found_text
