"""The shape of the configuration: every key, its type and its default, and nothing else.

Unknown keys are refused. The texts that explain each key live in config.example.toml; a test holds the two together.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[server]`: where to listen and what to show."""

    host: str = "127.0.0.1"
    port: int = 8088
    api_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    allow_unauthenticated: bool = False
    max_body_mb: float = 32
    expose: Literal["body", "headers", "none"] = "body"
    list_local_model: bool = False
    drain_delay_s: float = 0
    drain_timeout_s: float = 600
    header_timeout_s: float = 15
    body_timeout_s: float = 60
    write_timeout_s: float = 120
    idle_timeout_s: float = 75
    max_header_kb: float = 64
    max_headers: int = 200
    max_url_kb: float = 16
    max_connections: int = 1000
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[upstream]`: the OpenAI-compatible endpoint behind the router; an empty base_url means Needle alone."""

    base_url: str = ""
    api_key: str = ""
    inject_key: bool = False
    include_usage: bool = False
    websockets: bool = True
    connect_timeout_s: float = 5
    first_byte_timeout_s: float = 600
    idle_timeout_s: float = 600
    answer_timeout_s: float = 0
    fallback_urls: tuple[str, ...] = ()
    breaker_failures: int = 5
    breaker_open_s: float = 5


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[engine]`: which Needle, how many processes, and their limits."""

    backend: Literal["native", "rust", "scripted"] = "native"
    model: str = "needle-2"
    auto_pull: bool = True
    workers: int = 1
    queue_limit: int = 32
    deadline_s: float = 5.0
    max_new_tokens: int = 256
    max_replay_steps: int = 32
    session: Literal["isolated", "replay"] = "isolated"
    chain_tool_results: bool = False
    system: Literal["facts", "verbatim", "none"] = "facts"
    buffer_bytes: int = 1048576
    cache_entries: int = 0
    script: str = ""
    tool_index: str = ""


class Extract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[extract]`: structured extraction (response_format json_schema without tools)."""

    local: bool = True


class Merge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[merge]`: local calls and the upstream's words in one answer."""

    when: Literal["never", "mixed", "always"] = "mixed"
    streaming: bool = True


class Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[ledger]`: the record of decisions; an empty path means the default place, "off" none."""

    path: str = ""
    instance: str = ""
    retention_days: float = 30
    content: bool = False
    fingerprint: Literal["prompt", "engine"] = "prompt"


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[report]`: what `needle-router report` and the dashboard reckon with."""

    penalty_usd: float = 0
    dashboard_days: float = 7


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[prices."model"]`: USD per million tokens; an absent cached_input costs as much as input."""

    input: float
    output: float
    cached_input: float | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration. `policy` keeps each `[[policy]]` table as given; its kind checks its own options."""

    mode: Literal["off", "shadow", "on"] = "on"
    server: Server = Server()
    upstream: Upstream = Upstream()
    engine: Engine = Engine()
    extract: Extract = Extract()
    policy: tuple[dict[str, Any], ...] = ({"kind": "guards"}, {"kind": "threshold", "minimum": 0.85})
    merge: Merge = Merge()
    ledger: Ledger = Ledger()
    report: Report = Report()
    prices: dict[str, Price] = {}
