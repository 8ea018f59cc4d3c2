"""litellm as a client: `completion` of an `openai/` model; the loop is the application's."""

import litellm
from play import BASE_URL, KEY, MODEL, TOOL, Booking, executed, heard, play, user

litellm.telemetry = False


def complete(messages, **fields):
    return litellm.completion(
        model=f"openai/{MODEL}", api_base=BASE_URL, api_key=KEY, messages=messages, max_retries=0, **fields
    )


def loop(text):
    messages = [user(text)]
    asked = complete(messages, tools=[TOOL]).choices[0].message
    messages += [asked, *executed(asked)]
    return {"words": complete(messages, tools=[TOOL]).choices[0].message.content}


def stream(text):
    messages = [user(text)]
    chunks = list(complete(messages, tools=[TOOL], stream=True))
    asked = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    messages += [asked, *executed(asked)]
    return heard([chunk.choices[0].delta.content for chunk in complete(messages, tools=[TOOL], stream=True)])


def fill(text):
    answer = complete([user(text)], response_format=Booking)
    return {"object": Booking.model_validate_json(answer.choices[0].message.content).model_dump()}


play(loop=loop, stream=stream, fill=fill)
