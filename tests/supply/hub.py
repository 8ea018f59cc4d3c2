"""A model hub on loopback: the few addresses that huggingface_hub asks, and ways to misbehave."""

import contextlib
import hashlib
import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPOS = {2: "Cactus-Compute/needle2", 3: "Cactus-Compute/needle3"}
FIRST, SECOND = "1" * 40, "2" * 40


def wheel(**members):
    """A wheel with the given members under needle/; names are written with a double underscore for the dot."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr("needle/" + name.replace("__", "."), data)
    return out.getvalue()


class LoopbackHub:
    """What it holds is `files[repo][commit][filename]`; `heads[repo]` is the commit of main."""

    def __init__(self):
        self.files = {}
        self.heads = {}
        self.asked = []
        #: Only requests with this token see anything.
        self.token = None
        #: Answer every file with this page instead.
        self.page = None
        #: Bytes after which a file's connection is cut, as often as `cuts` says.
        self.cut_at, self.cuts = 0, 0
        #: Bytes after which a file goes on only when `go_on` is set.
        self.stall_at, self.go_on = None, threading.Event()
        self.stalled = threading.Event()
        self.url = ""

    def put(self, repo, files, commit=FIRST):
        self.files.setdefault(repo, {})[commit] = dict(files)
        self.heads[repo] = commit

    @contextlib.contextmanager
    def running(self):
        hub = self

        class Handler(Conversation):
            pass

        Handler.hub = hub
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.go_on.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def downloads(self):
        return [path for method, path, _, _ in self.asked if method == "GET" and "/resolve/" in path]


class Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        hub, path = self.hub, self.path.partition("?")[0]
        hub.asked.append((self.command, path, self.headers.get("range"), self.headers.get("authorization")))
        if hub.token and self.headers.get("authorization") != f"Bearer {hub.token}":
            return self.refuse(401, "GatedRepo")
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self.info(repo, revision)
        repo, _, rest = path.lstrip("/").partition("/resolve/")
        revision, _, filename = rest.partition("/")
        return self.file(repo, revision, filename)

    def info(self, repo, revision):
        if self.hub.page is not None:
            return self.reply(200, {"content-type": "text/html"}, self.hub.page)
        if repo not in self.hub.files:
            return self.refuse(404, "RepoNotFound")
        commit = self.commit(repo, revision)
        if commit is None:
            return self.refuse(404, "RevisionNotFound")
        body = json.dumps({"id": repo, "sha": commit, "siblings": []}).encode()
        return self.reply(200, {"content-type": "application/json"}, body)

    def commit(self, repo, revision):
        commit = self.hub.heads.get(repo) if revision == "main" else revision
        return commit if commit in self.hub.files.get(repo, {}) else None

    def file(self, repo, revision, filename):
        commit = self.commit(repo, revision)
        if commit is None:
            return self.refuse(404, "RevisionNotFound" if repo in self.hub.files else "RepoNotFound")
        data = self.hub.files[repo][commit].get(filename)
        if data is None:
            return self.refuse(404, "EntryNotFound", {"x-repo-commit": commit})
        headers = {"x-repo-commit": commit, "etag": f'"{hashlib.sha256(data).hexdigest()}"', "accept-ranges": "bytes"}
        start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if start:
            headers["content-range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return self.reply(206 if start else 200, headers, data[start:])

    def refuse(self, status, code, headers=None):
        self.reply(status, {"x-error-code": code, "x-error-message": code} | (headers or {}), b"")

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.send(body)

    def send(self, body):
        hub, is_file = self.hub, "/resolve/" in self.path
        if is_file and hub.cuts and len(body) > hub.cut_at:
            hub.cuts -= 1
            self.wfile.write(body[: hub.cut_at])
            self.close_connection = True
        elif is_file and hub.stall_at is not None and len(body) > hub.stall_at:
            self.wfile.write(body[: hub.stall_at])
            self.wfile.flush()
            hub.stalled.set()
            hub.go_on.wait(60)
            self.wfile.write(body[hub.stall_at :])
        else:
            self.wfile.write(body)
