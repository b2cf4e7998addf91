"""The two services of compose.yaml, started by their own commands as processes on free ports."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
TOKEN = "made-up-for-this-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def local_command(command: list[str], ports: dict[str, str]) -> list[str]:
    """A service's command, with this interpreter and with other ports.

    Args:
        command: The command of the service.
        ports: The port to use in the place of each of the service's own.
    """
    programs = {"python": [sys.executable], "headlab": [sys.executable, "-m", "headlab.cli"]}
    local_arguments = []
    for argument in command[1:]:
        local_argument = re.sub("|".join(ports), lambda match: ports[match.group()], argument)
        local_arguments.append(local_argument)
    return [*programs[command[0]], *local_arguments]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    (app_command,) = re.findall(
        r"^CMD (\[\"headlab.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    ports = {"8600": str(free_port()), "8501": str(free_port())}
    cache = tmp_path_factory.mktemp("services")
    environment = {
        **os.environ,
        "HEADLAB_CACHE": str(cache),
        "HEADLAB_TOKEN": TOKEN,
        "HEADLAB_MODELS": "",
    }
    environment.pop("HEADLAB_WORKER", None)
    urls = {
        "worker": f"http://127.0.0.1:{ports['8600']}",
        "app": f"http://localhost:{ports['8501']}",
    }
    with ExitStack() as stack, (cache / "services.log").open("wb") as log:

        def start(command: list[str], **variables: str) -> None:
            process = subprocess.Popen(
                local_command(command, ports),
                cwd=ROOT,
                env={**environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait, 120)
            stack.callback(process.terminate)

        start(compose["worker"]["command"])
        wait_until(lambda: answers(f"{urls['worker']}/health"))
        # It serves on port 8501 unless it is told another one.
        own_port = ["--port", ports["8501"]]
        start([*json.loads(app_command), *own_port], HEADLAB_WORKER=urls["worker"])
        wait_until(lambda: answers(f"{urls['app']}/_stcore/health"))
        yield {"check": local_command(compose["worker"]["healthcheck"]["test"][1:], ports), **urls}


def test_the_worker_service_is_healthy_and_asks_for_its_token(services: dict[str, Any]) -> None:
    assert subprocess.run(services["check"], check=False, timeout=60).returncode == 0
    url = services["worker"]
    assert httpx.get(f"{url}/health", timeout=60).json()["ok"]
    assert httpx.get(f"{url}/models", timeout=60).status_code == 401
    wrong_token = {"authorization": "Bearer wrong"}
    assert httpx.get(f"{url}/models", headers=wrong_token, timeout=60).status_code == 401
    with_token = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{url}/models", headers=with_token, timeout=60).status_code == 200
    refusal = httpx.post(
        f"{url}/model", json={"model": "someone/else"}, headers=with_token, timeout=60
    )
    assert refusal.status_code == 404
    assert "--allow or HEADLAB_MODELS" in refusal.json()["error"]


@pytest.mark.soak
def test_the_app_service_uses_the_worker_service(services: dict[str, Any], chromium: Any) -> None:
    tab = chromium.new_page(base_url=services["app"])
    tab.goto("/")
    tab.get_by_text(re.compile("Worker: ready")).wait_for(timeout=120_000)
    assert "not reachable" not in tab.inner_text("body")
    tab.close()
