"""`needle-router replay` as a process, with the demo model and with a scripted engine."""

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess

import pytest

from .conftest import COMMAND, SOURCES, until

LIGHTS = {
    "type": "function",
    "function": {
        "name": "set_lights",
        "description": "Turn a room's lights on or off",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
        },
    },
}
DAY = ("--today", "2026-11-30")
LOW = ("--set", 'policy=[{"kind": "guards"}, {"kind": "threshold", "minimum": 0.6}]')


def body(text, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "tools": [LIGHTS], **more}


def lights(room, on):
    return [{"name": "set_lights", "arguments": {"room": room, "on": on}}]


ROWS = [
    body("turn on the kitchen lights", expected=lights("kitchen", True), category="on"),
    body("turn off the bedroom lights", expected=lights("bedroom", False), category="off"),
    body("turn off the office lights", expected=lights("office", True), category="off"),
    body("don't turn on the kitchen lights", expected=[], category="none"),
    body("turn on the basement lights", expected=lights("basement", True), category="on"),
    {"model": "m", "messages": [{"role": "user", "content": "hello"}], "category": "none"},
]


@pytest.fixture
def requests(tmp_path):
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return "requests.jsonl"


def replayed(cli, *arguments):
    code, out, _ = cli("replay", *arguments, "--json", *DAY)
    return code, json.loads(out)


def test_requests_are_decided_as_the_router_would_and_graded(cli, requests):
    code, found = replayed(cli, requests, *LOW)
    assert (code, found["engine"], found["today"]) == (0, {"backend": "rust", "model": "tiny"}, "2026-11-30")
    assert (found["total"], found["interrupted"]) == (6, False)
    whole = found["all"]
    assert (whole["cases"], whole["answered"], whole["labelled"], whole["right"], whole["wrong"]) == (6, 3, 5, 2, 1)
    # The demo model knows no basement: "bedroom", with a good score, and the grounding check holds it back.
    assert whole["reasons"] == {"confident": 3, "negated": 1, "ungrounded": 1, "no-tools": 1}
    assert found["categories"]["off"]["accuracy"] == 0.5


def test_the_page_shows_what_the_command_prints(cli):
    page = (SOURCES / "docs" / "replay.md").read_text("utf-8")
    command, shown = re.search(
        r"```sh\nneedle-router (replay examples/.*?)```\n\n```text\n(.*?)```", page, re.S
    ).groups()
    arguments = shlex.split(command.replace("\\\n", " "))
    # From another folder, so by its whole path; the first line names it.
    arguments[1] = str(SOURCES / arguments[1])
    code, out, _ = cli(*arguments)
    assert (code, out.replace(f"{SOURCES}/", "")) == (1, shown)


def test_a_verifier_can_be_left_out(cli, requests):
    _, found = replayed(cli, requests, *LOW, "--without", "ungrounded")
    assert (found["without"], found["all"]["answered"], found["all"]["wrong"]) == (["ungrounded"], 4, 2)


def test_the_text_shows_tables_and_what_each_verifier_does(cli, requests):
    code, out, err = cli("replay", requests, *LOW, *DAY, "--ablate")
    assert code == 0
    told = out.splitlines()
    assert told[0] == "requests.jsonl: 6 requests, engine rust tiny, day 2026-11-30"
    assert told[2].split() == [
        "category", "requests", "answered", "right", "wrong", "needless", "merged", "refused", "accuracy", "engine",
    ]  # fmt: skip
    assert any(line.startswith("without ungrounded  ") and "60.0 %" not in line for line in told)
    assert 'checks left out, at any score and at 0.6; "held back" counts calls that only they stopped:' in told
    # Six requests pass nine of the ten tenths; each is told once.
    assert err.splitlines()[-1] == "needle-router: 6 of 6, 3 answered here (100 %)"
    assert len(err.splitlines()) == 6


def test_samples_go_on_to_calibrate(cli, tmp_path):
    rooms = ("kitchen", "bedroom", "office", "bathroom", "garage", "hallway")
    rows = [
        body(f"{verb} {switch} the {room} lights", expected=lights(room, switch == "on"))
        for room in rooms
        for switch in ("on", "off")
        for verb in ("turn", "switch", "please turn")
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, found = replayed(cli, "requests.jsonl", "--max-error", "0.2", "--delta", "0.1", "--samples", "s.jsonl")
    entry = found["certificate"]["tools"]["*"]
    assert (code, entry["errors"], entry["needed"]) == (0, 0, 11)
    assert entry["n"] >= 11
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert len(lines) == 36
    assert {tuple(sorted(line)) for line in lines} == {("confidence", "correct", "fingerprint", "tool", "verified")}
    code, out, err = cli("calibrate", "--from", "s.jsonl", "--max-error", "0.2", "--delta", "0.1", "--json")
    assert (code, err, json.loads(out)["tools"]["*"]) == (0, "", entry)


def test_samples_certify_a_threshold_that_holds_for_these_tools_and_for_no_others(cli, tmp_path):
    text = (SOURCES / "examples" / "requests.jsonl").read_text("utf-8")
    (tmp_path / "same.jsonl").write_text(text)
    (tmp_path / "other.jsonl").write_text(text.replace("Start a countdown timer", "Start a clock"))
    assert replayed(cli, "same.jsonl", "--samples", "s.jsonl")[0] == 0
    promise = ("--max-error", "0.35", "--delta", "0.1")
    assert cli("calibrate", "--from", "s.jsonl", *promise, "--output", "certificates.json")[0] == 0
    policy = 'policy=[{"kind": "guards"}, {"kind": "threshold", "certificates": "certificates.json"}]'
    _, same = replayed(cli, "same.jsonl", "--set", policy)
    assert (same["all"]["answered"], same["all"]["wrong"]) == (8, 0)
    _, other = replayed(cli, "other.jsonl", "--set", policy)
    assert other["all"]["reasons"] == {"certificate-void": 18}


def test_rows_say_what_became_of_each_request(cli, requests, tmp_path):
    replayed(cli, requests, *LOW, "--rows", "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["name"], row["route"], row["reason"], row["right"]) for row in rows] == [
        ("line 1", "local", "confident", True),
        ("line 2", "local", "confident", True),
        ("line 3", "local", "confident", False),
        ("line 4", "upstream", "negated", False),
        ("line 5", "upstream", "ungrounded", False),
        ("line 6", "upstream", "no-tools", None),
    ]
    assert (rows[4]["tools"], rows[4]["failures"]) == (["set_lights"], ["ungrounded"])


def test_what_cannot_be_certified_is_refused_in_words(cli, requests):
    code, out, _ = cli("replay", requests, *DAY, "--max-error", "0.05")
    assert code == 1
    assert out.splitlines()[-1].startswith("all tools: not enough data: 59 clean offloadable calls needed, have 3")


def test_the_plot_is_an_svg_of_its_own(cli, requests, tmp_path):
    code, _, _ = cli("replay", requests, *DAY, "--plot", "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text()
    assert (code, drawn[:5], "w/o ungrounded" in drawn) == (0, "<svg ", True)


def test_a_png_is_drawn_where_resvg_is_installed_and_refused_in_words_where_not(cli, requests, tmp_path):
    code, _, err = cli("replay", requests, *DAY, "--plot", "curve.png")
    if importlib.util.find_spec("resvg_py") is None:
        assert code == 1
        assert err.endswith("curve.png: a PNG needs the package resvg-py: pip install 'needle-router[png]'\n")
    else:
        assert (code, (tmp_path / "curve.png").read_bytes()[:8]) == (0, b"\x89PNG\r\n\x1a\n")


def test_a_file_that_cannot_be_written_is_an_error(cli, requests):
    for flag in ("--samples", "--plot"):
        code, _, err = cli("replay", requests, *DAY, flag, "no/where.svg")
        assert code == 1
        assert err.splitlines()[-1] == "needle-router: no/where.svg cannot be written: No such file or directory"


def test_a_limit_and_a_category(cli, requests):
    _, found = replayed(cli, requests, "--category", "on", "--category", "off", "--limit", "2")
    assert found["total"] == 2
    assert set(found["categories"]) <= {"on", "off"}


@pytest.mark.parametrize(
    ("package", "source", "remedy"),
    [
        ("bfcl_eval", "bfcl", "pip install --no-deps bfcl-eval"),
        ("home_assistant_intents", "home-assistant-intents", "pip install home-assistant-intents"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(cli, package, source, remedy):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    code, out, err = cli("replay", source)
    assert (code, out) == (2, "")
    assert f"is not installed: {remedy}" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.jsonl"], "absent.jsonl cannot be read: No such file or directory"),
        (["."], ". cannot be read: Is a directory"),
        (["empty.jsonl"], "empty.jsonl holds no request"),
        (["bad.jsonl"], "bad.jsonl has lines that cannot be replayed:"),
        (["needle-environments", "--category", "x"], "there is no category x; there are invalid, irrelevant, missing"),
        (["needle-environments", "--limit", "0"], "--limit 0: expected a number of requests, 1 or more"),
        (["needle-environments", "--without", "luck"], "--without luck: expected one of negated, ungrounded"),
        (["needle-environments", "--today", "soon"], "--today soon: expected a date as 2026-11-30"),
        (["needle-environments", "--plot", "x.gif"], "--plot x.gif: expected a name that ends in .svg or .png"),
        (["needle-environments", "--max-error", "7"], "--max-error 7: expected a probability"),
        (["needle-environments", "--backend", "rus"], "the configuration has 1 problem:"),
    ],
)
def test_what_cannot_be_replayed_is_said(cli, tmp_path, arguments, said):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "bad.jsonl").write_text("{")
    code, out, err = cli("replay", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_configured_engine_is_taken_and_a_missing_one_said(cli, requests, tmp_path):
    (tmp_path / "needle-router.toml").write_text('[engine]\nmodel = "other.cact"\n')
    (tmp_path / "other.cact").write_bytes(b"no archive")
    code, out, err = cli("replay", requests)
    assert (code, out) == (4, "")
    assert err.startswith("needle-router: the engine did not load: ")
    assert "other.cact is not a .cact archive" in err


def test_a_configured_backend_keeps_its_own_default_model(cli, requests):
    code, _, err = cli("replay", requests, "--backend", "native")
    assert code == 4
    assert "the engine library of needle-2 is not at" in err


def test_ctrl_c_ends_the_engine_and_gives_what_there_is(cli, tmp_path):
    envelope = {"type": "call", "success": True, "confidence": 0.9, "function_calls": lights("kitchen", True)}
    script = {"envelopes": [envelope], "delay_ms": 100, "log": str(tmp_path / "engine.log")}
    (tmp_path / "script.json").write_text(json.dumps(script))
    (tmp_path / "many.jsonl").write_text((json.dumps(ROWS[0]) + "\n") * 500)
    engine = ("--backend", "scripted", "--set", "engine.script=script.json")
    process = subprocess.Popen(
        [*COMMAND, "replay", "many.jsonl", "--json", "--samples", "s.jsonl", *engine],
        cwd=tmp_path,
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        asked = tmp_path / "engine.log"
        until(lambda: asked.exists() and asked.read_text().count('"complete"') >= 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert (found["total"], found["interrupted"]) == (500, True)
    assert 2 <= found["all"]["cases"] < 500
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == found["all"]["cases"]
    pid = json.loads(asked.read_text().splitlines()[0])["pid"]
    until(lambda: not running(pid))


def running(pid):
    """Whether a process has not ended; one that nobody has waited for yet has."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_terminal_shows_a_bar_and_the_result_stays_clean(cli, requests):
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [*COMMAND, "replay", requests, "--json", *DAY],
            cwd=cli.folder,
            env=cli.environment | {"TERM": "xterm"},
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
        )
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert json.loads(done.stdout)["total"] == 6
    assert "6 of 6" in shown
    assert "needle-router:" not in shown


def test_help_names_the_flags(cli):
    _, out, _ = cli("replay", "--help")
    drawing = "SOURCE --limit --category --seed --today --without --set"
    asking = "--ablate --max-error --delta --plot --samples --rows --json"
    assert [flag for flag in f"{drawing} {asking}".split() if flag not in out] == []
