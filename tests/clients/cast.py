"""The clients that are played with: what each is called, how it is started, and what its users should know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.clients.scenes import FILL, LOOP, PARTIAL, STREAM, Scene

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".clients"


@dataclass(frozen=True)
class Client:
    """A client library. `answer_tool` is the name under which it asks for an object.

    `packages` are those whose versions are shown, the first gives the name of the environment.
    """

    title: str
    packages: tuple[str, ...]
    play: str
    does: str
    answer_tool: str = "Booking"
    scenes: tuple[Scene, ...] = (LOOP, STREAM, FILL)
    remarks: str = ""

    @property
    def is_node(self) -> bool:
        """Whether it runs in Node."""
        return self.play.endswith(".mjs")

    def command(self) -> list[str]:
        """How its play is started; scene and sentence follow."""
        if self.is_node:
            return ["node", str(ENVIRONMENTS / "node" / self.play)]
        return [str(ENVIRONMENTS / self.packages[0] / "bin" / "python"), str(HERE / "python" / self.play)]

    def versions(self) -> str:
        """The packages with the versions that the lock files pin."""
        return ", ".join(f"{name} {self._version(name)}" for name in self.packages)

    def _version(self, name: str) -> str:
        if self.is_node:
            lock = json.loads((HERE / "node" / "package-lock.json").read_text("utf-8"))
            return lock["packages"][f"node_modules/{name}"]["version"]
        lines = (HERE / "requirements" / f"{self.packages[0]}.txt").read_text("utf-8").splitlines()
        pins = dict(line.split(" ")[0].split("==") for line in lines if "==" in line and not line.startswith(" "))
        return pins[name]


CAST = (
    Client(
        "openai, Python",
        ("openai",),
        "openai_chat.py",
        "`create`; the `stream` helper; `parse`",
    ),
    Client(
        "openai, Node",
        ("openai",),
        "openai_chat.mjs",
        "`runTools`; `runTools` with `stream`; `parse` with zod",
    ),
    Client(
        "openai-agents",
        ("openai-agents", "openai"),
        "openai_agents.py",
        "`Runner.run_sync`; `Runner.run_streamed`; `output_type`",
        answer_tool="final_output",
        remarks="with `OpenAIChatCompletionsModel`; by default it speaks the Responses API",
    ),
    Client(
        "langchain-openai",
        ("langchain-openai", "langchain", "openai"),
        "langchain_chat.py",
        "`create_agent`; its `stream`; `with_structured_output`",
    ),
    Client(
        "pydantic-ai",
        ("pydantic-ai-slim", "openai"),
        "pydantic_agent.py",
        "`run_sync`; `run_stream`; `output_type`",
        answer_tool="final_result",
        remarks="the object is asked for as a call of the tool `final_result`",
    ),
    Client(
        "instructor",
        ("instructor", "openai"),
        "instructor_chat.py",
        "`create_with_completion`, then `create`; `create_partial`; `create`",
        scenes=(LOOP, PARTIAL, FILL),
        remarks="objects are asked for as a call that `tool_choice` names; it streams parts of an object",
    ),
    Client(
        "litellm",
        ("litellm", "openai"),
        "litellm_chat.py",
        "`completion`; `stream=True`; `response_format`",
        remarks="needs the package `mcp`, which it does not require",
    ),
    Client(
        "AI SDK",
        ("ai", "@ai-sdk/openai-compatible"),
        "ai_sdk.mjs",
        "`generateText`; `streamText`; `Output.object`",
        remarks="`supportsStructuredOutputs: true`, else it asks for any JSON and is forwarded",
    ),
)
