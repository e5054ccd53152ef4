# SPDX-License-Identifier: MIT
"""Tasks in processes of their own, some at a time; what one prints is shown when it has ended, or at once if they take turns."""
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable

PR_SET_PDEATHSIG = 1


@dataclass
class Task:
    name: str
    after: str  # the task that must have ended well before; of none where no task is called so
    run: Callable[[], bool]


def perform(tasks, jobs, within_s=float("inf")):
    """Whether each task ended well; one whose predecessor did not is not begun, and counts as failed. After `within_s` seconds none
    is begun any more: it is told, and has no result."""
    end = time.monotonic() + within_s
    context, results, waiting, running = multiprocessing.get_context("fork"), {}, list(tasks), {}
    names = {task.name for task in tasks}
    try:
        while waiting or running:
            for task in list(waiting):
                if time.monotonic() > end:
                    waiting.remove(task)
                    print(f"not run: {task.name}, no time is left", flush=True)
                elif task.after in names and results.get(task.after, True) is False:
                    waiting.remove(task)
                    results[task.name] = False
                    print(f"FAIL {task.name}: not begun, since {task.after} failed", flush=True)
                elif len(running) < jobs and (task.after not in names or task.after in results):
                    waiting.remove(task)
                    shown = tempfile.TemporaryFile("w+") if jobs > 1 else None
                    process = context.Process(target=in_child, args=(task, shown))
                    process.start()
                    running[process.sentinel] = task, process, shown
            for sentinel in multiprocessing.connection.wait(list(running)) if running else ():
                task, process, shown = running.pop(sentinel)
                process.join()
                results[task.name] = process.exitcode == 0
                if shown:
                    shown.seek(0)
                    print(shown.read(), end="", flush=True)
                    shown.close()
    finally:
        for _, process, _ in running.values():
            process.terminate()
        for _, process, _ in running.values():
            process.join()
    return results


def in_child(task, shown):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # however the parent ends, this ends in order
    if shown:
        os.dup2(shown.fileno(), 1)
        os.dup2(shown.fileno(), 2)
    sys.exit(0 if task.run() else 1)
