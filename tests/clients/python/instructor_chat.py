"""instructor in its default mode: an object is a tool that tool_choice names; streamed, it comes in parts."""

import instructor
from openai import OpenAI
from play import MODEL, TOOL, Booking, executed, play, user
from pydantic import create_model

client = instructor.from_openai(OpenAI(max_retries=0))


SetLight = create_model("set_light", room=(str, ...), on=(bool, ...), __doc__="Switch the light of a room.")


def loop(text):
    messages = [user(text)]
    _, asked = client.chat.completions.create_with_completion(
        model=MODEL, messages=messages, response_model=SetLight, max_retries=0
    )
    message = asked.choices[0].message
    # instructor reads `content` of every message, so that it must be there even when it is null.
    calls = [call.model_dump() for call in message.tool_calls]
    messages += [{"role": "assistant", "content": message.content, "tool_calls": calls}, *executed(message)]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL], response_model=None)
    return {"words": answer.choices[0].message.content}


def partial(text):
    seen = list(
        client.chat.completions.create_partial(
            model=MODEL, messages=[user(text)], response_model=Booking, max_retries=0
        )
    )
    return {"object": seen[-1].model_dump(), "pieces": len(seen)}


def fill(text):
    answer = client.chat.completions.create(model=MODEL, messages=[user(text)], response_model=Booking, max_retries=0)
    return {"object": answer.model_dump()}


play(loop=loop, partial=partial, fill=fill)
