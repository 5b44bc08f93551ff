"""Draws the README's pictures: real commands, run in a pseudo-terminal against a real broker, as SVG.

    .venv/bin/python scripts/pictures.py            writes docs/images/*.svg
    .venv/bin/python scripts/pictures.py --quick    all but that of the demo

`Screen` understands what our commands write: text, new lines, carriage returns, cursor up, erase line, bold and
colours. Nothing is drawn that a command did not print, but for the prompt and the command itself.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from headrace.testing import Broker

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100
CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN, BAR = 8.4, 20, 14, 18, 34
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BACKGROUND, FOREGROUND, BRIGHT, FRAME = "#10151c", "#c8d1dc", "#ffffff", "#2b3542"
COLORS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea", 37: "#ffffff"}
PROMPT = "\x1b[32m$\x1b[0m \x1b[1m{}\x1b[0m\r\n"
_DATA = re.compile(r"/\S*/headrace-\w+/data\b")
"""Where the broker of these pictures keeps its data: a path of the machine that draws them."""
BLOCKS = "▁▂▃▄▅▆▇█"
"""By how many eighths of BLOCK_HEIGHT they fill: bars on lines below each other stay apart."""
BLOCK_HEIGHT = LINE_HEIGHT - 2
_PIECE = re.compile(rf"([{BLOCKS}])\1*|[^\s{BLOCKS}]+(?: [^\s{BLOCKS}]+)*")
"""A bar, or words with one space between them."""
_TOKEN = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")

ORDERS = """amira:{"id": 1041, "item": "kettle", "euros": 39}
jonas:{"id": 1042, "item": "bicycle lamp", "euros": 24}
amira:{"id": 1043, "item": "tea, 250 g", "euros": 9}
priya:{"id": 1044, "item": "field notebook", "euros": 7}
"""


class Cell(NamedTuple):
    text: str
    bold: bool = False
    color: int = 0


class Screen:
    """Lines of cells, as a terminal would show them."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._bold, self._color = False, 0

    def feed(self, output: str) -> None:
        for arguments, final, back, down, text in _TOKEN.findall(output):
            if final:
                self._control(arguments, final)
            elif back:
                self._column = 0
            elif down:
                self._row += 1
                while self._row >= len(self.lines):
                    self.lines.append([])
            else:
                self._write(text)

    def _control(self, arguments: str, final: str) -> None:
        if final == "m":
            self._style([int(number or 0) for number in arguments.split(";")])
        elif final == "A":
            self._row = max(0, self._row - int(arguments or 1))
        elif final == "K":
            del self.lines[self._row][self._column :]

    def _style(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number == 0:
                self._bold, self._color = False, 0
            elif number == 1:
                self._bold = True
            elif number in COLORS:
                self._color = number

    def _write(self, text: str) -> None:
        line = self.lines[self._row]
        line += [Cell(" ")] * (self._column - len(line))
        for character in text:
            line[self._column : self._column + 1] = [Cell(character, self._bold, self._color)]
            self._column += 1


def run(command: Sequence[str], environment: dict[str, str]) -> str:
    """What the command writes to a terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        output = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            output += part
    os.close(leader)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output.decode()}")
    return output.decode()


def svg(screen: Screen, title: str) -> str:
    lines = [line[at : at + COLUMNS] for line in screen.lines for at in range(0, max(len(line), 1), COLUMNS)]
    while lines and not lines[-1]:
        lines.pop()
    columns = max(60, *(len(line) for line in lines))
    width = round(columns * CELL_WIDTH + 2 * MARGIN)
    height = BAR + len(lines) * LINE_HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}" font-family="{FONT}" font-size="{FONT_SIZE}">',
        f"<title>{escape(title)}</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{BACKGROUND}" '
        f'stroke="{FRAME}"/>',
    ]
    parts += [f'<circle cx="{18 + 18 * number}" cy="17" r="5" fill="{FRAME}"/>' for number in range(3)]
    for number, line in enumerate(lines):
        parts += _line_svg(line, BAR + LINE_HEIGHT * number + FONT_SIZE)
    return "\n".join([*parts, "</svg>", ""])


def _line_svg(line: Sequence[Cell], y: float) -> list[str]:
    """Words and bars, each at its own place: columns stay in line in a proportional font too."""
    parts = []
    start = 0
    while start < len(line):
        end = start
        while end < len(line) and line[end][1:] == line[start][1:]:
            end += 1
        text = "".join(cell.text for cell in line[start:end])
        for piece in _PIECE.finditer(text):
            parts.append(_piece_svg(piece[0], line[start], MARGIN + (start + piece.start()) * CELL_WIDTH, y))
        start = end
    return parts


def _piece_svg(text: str, style: Cell, x: float, y: float) -> str:
    color = COLORS.get(style.color, BRIGHT if style.bold else FOREGROUND)
    width = len(text) * CELL_WIDTH
    if text[0] in BLOCKS:
        height = BLOCK_HEIGHT * (BLOCKS.index(text[0]) + 1) / len(BLOCKS)
        top = y - FONT_SIZE + LINE_HEIGHT - height
        return f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'
    weight = ' font-weight="bold"' if style.bold else ""
    return f'<text x="{x:.1f}" y="{y}" fill="{color}"{weight} textLength="{width:.1f}">{escape(text)}</text>'


def draw(name: str, title: str, commands: Sequence[Sequence[str]], environment: dict[str, str]) -> None:
    screen = Screen()
    for command in commands:
        shown = " ".join(f"'{word}'" if re.search(r"[%\s\\]", word) else word for word in command)
        screen.feed(PROMPT.format(shown) + _DATA.sub("data", run(_real(command), environment)))
        screen.feed("" if command is commands[-1] else "\r\n")
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / f"{name}.svg").write_text(svg(screen, title), encoding="utf-8")
    print(f"docs/images/{name}.svg")


def _real(command: Sequence[str]) -> list[str]:
    """With this environment's interpreter."""
    if command[0] == "headrace":
        return [sys.executable, "-m", *command]
    if list(command) == ["make", "demo"]:
        return [sys.executable, "-m", "examples.demo"]
    raise AssertionError(command)


def main() -> None:
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    if "--quick" not in sys.argv:
        draw("demo", "make demo: log events through a broker and a Spark pipeline", [["make", "demo"]], variables)
    with Broker() as broker:
        variables["HEADRACE_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
        broker.create_topic("orders", 3, {"retention.ms": "86400000"})
        produce = [sys.executable, "-m", "headrace", "topic", "produce", "orders", "-K", ":", "-H", "source=web"]
        subprocess.run(produce, input=ORDERS, text=True, check=True, env=variables, stderr=subprocess.DEVNULL)
        topic = ["headrace", "topic"]
        draw("describe", "headrace topic describe", [[*topic, "list"], [*topic, "describe", "orders"]], variables)
        template = [*topic, "consume", "orders", "-e", "-f", "%p@%o  %k  %s\\n"]
        last = [*topic, "consume", "orders", "-p", "2", "-o", "@-10m:", "--format", "json"]
        draw("consume", "headrace topic consume", [template, last], variables)
        draw("health", "headrace cluster health", [["headrace", "cluster", "health"]], variables)


if __name__ == "__main__":
    main()
