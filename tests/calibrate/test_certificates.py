"""The certificate file: what is read, and every problem of one that is none."""

import json

import pytest

from needle_policies.certified import Certificates, Scores
from needle_router.calibrate.certificates import BadCertificates, read_certificates

ENTRY = {"fingerprint": "ab", "per_tool": True, "max_error": 0.05, "tools": {"f": {"threshold": 0.8}}}


def content(*entries, version=2):
    return json.dumps({"version": version, "certificates": entries}).encode()


def problems(text):
    with pytest.raises(BadCertificates) as caught:
        read_certificates(text)
    return caught.value.problems


def test_scores_are_read_by_fingerprint_and_tool():
    other = {**ENTRY, "fingerprint": "cd", "per_tool": False, "tools": {"*": {"threshold": 1}}}
    assert read_certificates(content(ENTRY, other)) == Certificates(
        {"ab": Scores({"f": 0.8}), "cd": Scores({}, every=1.0)}
    )


def test_the_score_of_all_tools_together_is_no_way_round_a_tool_that_was_refused():
    both = {**ENTRY, "tools": {"*": {"threshold": 0.5}, "f": {"threshold": 0.8}}}
    assert read_certificates(content(both)) == Certificates({"ab": Scores({"f": 0.8})})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"{", ("is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))",)),
        (b"\xff", ("is not JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)",)),
        (b"[]", ("is not a JSON object",)),
        (b"{}", ("has version null; this router reads 2: calibrate again",)),
        (content(ENTRY, version=1), ("has version 1; this router reads 2: calibrate again",)),
        (content(), ('"certificates" must be a list of at least one entry',)),
        (content(3), ("certificates[0] is not an object",)),
        (content(ENTRY, ENTRY), ('fingerprint "ab" occurs twice',)),
        (content({**ENTRY, "tools": {}}), ("certificates[0].tools must be an object with at least one tool",)),
        (
            content(ENTRY, {"fingerprint": "cd", "per_tool": 1, "tools": {"f": {}, "g": {"threshold": 1.01}}}),
            (
                "certificates[1].per_tool must be true or false, not 1",
                "certificates[1].tools.f.threshold must be a number from 0 to 1, not null",
                "certificates[1].tools.g.threshold must be a number from 0 to 1, not 1.01",
            ),
        ),
        (
            content({**ENTRY, "tools": {"f": {"threshold": True}, "g": 3}}),
            (
                "certificates[0].tools.f.threshold must be a number from 0 to 1, not true",
                "certificates[0].tools.g.threshold must be a number from 0 to 1, not null",
            ),
        ),
    ],
)
def test_everything_that_is_wrong_is_named(text, found):
    assert problems(text) == found


def test_a_certificate_that_is_bound_to_nothing_says_what_to_do():
    (problem,) = problems(content({**ENTRY, "fingerprint": ""}))
    assert problem.startswith('certificates[0].fingerprint must be the fingerprint of a decision, not "": labelled')


def test_brackets_by_the_thousand_are_no_crash():
    assert problems(b"[" * 100_000)[0].startswith("is not JSON (")


def test_a_hopeless_file_is_not_told_without_end():
    assert len(problems(content({**ENTRY, "tools": {str(n): {} for n in range(1000)}}))) == 20
