#!/usr/bin/env python3
"""server.py MODE FILE [ARG...]: services for tests of health checks. Writes to FILE when it is ready.

    http PORT_FILE [CERT]      HTTP on loopback, or HTTPS with this certificate and key; see the paths below
    hang PORT_FILE             accepts connections on loopback and never answers
    unix READY_FILE PATH TYPE  a socket of this type: STREAM, DGRAM or SEQPACKET
    sqlite READY_FILE PATH SQL has a database open, after these statements, until it is killed
    reopen READY_FILE PATH LOG opens a database, writes and closes it, again and again; errors go into LOG
    zombie PID_FILE PROGRAM    has a child that has ended
"""
# SPDX-License-Identifier: Apache-2.0
import base64
import http.server
import os
import signal
import socket
import sqlite3
import ssl
import sys

MODE, READY, *ARGS = sys.argv[1:]
READY = os.path.abspath(READY)


def ready(text):
    with open(READY + ".new", "w", encoding="ascii") as f:
        f.write(f"{text}\n")
    os.rename(READY + ".new", READY)


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the client has read enough

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/ok":
            self.answer(200, b"all is well\n")
        elif path == "/auth":
            wanted = "Basic " + base64.b64encode(b"user:s3cret-w0rd").decode()
            self.answer(200 if self.headers["Authorization"] == wanted else 401)
        elif path == "/late":
            self.answer(200, b"x" * (1 << 20) + b"all is well")
        elif path == "/early":
            self.answer(200, b"x" * ((1 << 20) - 11) + b"all is well" + b"x" * (1 << 20))
        elif path == "/redirect":
            self.answer(302, Location="file:///etc/passwd")
        else:
            self.answer(503, b"closed")

    def log_message(self, *_):
        pass


def main():
    if MODE == "http":
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if ARGS:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(ARGS[0])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        ready(server.server_port)
        server.serve_forever()
    elif MODE == "hang":
        listener = socket.create_server(("127.0.0.1", 0))
        ready(listener.getsockname()[1])
        kept = []
        while True:
            kept.append(listener.accept())
    elif MODE == "unix":
        listener = socket.socket(socket.AF_UNIX, getattr(socket, "SOCK_" + ARGS[1]))
        os.chdir(os.path.dirname(ARGS[0]))
        listener.bind(os.path.basename(ARGS[0]))
        if ARGS[1] != "DGRAM":
            listener.listen(8)
        ready("ready")
        signal.pause()
    elif MODE == "sqlite":
        db = sqlite3.connect(ARGS[0], isolation_level=None)
        for sql in ARGS[1].split(";"):
            db.execute(sql).fetchall()
        ready("ready")
        signal.pause()
    elif MODE == "reopen":
        ready("ready")
        while True:
            try:
                db = sqlite3.connect(ARGS[0], isolation_level=None)
                db.execute("INSERT INTO samples (value) VALUES ('more')")
                db.close()
            except sqlite3.Error as error:
                with open(ARGS[1], "a", encoding="ascii") as f:
                    f.write(f"{error}\n")
    elif MODE == "zombie":
        pid = os.posix_spawn(ARGS[0], ARGS, {})
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ready(pid)
        signal.pause()


main()
