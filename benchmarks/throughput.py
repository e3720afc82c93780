"""Calls a second of one evaluation over HTTP, in one process and in several. Prints one line of JSON.

    python benchmarks/throughput.py [PROCESSES...]

A server answers at once: nginx with a reply that never changes if it is installed, else tests/fake_server.py. Episodes
of three turns are live at once, 64 for each process. "bare" is the yardstick: one process that posts such requests with
aiohttp, and does nothing else. The ways are measured in turns. For each of them:

    calls_a_second   from the time when a fifth of the episodes are on disk, and all processes have started, until all
                     are; the best of the rounds
    cpu_ms           processor time for a call, of the run's processes together; the least of the rounds, since whatever
                     else runs on the machine only adds
    journal_exact    each episode is in the journal once

`processors` are those that this process may use, and `server_cpu_ms` what the server takes of them for a call. The
most that a machine can do is 1000 * processors / (cpu_ms + server_cpu_ms).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from marl_gem.evaluation import Numbers, Progress, plan_evaluation, run
from marl_gem.llm.http import HTTPModel
from marl_gem.llm.retry import Retrying
from marl_gem.policies import LLMPolicy

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.toys import ThreeTurns

LIVE, TURNS, EPISODES, ROUNDS, WANTED = 64, 3, 4000, 3, 9000
PORT = 18471
REPLY = json.dumps(
    {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23},
    }
)
CONFIGURATION = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/log;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; default_type application/json; location / {{ return 200 '{reply}'; }} }}
}}
"""


class Measured(NamedTuple):
    """Calls a second; milliseconds of processor time for a call, of the run and of the server; an exact journal."""

    rate: float
    cpu: float
    server_cpu: float
    exact: bool


def main(counts: list[int]) -> None:
    gc.set_threshold(50_000)  # as the command line does
    with server() as (url, process):
        ways: dict[str, Callable[[], Measured]] = {"bare": lambda: measured_bare(url, process)}
        for count in counts:
            ways[f"processes_{count}"] = lambda count=count: measured_run(url, process, count)  # type: ignore[misc]
        rounds = [{name: way() for name, way in ways.items()} for _ in range(ROUNDS)]
    report: dict[str, Any] = {"benchmark": "throughput", "server": Path(server_command()[0]).name}
    report |= {"processors": len(os.sched_getaffinity(0)), "episodes": EPISODES, "turns": TURNS, "live": LIVE}
    for name in ways:
        found = [of_round[name] for of_round in rounds]
        report[name] = {
            "calls_a_second": round(max(each.rate for each in found)),
            "cpu_ms": round(min(each.cpu for each in found), 4),
            "server_cpu_ms": round(min(each.server_cpu for each in found), 4),
            "journal_exact": all(each.exact for each in found),
        }
    best = max(report[name]["calls_a_second"] for name in ways if name != "bare")
    print(json.dumps(report | {"load_average": os.getloadavg()[0], "wanted": WANTED, "met": best >= WANTED}))


def measured_run(url: str, process: int, count: int) -> Measured:
    policy = LLMPolicy(Retrying(HTTPModel(url, "tiny", logprobs="off")))
    marks: list[tuple[int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_evaluation(ThreeTurns, policy, Numbers(n=EPISODES))

        def watch(progress: Progress) -> None:
            if progress.done >= (EPISODES if marks else EPISODES // 5):  # by then all workers have started
                marks.append((progress.done, time.perf_counter(), cpu_of(os.getpid()), cpu_of(process)))

        run(plan, Path(folder) / "run", concurrency=LIVE * count, processes=count, watch=watch)
        lines = (Path(folder) / "run" / "episodes.jsonl").read_bytes().splitlines()
    first, last = marks
    calls, seconds, cpu, server_cpu = (after - before for before, after in zip(first, last, strict=True))
    calls *= TURNS
    exact = len({json.loads(line)["id"] for line in lines}) == len(lines) == EPISODES
    return Measured(calls / seconds, 1000 * cpu / calls, 1000 * server_cpu / calls, exact)


def measured_bare(url: str, process: int) -> Measured:
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Well?"}], "max_tokens": 64})
    calls = iter(range(EPISODES * TURNS))

    async def post() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def work() -> None:
                for _ in calls:
                    headers = {"Content-Type": "application/json"}
                    async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                        json.loads(await response.read())

            await asyncio.gather(*(work() for _ in range(LIVE)))

    before, server_before, begun = time.process_time(), cpu_of(process), time.perf_counter()
    asyncio.run(post())
    rate = EPISODES * TURNS / (time.perf_counter() - begun)
    return Measured(rate, per_call(time.process_time() - before), per_call(cpu_of(process) - server_before), True)


def per_call(seconds: float) -> float:
    """Milliseconds for a call."""
    return 1000 * seconds / (EPISODES * TURNS)


def cpu_of(process: int) -> float:
    """Processor time of a process and of its children so far, from /proc."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if process in (int(stat.parent.name), int(fields[1])):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def server_command() -> list[str]:
    return [shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or sys.executable]


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """A server's URL, and the id of its process."""
    (program,) = server_command()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nginx.conf"
        path.write_text(CONFIGURATION.format(folder=folder, port=PORT, reply=REPLY))
        arguments = ["-c", str(path)] if program != sys.executable else ["tests/fake_server.py", "--port", str(PORT)]
        process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(2.0)
            yield f"http://127.0.0.1:{PORT}/v1", process.pid
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [1, 2, 3, 4])
