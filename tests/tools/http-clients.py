#!/usr/bin/env python3
"""Clients for the tests of `forge serve`: http-clients.py MODE ARGUMENT...

check URL TOKEN OPENAPI      each GET path answers as described (needs python3-jsonschema)
followers URL TOKEN RUN N    N readers of a log at once, to its end
guess URL N                  N requests with wrong tokens: how many got which status
slow URL N                   N clients that send a byte now and then
fuzz URL TOKEN N SEED        N requests of any bytes
load URL TOKEN STOPFILE      requests without pause; prints a line each time the server went away
activate PROGRAM ARGUMENT... executes it with a listening socket as a service manager does
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import http.client
import json
import os
import random
import select
import socket
import sys
import time
import urllib.parse

LIMIT = 60


def address(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


def request(url, path, token=None, method="GET", body=None):
    """(status, headers, body)"""
    c = http.client.HTTPConnection(*address(url), timeout=LIMIT)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    c.request(method, path, body, headers)
    answer = c.getresponse()
    data = answer.read()
    c.close()
    return answer.status, answer.headers, data


def check_parameters(url, token, path, real, method, op):
    """The parameters that the server lists when it refuses one are those of the description."""
    described = [p["name"] for p in op.get("parameters", []) if p["in"] == "query"]
    body = "{}" if method == "post" else None
    status, _, data = request(url, real + "?nonsense=1", token, method.upper(), body)
    if path == "/healthz":
        assert status == 200, (path, status)
        return
    message = json.loads(data)["error"]["message"] if status == 400 else ""
    assert "'nonsense'" in message, f"{method} {real}: {status} {data[:200]}"
    listed = message.partition("(have: ")[2].rstrip(")")
    assert sorted(listed.split(", ") if listed else []) == sorted(described), f"{method} {path}: {message}"


def check(url, token, description):
    import jsonschema

    doc = json.load(open(description))
    served = json.loads(request(url, "/api/v1/openapi.json")[2])
    assert served == doc, "the served description is another one"
    run = json.loads(request(url, "/api/v1/runs", token)[2])["runs"][0]["run_id"]
    pipelines = json.loads(request(url, "/api/v1/pipelines", token)[2])["pipelines"]
    names = {"run": run, "stream": "stdout", "index": "0", "name": "data-ml", "id": pipelines[0]["id"]}
    n = 0
    for path, methods in doc["paths"].items():
        real = path.format(**names)
        for method, op in methods.items():
            if method in ("get", "post"):
                check_parameters(url, token, path, real, method, op)
            if method != "get":
                continue
            status, headers, data = request(url, real, token)
            key = str(status)
            assert key in op["responses"], f"{real}: status {status} is not described"
            assert status == 200, f"{real}: {status} {data[:200]}"
            content = op["responses"][key]["content"]
            kind = headers["Content-Type"].split(";")[0]
            assert kind in content, f"{real}: {kind} is not described"
            if kind == "application/json":
                schema = dict(content[kind]["schema"] or {}, components=doc["components"])
                jsonschema.Draft202012Validator(schema).validate(json.loads(data))
            n += 1
    # Errors have one form.
    error = dict(doc["components"]["schemas"]["Error"], components=doc["components"])
    for path, who in [("/api/v1/runs", None), ("/api/v1/nothing", token), ("/api/v1/runs/x", token)]:
        jsonschema.Draft202012Validator(error).validate(json.loads(request(url, path, who)[2]))
    # What starts runs.
    started = dict(doc["components"]["schemas"]["Started"], components=doc["components"])
    status, _, data = request(url, "/api/v1/runs", token, "POST", json.dumps({"command": ["true"]}))
    assert status == 201, data
    jsonschema.Draft202012Validator(started).validate(json.loads(data))
    routes = sum(1 for m in doc["paths"].values() for k in m if k in ("get", "post"))
    print(f"{n} of {routes} paths are as described")


def open_request(url, path, token):
    s = socket.create_connection(address(url), timeout=LIMIT)
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: {'%s:%d' % address(url)}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return s


def followers(url, token, run, n):
    n = int(n)
    readers = [open_request(url, f"/api/v1/runs/{run}/follow", token) for _ in range(n)]
    texts = [b""] * n
    live = dict((s.fileno(), i) for i, s in enumerate(readers))
    said = False
    deadline = time.monotonic() + 2 * LIMIT
    while live and time.monotonic() < deadline:
        for fd in select.select(list(live), [], [], 1)[0]:
            i = live[fd]
            data = readers[i].recv(65536)
            texts[i] += data
            if not data or b"event: end" in texts[i] and texts[i].endswith(b"0\r\n\r\n"):
                del live[fd]
        if not said and all(b"ready" in t for t in texts):
            print("all connected", flush=True)
            said = True
    whole = sum(1 for t in texts if t.count(b'"text":"ready\\n"') == 1 and t.count(b"event: end") == 1)
    print(f"{whole} readers got 6 bytes and the end")


def guess(url, n):
    seen = collections.Counter()
    for i in range(int(n)):
        seen[request(url, "/api/v1/runs", f"forge_{i:064x}")[0]] += 1
    print("; ".join(f"{count} times {status}" for status, count in sorted(seen.items())))


def slow(url, n):
    n = int(n)
    clients = [socket.create_connection(address(url), timeout=LIMIT) for _ in range(n)]
    text = b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"b" * 100000
    for s in clients:
        s.sendall(text[:20])
    print("all connected", flush=True)
    at, cut = 20, set()
    deadline = time.monotonic() + 90
    while len(cut) < n and time.monotonic() < deadline:
        # A byte a second: the wait is the attack.
        readable = select.select([s for s in clients if s not in cut], [], [], 1)[0]
        for s in readable:
            try:
                if not s.recv(4096):
                    cut.add(s)
            except OSError:
                cut.add(s)
        for s in clients:
            if s in cut:
                continue
            try:
                s.send(text[at:at + 1])
            except OSError:
                cut.add(s)
        at += 1
    print(f"{len(cut)} were cut off")


WORDS = [b"GET", b"POST", b"HEAD", b"/", b"/api/v1/runs", b"/api/v1/runs/{run}", b"?", b"&", b"=", b"%", b"%00", b"%2e", b"..", b" ", b"\r\n", b"\n", b"HTTP/1.1",
         b"Host: localhost", b"Host: ", b"Origin: http://localhost", b"Authorization: Bearer ", b"Content-Length: ", b"Content-Length: 10", b"Content-Type: application/json",
         b"Transfer-Encoding: chunked", b"Range: bytes=", b"Range: bytes=0-", b"-1", b"18446744073709551616", b"{", b"}", b'{"command":["true"]}', b"[", b'"', b"\\u0000", b"\0", b"\xff\xfe",
         b"Connection: close", b"Connection: keep-alive", b"Expect: 100-continue", b"follow", b"logs/stdout", b"outputs/0/content", b"kill", b"limit=", b"after=", b"x" * 5000]


def fuzz(url, token, n, seed):
    dice = random.Random(int(seed))
    seen = collections.Counter()
    run = json.loads(request(url, "/api/v1/runs", token)[2])["runs"]
    run = run[0]["run_id"].encode() if run else b"01m7r16rmnfn6fpm5f32f6kzd5"
    good = (b"GET /api/v1/runs/%s/logs/stdout?tail=5 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nRange: bytes=0-3\r\nConnection: close\r\n\r\n" % (run, token.encode()))
    for i in range(int(n)):
        if dice.random() < 0.5:
            data = bytearray(good)
            for _ in range(dice.randrange(1, 6)):
                at = dice.randrange(len(data))
                what = dice.randrange(3)
                if what == 0:
                    data[at] = dice.randrange(256)
                elif what == 1:
                    data[at:at] = dice.choice(WORDS)
                else:
                    del data[at:at + dice.randrange(1, 8)]
        else:
            data = b"".join(dice.choice(WORDS) for _ in range(dice.randrange(1, 30)))
        try:
            s = socket.create_connection(address(url), timeout=LIMIT)
        except OSError as e:
            sys.exit(f"request {i} (seed {seed}): the server is gone: {e}")
        try:
            s.sendall(bytes(data))
            s.shutdown(socket.SHUT_WR)
            # What is not complete may wait for more until it is cut off, and so does a log that goes on.
            s.settimeout(0.1)
            text = s.recv(4096)
            seen[text[9:12].decode(errors="replace") if text.startswith(b"HTTP/1") else "closed"] += 1
        except TimeoutError:
            seen["waits"] += 1
        except OSError:
            seen["reset"] += 1
        s.close()
    print(dict(seen))
    internal = seen.get("500", 0)
    if internal:
        sys.exit(f"{internal} answers were internal errors (seed {seed})")


def load(url, token, stop):
    away = total = 0
    was_away = False
    print("1 begins", flush=True)
    away = 1
    while not os.path.exists(stop):
        try:
            status, headers, data = request(url, "/api/v1/runs?limit=3", token)
        except (OSError, http.client.HTTPException):
            was_away = True
            continue
        if was_away:
            away += 1
            was_away = False
            print(f"{away} times there", flush=True)
        assert status in (200, 503), (status, data)
        json.loads(data)
        total += 1
    print(f"{total} answers, no torn answer")


def activate(*words):
    s = socket.create_server(("127.0.0.1", 0))
    os.dup2(s.fileno(), 3)
    os.set_inheritable(3, True)
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
    os.execv(words[0], words)


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except KeyError:
        sys.exit(__doc__)
