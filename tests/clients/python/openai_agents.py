"""openai-agents in chat mode: `Runner` runs the loop, executes the tool and streams."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from play import MODEL, Booking, heard, play, set_light

set_tracing_disabled(True)


def agent(**options):
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=AsyncOpenAI(max_retries=0))
    return Agent(name="house", model=model, **options)


def loop(text):
    return {"words": Runner.run_sync(agent(tools=[function_tool(set_light)]), text).final_output}


def stream(text):
    async def pieces():
        running = Runner.run_streamed(agent(tools=[function_tool(set_light)]), text)
        events = [event.data async for event in running.stream_events() if event.type == "raw_response_event"]
        return [data.delta for data in events if data.type == "response.output_text.delta"]

    return heard(asyncio.run(pieces()))


def fill(text):
    return {"object": Runner.run_sync(agent(output_type=Booking), text).final_output.model_dump()}


play(loop=loop, stream=stream, fill=fill)
