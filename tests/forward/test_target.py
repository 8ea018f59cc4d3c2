"""Where a request goes: the configured origin, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.errors import BadTarget
from needle_router.forward.target import Origin, upstream_target


@pytest.mark.parametrize(
    ("base_url", "scheme", "host", "port", "prefix", "host_header"),
    [
        ("https://api.openai.com/v1", "https", "api.openai.com", 443, b"", b"api.openai.com"),
        ("https://api.openai.com/v1/", "https", "api.openai.com", 443, b"", b"api.openai.com"),
        ("https://api.openai.com", "https", "api.openai.com", 443, b"", b"api.openai.com"),
        ("http://localhost:8000/v1", "http", "localhost", 8000, b"", b"localhost:8000"),
        ("http://gateway:80/team/a/v1", "http", "gateway", 80, b"/team/a", b"gateway"),
        ("https://gateway:80/proxy/", "https", "gateway", 80, b"/proxy", b"gateway:80"),
        ("http://[::1]:9/v1", "http", "::1", 9, b"", b"[::1]:9"),
        (" http://UPPER.example ", "http", "upper.example", 80, b"", b"upper.example"),
        ("https://bücher.example/v1", "https", "xn--bcher-kva.example", 443, b"", b"xn--bcher-kva.example"),
    ],
)
def test_an_origin_is_read_from_the_base_url(base_url, scheme, host, port, prefix, host_header):
    origin = Origin.parse(base_url)
    assert (origin.scheme, origin.host, origin.port, origin.prefix) == (scheme, host, port, prefix)
    assert origin.host_header == host_header
    assert origin.tls is (scheme == "https")


@pytest.mark.parametrize(
    ("base_url", "problem"),
    [
        ("api.openai.com/v1", "http://"),
        ("ftp://host/v1", "http://"),
        ("http:///v1", "no host"),
        ("https://user:pass@host/v1", "user name"),
        ("https://host/v1?api-version=1", "query"),
        ("https://host/v1#x", "fragment"),
    ],
)
def test_a_base_url_that_is_none_says_what_is_wrong(base_url, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        Origin.parse(base_url)
    assert "pass" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    ("base_url", "target"),
    [
        ("http://u", b"/v1/models?limit=2"),
        ("http://u/v1", b"/v1/models?limit=2"),
        ("http://u/team/v1/", b"/team/v1/models?limit=2"),
    ],
)
def test_the_base_path_comes_before_the_clients_path(base_url, target):
    assert upstream_target(Origin.parse(base_url), b"/v1/models", b"limit=2") == target


ORIGIN = Origin.parse("http://u/v1")


@pytest.mark.parametrize(
    "raw_path",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"*", id="asterisk-form"),
        pytest.param(b"http://evil/v1/x", id="absolute-form"),
        pytest.param(b"evil:443", id="authority-form"),
        pytest.param(b"@evil/v1", id="at sign first"),
        pytest.param(b"/@evil/v1", id="at sign after the slash"),
        pytest.param(b"/%40evil/v1", id="encoded at sign after the slash"),
        pytest.param(b"//evil/v1", id="two slashes first"),
        pytest.param(b"/v1//x", id="two slashes inside"),
        pytest.param(b"/v1/../admin", id="dot segment"),
        pytest.param(b"/v1/..", id="dot segment at the end"),
        pytest.param(b"/v1/./x", id="single dot"),
        pytest.param(b"/v1/%2e%2e/admin", id="encoded dots"),
        pytest.param(b"/v1/.%2E/admin", id="half encoded dots"),
        pytest.param(b"/v1/a%2f..%2fb", id="dots between encoded slashes"),
        pytest.param(b"/v1\\..\\admin", id="backslash"),
        pytest.param(b"/v1/%5c..%5Cadmin", id="encoded backslash"),
        pytest.param(b"/v1/x\x00", id="NUL"),
        pytest.param(b"/v1/x%00", id="encoded NUL"),
        pytest.param(b"/v1/x\r\nhost: evil", id="line break"),
        pytest.param(b"/v1/x%0d%0aHost:evil", id="encoded line break"),
        pytest.param(b"/v1/x%0A", id="encoded line feed"),
        pytest.param(b"/v1/x HTTP/1.1", id="blank"),
        pytest.param(b"/v1/x#f", id="fragment"),
        pytest.param(b"/v1/caf\xe9", id="byte beyond ASCII"),
    ],
)
def test_targets_that_could_mean_something_else_are_refused(raw_path):
    with pytest.raises(BadTarget):
        upstream_target(ORIGIN, raw_path, b"")


@pytest.mark.parametrize("query", [b"a=\r\nb", b"a=\x00", b"a b", b"a#b", b"\x7f"])
def test_queries_that_would_break_the_request_line_are_refused(query):
    with pytest.raises(BadTarget):
        upstream_target(ORIGIN, b"/v1/x", query)


@pytest.mark.parametrize("query", [b"u=http://e/../x", b"q=a\\b", b"q=caf\xe9", b"q=%00%0d%0a", b"a=//@&a={}|", b"?"])
def test_other_queries_are_opaque(query):
    assert upstream_target(ORIGIN, b"/v1/x", query) == b"/v1/x?" + query


@given(st.binary(max_size=40), st.binary(max_size=20))
def test_any_accepted_target_is_one_origin_form_word_with_the_very_path(path, query):
    raw_path = b"/" + path.replace(b"?", b"")
    try:
        target = upstream_target(ORIGIN, raw_path, query)
    except BadTarget:
        return
    assert target == raw_path + (b"?" + query if query else b"")
    assert len(target.split()) == 1
    assert not target.startswith((b"//", b"/@"))
    assert b".." not in target.partition(b"?")[0].split(b"/")
