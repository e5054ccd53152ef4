# SPDX-License-Identifier: MIT
"""A program on a terminal, as a person at it sees it."""
import fcntl
import itertools
import os
import pty
import signal
import struct
import subprocess
import termios
import threading


def agreed(words):
    """Words of p2pctl, with --yes after a verb that asks: without a terminal it changes nothing otherwise."""
    asks = words and words[0] in ("apply", "revert", "cancel") and "--yes" not in words
    return [words[0], "--yes", *words[1:]] if asks else [*words]


def open_terminal(rows=24, columns=80):
    """The two ends of a terminal of that size: the person's, the program's."""
    person, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    return person, program


def shown(process, person, program):
    """Output of a process, piece by piece, until it ends. Both ends are open until then: Linux may drop output that nobody has
    read yet when the last program closes its end."""
    def end():
        process.wait()
        os.write(program, b"\0")

    threading.Thread(target=end).start()
    while not (piece := os.read(person, 65536)).endswith(b"\0"):
        yield piece
    yield piece[:-1]


def on_terminal(argv, answer="", rows=24, columns=80, asked="", **popen):
    """Exit status of a program, and its output. `answer` is typed ahead, or once `asked` is shown; "\x03" interrupts, as Ctrl-C does."""
    person, program = open_terminal(rows, columns)
    text = b""
    with subprocess.Popen(argv, **{"stdin": program, "stdout": program, "stderr": program, **popen}) as process:
        end = threading.Timer(60, process.kill)
        end.start()
        for piece in itertools.chain([b""], shown(process, person, program)):
            text += piece
            if answer and asked.encode() in text:
                os.write(person, answer.encode()) if answer != "\x03" else process.send_signal(signal.SIGINT)
                answer = ""
        end.cancel()
    os.close(program)
    os.close(person)
    return process.returncode, text.decode()
