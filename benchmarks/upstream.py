"""A mock upstream for benchmarks: an asyncio protocol that answers at once with a fixed completion or a stream.

python benchmarks/upstream.py PORT

What it does with a request is asked for by the model's name, which every proxy passes on: `bench` is answered at once,
`bench-slow` after a second, `bench-paced` as a stream whose chunks carry the time at which they left, `bench-huge` with
2 GB. `bench-hold` is never answered and `bench-drip` never ends; when a client leaves one of these, `GET /closed` tells
the time. Times are nanoseconds of the monotonic clock, which is one for all processes of a machine.
"""

import asyncio
import json
import sys
import time

import httptools

COMPLETION = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"' + b"word " * 240 + b'"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":400,"completion_tokens":240,"total_tokens":640}}'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: req_bench\r\n\r\n"
ANSWER = HEAD % len(COMPLETION) + COMPLETION
CHUNK = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]}\n\n'
)
CHUNKS = 50
PACE_S = 0.004
SLOW_S = 1.0
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
HUGE_BYTES, HUGE_PIECE = 2 * 1024**3, b"x" * 65536


def chunk(content=b"word "):
    event = CHUNK % content
    return b"%x\r\n%b\r\n" % (len(event), event)


class Upstream(asyncio.Protocol):
    #: When the last connection went whose answer was under way.
    closed_ns = 0

    def connection_made(self, transport):
        self.transport, self.loop = transport, asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.url = self.body = b""
        self.open_ended = False
        self.huge_left = 0

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_url(self, url):
        self.url += url

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        url, body, self.url, self.body = self.url, self.body, b"", b""
        if url == b"/closed":
            told = json.dumps({"closed_ns": Upstream.closed_ns}).encode()
            self.transport.write(HEAD % len(told) + told)
            return
        for name, answer in KINDS:
            if name in body:
                answer(self)
                return

    def plain(self):
        self.transport.write(ANSWER)

    def slow(self):
        self.loop.call_later(SLOW_S, self.transport.write, ANSWER)

    def stream(self, left=CHUNKS):
        """One chunk each loop turn, so that they leave as separate pieces."""
        if left == CHUNKS:
            self.transport.write(STREAM_HEAD)
        self.transport.write(chunk() if left else LAST)
        if left and not self.transport.is_closing():
            self.loop.call_soon(self.stream, left - 1)

    def paced(self, left=CHUNKS):
        if left == CHUNKS:
            self.transport.write(STREAM_HEAD)
        self.transport.write(chunk(b"t%d" % time.monotonic_ns()) if left else LAST)
        if left and not self.transport.is_closing():
            self.loop.call_later(PACE_S, self.paced, left - 1)

    def hold(self):
        self.open_ended = True

    def drip(self):
        self.open_ended = True
        self.transport.write(STREAM_HEAD + chunk())

    def huge(self):
        self.huge_left = HUGE_BYTES // len(HUGE_PIECE)
        self.transport.write(HEAD % HUGE_BYTES)
        self.resume_writing()

    def pause_writing(self):
        self.full = True

    def resume_writing(self):
        self.full = False
        while self.huge_left and not self.full:
            self.huge_left -= 1
            self.transport.write(HUGE_PIECE)

    def connection_lost(self, exc):
        self.huge_left = 0
        if self.open_ended:
            Upstream.closed_ns = time.monotonic_ns()


KINDS = (
    (b'"bench-slow"', Upstream.slow),
    (b'"bench-paced"', Upstream.paced),
    (b'"bench-hold"', Upstream.hold),
    (b'"bench-drip"', Upstream.drip),
    (b'"bench-huge"', Upstream.huge),
    (b'"stream":true', Upstream.stream),
    (b"", Upstream.plain),
)


async def main(port):
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main(int(sys.argv[1])))
    except KeyboardInterrupt:
        pass
