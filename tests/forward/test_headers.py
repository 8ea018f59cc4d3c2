"""Which header fields go on, and which end on this hop."""

import pytest

from needle_router.errors import BadRequest
from needle_router.forward.headers import connection_options, passed_before, request_headers, response_headers

HOP_BY_HOP = [
    (b"Connection", b"keep-alive, X-Private"),
    (b"Keep-Alive", b"timeout=5"),
    (b"Proxy-Connection", b"keep-alive"),
    (b"Proxy-Authenticate", b"Basic"),
    (b"Proxy-Authorization", b"Basic eA=="),
    (b"TE", b"trailers"),
    (b"Trailer", b"x-sum"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Upgrade", b"h2c"),
    (b"x-private", b"listed by Connection"),
]
KEPT = [(b"X-Kept", b"1"), (b"Authorization", b"Bearer k"), (b"X-Kept", b"2")]


def upstream(headers, **options):
    return request_headers(headers, host=b"u:9", via=b"needle-router-1", **options)


def test_hop_by_hop_fields_and_those_that_connection_names_end_here_on_the_way_up():
    ours = [(b"host", b"u:9"), (b"via", b"1.1 needle-router-1")]
    assert upstream([*HOP_BY_HOP, *KEPT]) == [ours[0], *KEPT, ours[1]]


def test_hop_by_hop_fields_and_those_that_connection_names_end_here_on_the_way_back():
    assert response_headers([*HOP_BY_HOP, *KEPT]) == KEPT


def test_connection_may_be_repeated_and_list_several():
    fields = [(b"connection", b" A ,b"), (b"x", b"y"), (b"CONNECTION", b"c")]
    assert connection_options(fields) == {b"a", b"b", b"c"}


def test_host_is_the_upstreams_and_expect_is_answered_here():
    got = upstream([(b"Host", b"router"), (b"Expect", b"100-continue"), (b"host", b"second")])
    assert got == [(b"host", b"u:9"), (b"via", b"1.1 needle-router-1")]


@pytest.mark.parametrize("name", [b"x-needle-mode", b"X-Needle-Route", b"x-needle-anything"])
def test_our_own_fields_neither_go_up_nor_come_back(name):
    assert name not in dict(upstream([(name, b"forged")]))
    assert response_headers([(name, b"forged"), (b"x-needles", b"another's")]) == [(b"x-needles", b"another's")]


def test_via_lists_earlier_hops_first():
    got = upstream([(b"via", b"1.1 edge"), (b"via", b"2 cdn")])
    assert got[-1] == (b"via", b"1.1 edge, 2 cdn, 1.1 needle-router-1")


def test_only_the_router_itself_is_a_loop():
    assert passed_before([(b"Via", b"1.1 x, 1.1 needle-router-1")], b"needle-router-1")
    assert not passed_before([(b"via", b"1.1 needle-router-2")], b"needle-router-1")
    assert not passed_before([(b"x-via", b"1.1 needle-router-1")], b"needle-router-1")


def test_an_injected_key_replaces_every_credential_of_the_client():
    client = [(b"Authorization", b"Bearer client"), (b"api-key", b"c"), (b"X-Api-Key", b"c"), (b"x", b"y")]
    got = upstream(client, key="sk-ours")
    assert [pair for pair in got if pair[0] not in (b"host", b"via")] == [
        (b"x", b"y"),
        (b"authorization", b"Bearer sk-ours"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([(b"content-length", b"5"), (b"transfer-encoding", b"chunked")], id="length and chunks"),
        pytest.param([(b"Transfer-Encoding", b"x"), (b"Content-Length", b"5")], id="in the other order"),
        pytest.param([(b"content-length", b"5"), (b"content-length", b"6")], id="two lengths"),
        pytest.param([(b"content-length", b"5, 5")], id="a list of lengths"),
        pytest.param([(b"content-length", b"+5")], id="a sign"),
        pytest.param([(b"content-length", b"")], id="no digits"),
    ],
)
def test_a_request_with_two_readings_of_its_length_is_refused(fields):
    with pytest.raises(BadRequest, match="length"):
        upstream(fields)


def test_a_length_that_is_said_twice_is_said_once():
    got = upstream([(b"content-length", b"5"), (b"content-length", b"5")])
    assert [pair for pair in got if pair[0] == b"content-length"] == [(b"content-length", b"5")]
