"""The two services of compose.yaml, by their own commands, as processes of this computer on free ports."""

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
from support.waiting import until

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


def here(command: list[str], ports: dict[str, str]) -> list[str]:
    """A service's command with this interpreter, and with free ports for its own."""
    first = {"python": [sys.executable], "streamlit": [sys.executable, "-m", "streamlit"]}[
        command[0]
    ]
    rest = [
        re.sub("|".join(ports), lambda found: ports[found.group()], part) for part in command[1:]
    ]
    return [*first, *rest]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    (app_command,) = re.findall(
        r"^CMD (\[\"streamlit.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    ports = {"8600": str(free_port()), "8501": str(free_port())}
    cache = tmp_path_factory.mktemp("services")
    shared = {
        **os.environ,
        "HEADLAB_CACHE": str(cache),
        "HEADLAB_TOKEN": TOKEN,
        "HEADLAB_MODELS": "",
    }
    shared.pop("HEADLAB_WORKER", None)
    urls = {
        "worker": f"http://127.0.0.1:{ports['8600']}",
        "app": f"http://localhost:{ports['8501']}",
    }
    with ExitStack() as stack, (cache / "services.log").open("wb") as log:

        def start(command: list[str], **more: str) -> None:
            process = subprocess.Popen(
                here(command, ports),
                cwd=ROOT,
                env={**shared, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait, 120)
            stack.callback(process.terminate)

        start(compose["worker"]["command"])
        until(lambda: answers(f"{urls['worker']}/health"))
        start(json.loads(app_command), HEADLAB_WORKER=urls["worker"])
        until(lambda: answers(f"{urls['app']}/_stcore/health"))
        yield {"check": here(compose["worker"]["healthcheck"]["test"][1:], ports), **urls}


def test_the_worker_service_is_healthy_and_asks_for_its_token(services: dict[str, Any]) -> None:
    assert subprocess.run(services["check"], check=False, timeout=60).returncode == 0
    url = services["worker"]
    assert httpx.get(f"{url}/health", timeout=60).json()["ok"]
    assert httpx.get(f"{url}/models", timeout=60).status_code == 401
    assert (
        httpx.get(
            f"{url}/models", headers={"authorization": "Bearer wrong"}, timeout=60
        ).status_code
        == 401
    )
    right = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{url}/models", headers=right, timeout=60).status_code == 200
    refused = httpx.post(f"{url}/model", json={"model": "someone/else"}, headers=right, timeout=60)
    assert refused.status_code == 404
    assert "--allow or HEADLAB_MODELS" in refused.json()["error"]


@pytest.mark.soak
def test_the_app_service_uses_the_worker_service(services: dict[str, Any], chromium: Any) -> None:
    tab = chromium.new_page(base_url=services["app"])
    tab.goto("/")
    tab.get_by_text(re.compile("Worker: ready")).wait_for(timeout=120_000)
    assert "not reachable" not in tab.inner_text("body")
    tab.close()
