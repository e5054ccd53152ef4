# SPDX-License-Identifier: MIT
"""A web server on the loopback interface whose answers a test writes, as good or as bad as it likes."""
import http.server
import re
import socket
import struct
import threading

# put before a command that is to find no curl; takes root
WITHOUT_CURL = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$(readlink -f /usr/bin/curl)" && exec "$@"', "sh")


class Web:
    """Serves `routes`: path to bytes, or to a function of the request's handler. `asked` holds (method, path, Range)."""

    def __init__(self):
        self.routes, self.asked = {}, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def handler(web):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            closing = property(lambda self: web.closing)

            def do_GET(self):
                web.asked.append((self.command, self.path, self.headers.get("Range")))
                self.close_connection = True
                route = web.routes.get(self.path)
                try:
                    if route is None:
                        status(404)(self)
                    elif callable(route):
                        route(self)
                    else:
                        good(route)(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has enough

            do_HEAD = do_GET

            def say(self, code, body=b"", **headers):
                self.send_response(code)
                headers = {"Content_Length": len(body), "Connection": "close", **headers}
                for name, value in headers.items():
                    if value is not None:
                        self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words):
                pass

        return Handler


def good(body, etag='"one"'):
    """As servers do: ranges, If-Range, an ETag."""
    def answer(request):
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or "")
        if found and request.headers.get("If-Range") in (None, etag):
            start, end = int(found[1]), min(int(found[2] or len(body) - 1), len(body) - 1)
            if start >= len(body):
                return request.say(416, Content_Range=f"bytes */{len(body)}")
            return request.say(206, body[start:end + 1], ETag=etag, Content_Range=f"bytes {start}-{end}/{len(body)}")
        return request.say(200, body, ETag=etag)
    return answer


def status(code, **headers):
    return lambda request: request.say(code, b"words of the server", **headers)


def redirect(to):
    return lambda request: request.say(302, Location=to)


def reset(request):
    """Cuts the connection as a crash would."""
    request.wfile.flush()
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()


def cut(body, at, then, etag='"one"'):
    """The first answer ends, without output, after `at` bytes; later ones are those of `then`."""
    first = [True]

    def answer(request):
        if not first.pop() if first else True:
            return then(request)
        request.say(200, body[:at], Content_Length=len(body), ETag=etag)
        return None
    return answer


def stall(body, at, then=None, etag='"one"'):
    """The first answer (every one without `then`) says nothing more after `at` bytes, and holds the line."""
    first = [True]

    def answer(request):
        if then and not first:
            return then(request)
        first.clear()
        request.say(200, body[:at], Content_Length=len(body), ETag=etag)
        request.wfile.flush()
        request.closing.wait(60)
        return None
    return answer
