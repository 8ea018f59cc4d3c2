"""A mock upstream for benchmarks: an asyncio protocol that answers at once with a fixed completion or a stream.

python benchmarks/upstream.py PORT
"""

import asyncio
import sys

import httptools

COMPLETION = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"' + b"word " * 240 + b'"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":400,"completion_tokens":240,"total_tokens":640}}'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: req_bench\r\n\r\n%b"
    % (len(COMPLETION), COMPLETION)
)
CHUNK = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":"word "},"logprobs":null,"finish_reason":null}]}\n\n'
)
CHUNKS = 50
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        streamed, self.body = b'"stream":true' in self.body, b""
        if not streamed:
            self.transport.write(ANSWER)
            return
        self.transport.write(STREAM_HEAD)
        self.send_chunk(CHUNKS)

    def send_chunk(self, left):
        """One chunk each loop turn, so that they arrive as separate pieces."""
        if self.transport.is_closing():
            return
        if left == 0:
            self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        self.transport.write(b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK))
        asyncio.get_running_loop().call_soon(self.send_chunk, left - 1)


async def main(port):
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main(int(sys.argv[1])))
    except KeyboardInterrupt:
        pass
