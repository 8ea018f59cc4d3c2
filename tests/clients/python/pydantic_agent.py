"""pydantic-ai with OpenAIChatModel: `Agent` runs the loop; an output type is a tool of its own, `final_result`."""

import asyncio

from play import BASE_URL, KEY, MODEL, Booking, heard, play, set_light
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=KEY))


def loop(text):
    return {"words": Agent(model, tools=[set_light]).run_sync(text).output}


def stream(text):
    async def pieces():
        async with Agent(model, tools=[set_light]).run_stream(text) as running:
            return [piece async for piece in running.stream_text(delta=True, debounce_by=None)]

    return heard(asyncio.run(pieces()))


def fill(text):
    return {"object": Agent(model, output_type=Booking).run_sync(text).output.model_dump()}


play(loop=loop, stream=stream, fill=fill)
