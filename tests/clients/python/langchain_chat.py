"""langchain-openai: `create_agent` runs the loop; `with_structured_output` fills the object."""

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from play import MODEL, Booking, heard, play, set_light, user

model = ChatOpenAI(model=MODEL, max_retries=0)


def loop(text):
    answer = create_agent(model, tools=[set_light]).invoke({"messages": [user(text)]})
    return {"words": answer["messages"][-1].content}


def stream(text):
    agent = create_agent(model, tools=[set_light])
    parts = agent.stream({"messages": [user(text)]}, stream_mode="messages")
    return heard([part.content for part, _ in parts if isinstance(part, AIMessageChunk)])


def fill(text):
    return {"object": model.with_structured_output(Booking).invoke(text).model_dump()}


play(loop=loop, stream=stream, fill=fill)
