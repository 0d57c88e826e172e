"""Prompts that cross windows, strides and block edges, and overflow a small cache."""

import random

# Few different tokens keep captures small; blocks still differ.
TOKENS = range(10, 14)


def prompts(header):
    """Yields (phase, prompt, max_tokens, answer); the caller appends the output to answer."""
    unit = header["scheduler_block_size"]
    blocks = header["num_blocks"]
    windows = [group["window"] for group in header["groups"] if group["window"]]
    window = max(windows, default=2 * unit)
    draw = random.Random(46)

    def text(length):
        return [draw.choice(TOKENS) for _ in range(int(length))]

    def ask(phase, prompt, max_tokens=3):
        answer = []
        return (phase, list(prompt), max_tokens, answer), answer

    # A conversation: each prompt has everything before it.
    turns = []
    history = text(2 * unit + 5)
    for turn in range(8):
        turns.append(list(history))
        request, answer = ask("turns", history, 7 + 5 * (turn % 2))
        yield request
        history += [*answer, *text(1.3 * unit)]

    # The same prompt again.
    long = text(window + 5 * unit + 3)
    for _ in range(3):
        yield ask("same", long)[0]

    # Prompts that share a prefix of another, at block edges and between them.
    base = text(8 * unit)
    yield ask("branch", base + text(unit // 2))[0]
    for cut in (8, 6, 6, 6, 4.5, 4.5, 4, 3, 3, 2, 1, 0.5):
        yield ask("branch", base[: int(cut * unit)] + text(2 * unit + 3))[0]
    for cut in (3 * unit - 1, 3 * unit + 1, 5 * unit - 1, 5 * unit + 1):
        yield ask("branch", base[:cut] + text(unit + 1))[0]

    # Prompts shorter than the window, and at its edge.
    for length in (max(2, unit // 2), unit + 1, window - 1, window, window + 1):
        short = text(length)
        yield ask("short", short, 2)[0]
        yield ask("short", short, 2)[0]
        yield ask("short", short + text(unit), 2)[0]

    # Exact multiples of the block, one less, one more, each extended.
    for length in (4 * unit, 4 * unit - 1, 4 * unit + 1):
        edge = text(length)
        yield ask("edge", edge)[0]
        yield ask("edge", edge)[0]
        yield ask("edge", edge + text(unit))[0]
        yield ask("edge", edge + text(unit))[0]

    # Fillers overflow the cache while one conversation stays in use; then shorter
    # parts of it, whose windows or states are older than its full-attention blocks.
    last = turns[-1]
    fillers = [text(5 * unit + 1) for _ in range(max(4, blocks // 8))]
    for index, filler in enumerate(fillers):
        yield ask("evict", filler, 2)[0]
        yield ask("evict", last, 2)[0]
        if index % 3 == 2:
            yield ask("evict", turns[2 + index // 3 % 5] + text(unit // 2), 2)[0]
    for old in [*turns, long, base, *fillers[-4:], *turns[::-1]]:
        yield ask("old", old, 2)[0]

    # Random requests over a few prefixes, continued conversations among them.
    prefixes = [last, long, base, text(7 * unit + 3), text(10 * unit)]
    suffixes = [text(length) for length in (1, unit // 3, unit, 2 * unit + 1)]
    done = []
    for _ in range(60):
        if done and draw.random() < 0.3:
            prompt = draw.choice(done[-6:]) + draw.choice(suffixes)
        else:
            prefix = draw.choice(prefixes)
            cut = draw.choice([unit * draw.randint(1, len(prefix) // unit), draw.randint(1, len(prefix)), len(prefix)])
            prompt = prefix[:cut] + draw.choice(suffixes)
        prompt = prompt[: header["max_model_len"] - unit]
        request, answer = ask("random", prompt, draw.choice([1, 2, unit // 2, unit + 1]))
        yield request
        done.append([*prompt, *answer])
