"""A bucket in memory that speaks as much S3 as engines of tables ask, fast and at any distance, for benches.

It is one process with one loop, so that a conditional put is one step that nothing else comes between. A request that
comes in at a port has its effect when half of the port's delay is over, and its answer leaves after the other half; any
number of requests wait side by side. So a delay costs no processor time, and a request costs the server some 60 µs
where moto needs a millisecond. Signatures are not looked at.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

Headers = Mapping[str, str]
FIGURES = "/-/figures"
LISTED_AT_ONCE = 1000
REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 304: "Not Modified", 404: "Not Found",
           405: "Method Not Allowed", 412: "Precondition Failed", 416: "Range Not Satisfiable"}  # fmt: skip


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class Answer:
    """length: of the object, where it is not that of the body."""

    status: int
    body: bytes = b""
    headers: Headers = field(default_factory=dict)
    length: int | None = None


@dataclass(frozen=True)
class Object:
    data: bytes
    tag: str
    modified: float
    meta: Headers


def error(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


class Bucket:
    """Objects by their paths, with the name of the bucket in front; and how many requests there were."""

    def __init__(self) -> None:
        self.requests = 0
        self._objects: dict[str, Object] = {}
        self._paths: list[str] = []
        self._parts: dict[str, dict[int, bytes]] = {}

    def answer(self, request: Request) -> Answer:
        self.requests += 1
        if "/" not in request.path.strip("/"):
            return self._of_bucket(request)
        match request.method:
            case "PUT":
                return self._put(request)
            case "GET" | "HEAD":
                return self._get(request)
            case "DELETE":
                self._parts.pop(request.query.get("uploadId", ""), None)
                self._remove(request.path)
                return Answer(204)
            case "POST":
                return self._upload(request)
        return error(405, "MethodNotAllowed")

    def _of_bucket(self, request: Request) -> Answer:
        if request.method == "GET":
            return self._list(request.path.strip("/") + "/", request.query)
        if request.method == "POST" and "delete" in request.query:
            keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
            for key in keys:
                self._remove(f"{request.path.strip('/')}/{unescape(key)}")
            told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            return Answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())
        return Answer(200)

    def _put(self, request: Request) -> Answer:
        upload = request.query.get("uploadId")
        if upload is not None:
            if upload not in self._parts:
                return error(404, "NoSuchUpload")
            self._parts[upload][int(request.query["partNumber"])] = request.body
            return Answer(200, headers={"ETag": tag_of(request.body)})
        source = request.headers.get("x-amz-copy-source")
        if source is None:
            return self._made(request, request.body)
        there = self._objects.get(unquote(source).lstrip("/"))
        if there is None:
            return error(404, "NoSuchKey")
        done = self._made(request, there.data)
        told = f"<CopyObjectResult><ETag>{escape(there.tag)}</ETag></CopyObjectResult>".encode()
        return Answer(200, told) if done.status == 200 else done

    def _made(self, request: Request, data: bytes) -> Answer:
        """Make an object, if the request's conditions hold."""
        there = self._objects.get(request.path)
        if request.headers.get("if-none-match") == "*" and there is not None:
            return error(412, "PreconditionFailed")
        wanted = request.headers.get("if-match")
        if wanted is not None and (there is None or there.tag != wanted):
            return error(412, "PreconditionFailed")
        meta = {name: value for name, value in request.headers.items() if name.startswith("x-amz-meta-")}
        if there is None:
            bisect.insort(self._paths, request.path)
        made = self._objects[request.path] = Object(data, tag_of(data), time.time(), meta)
        return Answer(200, headers={"ETag": made.tag})

    def _remove(self, path: str) -> None:
        if self._objects.pop(path, None) is not None:
            del self._paths[bisect.bisect_left(self._paths, path)]

    def _get(self, request: Request) -> Answer:
        there = self._objects.get(request.path)
        if there is None:
            return error(404, "NoSuchKey")
        headers = {"ETag": there.tag, "Last-Modified": formatdate(there.modified, usegmt=True), **there.meta}
        if request.headers.get("if-none-match") == there.tag:
            return Answer(304, headers=headers)
        size, asked = len(there.data), re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if request.method == "HEAD":
            return Answer(200, b"", headers, size)
        if asked is None:
            return Answer(200, there.data, headers)
        first, last = asked.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= end:
            return error(416, "InvalidRange")
        return Answer(206, there.data[start:end], headers | {"Content-Range": f"bytes {start}-{end - 1}/{size}"})

    def _list(self, bucket: str, query: Mapping[str, str]) -> Answer:
        """A page of the paths below a prefix, and of the folders that a delimiter makes of them."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = bucket + (query.get("continuation-token") or query.get("start-after", ""))
        spell = quote if query.get("encoding-type") == "url" else escape
        most = min(LISTED_AT_ONCE, int(query.get("max-keys", LISTED_AT_ONCE)))
        at = max(bisect.bisect_left(self._paths, bucket + prefix), bisect.bisect_right(self._paths, after))
        told, last, folder = list[str](), "", ""
        while at < len(self._paths) and self._paths[at].startswith(bucket + prefix) and len(told) < most:
            last = self._paths[at].removeprefix(bucket)
            cut = last.find(delimiter, len(prefix)) if delimiter else -1
            at += 1
            if cut < 0:
                told.append(entry(spell(last), self._objects[bucket + last]))
            elif last[: cut + 1] != folder:
                folder = last[: cut + 1]
                told.append(f"<CommonPrefixes><Prefix>{spell(folder)}</Prefix></CommonPrefixes>")
                at = bisect.bisect_left(self._paths, bucket + folder + "\U0010ffff")
                last = self._paths[at - 1].removeprefix(bucket)
        more = at < len(self._paths) and self._paths[at].startswith(bucket + prefix)
        page = f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(told)}</KeyCount>"
        page += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
        page += f"<Name>{bucket[:-1]}</Name><Prefix>{spell(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>"
        return Answer(200, f"<ListBucketResult>{page}{''.join(told)}</ListBucketResult>".encode())

    def _upload(self, request: Request) -> Answer:
        """Begin an upload in parts, or make its object."""
        if "uploads" in request.query:
            upload = f"upload-{self.requests}"
            self._parts[upload] = {}
            told = f"<UploadId>{upload}</UploadId>"
            return Answer(200, f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>".encode())
        parts = self._parts.pop(request.query.get("uploadId", ""), None)
        if parts is None:
            return error(404, "NoSuchUpload")
        done = self._made(request, b"".join(parts[number] for number in sorted(parts)))
        if done.status != 200:
            return done
        told = f"<ETag>{escape(done.headers['ETag'])}</ETag>"
        return Answer(200, f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>".encode())


def tag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def entry(key: str, there: Object) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(there.modified))
    told = f"<Key>{key}</Key><LastModified>{moment}</LastModified><ETag>{escape(there.tag)}</ETag>"
    return f"<Contents>{told}<Size>{len(there.data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"


class Connection(asyncio.Protocol):
    """One client's connection, on which one request follows the answer to another."""

    def __init__(self, bucket: Bucket, delay_s: float) -> None:
        self._bucket, self._delay_s = bucket, delay_s
        self._came = bytearray()
        self._head: tuple[str, str, Headers] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        if self._head is None:
            end = self._came.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = head_of(self._came[:end].decode("latin-1"))
            del self._came[: end + 4]
            if self._head[2].get("expect", "").lower() == "100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, target, headers = self._head
        body = taken(self._came, headers)
        if body is None:
            return
        self._head = None
        url = urlsplit(target)
        if url.path == FIGURES:
            figures = {"requests": self._bucket.requests, "cpu": sum(os.times()[:2])}
            self._send(method, Answer(200, json.dumps(figures).encode()))
            return
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        request = Request(method, unquote(url.path).lstrip("/"), query, headers, body)
        self._later(lambda: self._perform(request))

    def _perform(self, request: Request) -> None:
        answer = self._bucket.answer(request)
        self._later(lambda: self._send(request.method, answer))

    def _later(self, happen: Callable[[], None]) -> None:
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s / 2, happen)
        else:
            happen()

    def _send(self, method: str, answer: Answer) -> None:
        length = len(answer.body) if answer.length is None else answer.length
        lines = [f"HTTP/1.1 {answer.status} {REASONS[answer.status]}"]
        if answer.status != 204:
            lines.append(f"Content-Length: {length}")
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        head = "\r\n".join([*lines, f"Date: {formatdate(usegmt=True)}", "\r\n"]).encode("latin-1")
        self._transport.write(head if method == "HEAD" else head + answer.body)


def head_of(text: str) -> tuple[str, str, Headers]:
    """The method, the target and the headers of a request."""
    first, *lines = text.split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    return method, target, {name.lower(): value.strip() for name, _, value in pairs}


def taken(came: bytearray, headers: Headers) -> bytes | None:
    """The body of a request, which is taken out of what came; None where it is not whole."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        found = unchunked(came)
        if found is None:
            return None
        body, size = found
    else:
        size = int(headers.get("content-length") or 0)
        if len(came) < size:
            return None
        body = bytes(came[:size])
    del came[:size]
    if headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
        found = unchunked(body)
        assert found is not None
        body = found[0]
    return body


def unchunked(came: bytes | bytearray) -> tuple[bytes, int] | None:
    """What is in chunks, each behind a line with its size, and where they end; None where the last one is missing."""
    parts, at = list[bytes](), 0
    while True:
        end = came.find(b"\r\n", at)
        if end < 0:
            return None
        size, at = int(came[at:end].split(b";")[0], 16), end + 2
        if size == 0:
            break
        if len(came) < at + size + 2:
            return None
        parts.append(bytes(came[at : at + size]))
        at += size + 2
    while True:  # lines behind the last chunk, such as checksums, up to an empty one
        end = came.find(b"\r\n", at)
        if end < 0:
            return None
        if end == at:
            return b"".join(parts), end + 2
        at = end + 2


def serve(ports: Mapping[int, int]) -> None:
    """Serve one bucket at these ports, each of which is so many milliseconds away."""

    async def listen() -> None:
        bucket, loop = Bucket(), asyncio.get_running_loop()
        for port, delay_ms in ports.items():
            await loop.create_server(partial(Connection, bucket, delay_ms / 1000), "127.0.0.1", port, backlog=1024)
        await asyncio.Event().wait()

    asyncio.run(listen())
