"""Chats with images: the same, different ones, at other places, for other tenants."""

import base64
import random
import struct
import zlib

WORDS = "red blue green one two three left right up down sun moon".split()


def png(seed, width, height, level=9):
    """A small PNG of one colour with one line of another, from a seed."""
    draw = random.Random(seed)
    colour, line = (bytes(draw.randrange(256) for _ in range(3)) for _ in range(2))
    rows = b"".join(b"\0" + (line if row == seed % height else colour) * width for row in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, level)) + chunk(b"IEND", b"")


def image(content, **more):
    url = content if isinstance(content, str) else "data:image/png;base64," + base64.b64encode(content).decode()
    return {"type": "image_url", "image_url": {"url": url}, **more}


def text(content):
    return {"type": "text", "text": content}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def chats(serve, video=None):
    """Yields (phase, body, answer); the caller sets answer["text"].

    `serve` makes a URL for bytes. `video` makes the bytes of a video from a seed.
    """
    draw = random.Random(46)

    def words(count):
        return " ".join(draw.choice(WORDS) for _ in range(count))

    def ask(phase, *messages, **more):
        answer = {}
        return (phase, {"messages": list(messages), "max_tokens": 4, **more}, answer), answer

    first, second, large = png(1, 140, 196), png(2, 140, 196), png(3, 280, 252)
    system = {"role": "system", "content": words(30)}
    question, other = words(40), words(40)

    yield ask("text", system, user(text(question)))[0]
    yield ask("text", system, user(text(question)))[0]

    # One image in two conversations, and another image in its place.
    for phase, picture, ending in [
        ("same", first, question),
        ("same", first, question),
        ("same", first, other),
        ("different", second, question),
        ("different", second, other),
        ("size", large, question),
        ("size", large, other),
    ]:
        yield ask(phase, system, user(image(picture), text(ending)))[0]

    # At other offsets, several of them within a block.
    for count in (1, 2, 3, 20, 40):
        before = words(count)
        yield ask("offset", user(text(before), image(first), text(question)))[0]
        yield ask("offset", user(text(before), image(first), text(other)))[0]

    # Several in one prompt.
    for pictures in ((first, first), (first, second), (second, first), (first, first, large)):
        parts = [part for picture in pictures for part in (image(picture), text("and"))]
        yield ask("several", system, user(*parts, text(question)))[0]
        yield ask("several", system, user(*parts, text(other)))[0]
    yield ask("adjacent", system, user(image(first), image(second), text(question)))[0]
    yield ask("adjacent", system, user(image(first), image(second), text(other)))[0]

    # A conversation with images in its first and third turn.
    history = [system]
    for turn in range(6):
        parts = [image(first if turn == 0 else second)] if turn in (0, 2) else []
        history.append(user(*parts, text(words(25))))
        request, answer = ask("turns", *history)
        yield request
        history.append({"role": "assistant", "content": answer.get("text", "")})

    # Another encoding of the same pixels, another way to send the same bytes.
    yield ask("encoding", system, user(image(png(1, 140, 196, level=1)), text(question)))[0]
    yield ask("url", system, user(image(serve(first)), text(question)))[0]
    yield ask("url", system, user(image(serve(large)), text(question)))[0]

    # The client's own identifier: with the bytes, with other bytes, without.
    yield ask("uuid", system, user(image(first, uuid="picture-1"), text(question)))[0]
    yield ask("uuid", system, user(image(first, uuid="picture-1"), text(other)))[0]
    yield ask("uuid", system, user(image(second, uuid="picture-1"), text(question)))[0]
    yield ask("uuid", system, user({"type": "image_url", "image_url": None, "uuid": "picture-1"}, text(question)))[0]
    yield ask("uuid", system, user(image(first, uuid="picture-2"), text(question)))[0]

    # Tenants.
    for salt in ("tenant-a", "tenant-a", "tenant-b"):
        yield ask("salt", system, user(image(first), text(question)), cache_salt=salt)[0]

    # Arguments of the processor.
    for _ in range(2):
        yield ask("kwargs", system, user(image(first), text(question)), mm_processor_kwargs={"do_rescale": True})[0]

    for seed, ending in ((1, question), (1, other), (2, question)) if video else ():
        url = "data:video/mp4;base64," + base64.b64encode(video(seed)).decode()
        film = {"type": "video_url", "video_url": {"url": url}}
        yield ask("video", system, user(film, text(ending)))[0]
        yield ask("video", system, user(image(first), film, text(ending)))[0]

    # Enough other prompts to evict, then the first ones again.
    for index in range(12):
        yield ask("evict", user(text(words(150)), image(png(10 + index, 84, 84)), text(words(60))))[0]
    for ending in (question, other):
        for picture in (first, second, large):
            yield ask("old", system, user(image(picture), text(ending)))[0]
