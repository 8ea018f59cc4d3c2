"""openai: `create`, the streaming helper and `parse`; the loop is the application's."""

from openai import OpenAI
from play import MODEL, TOOL, Booking, executed, heard, play, user

chat = OpenAI(max_retries=0).chat.completions


def loop(text):
    messages = [user(text)]
    asked = chat.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message
    messages += [asked, *executed(asked)]
    return {"words": chat.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message.content}


def stream(text):
    messages = [user(text)]
    with chat.stream(model=MODEL, messages=messages, tools=[TOOL]) as first:
        asked = first.get_final_completion().choices[0].message
    messages += [asked, *executed(asked)]
    with chat.stream(model=MODEL, messages=messages, tools=[TOOL]) as second:
        return heard([event.delta for event in second if event.type == "content.delta"])


def fill(text):
    answer = chat.parse(model=MODEL, messages=[user(text)], response_format=Booking)
    return {"object": answer.choices[0].message.parsed.model_dump()}


play(loop=loop, stream=stream, fill=fill)
