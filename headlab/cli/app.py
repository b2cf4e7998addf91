"""`headlab app`: the dashboard, served on this machine with a worker behind it."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.output import CacheRoot, open_store
from headlab.core import (
    APP_DEVICE_VARIABLE,
    APP_MODEL_VARIABLE,
    APP_TASK_VARIABLE,
    CACHE_VARIABLE,
    CHOOSE_CACHE,
    HUB_ID,
    HeadlabError,
    is_folder,
    unwritable_error,
)

ENTRY = Path(__file__).parents[1] / "dashboard" / "entry" / "app.py"
"""What Streamlit runs; its settings stand in `.streamlit` beside it."""
PORT = 8501
HOSTS_VARIABLE = "STREAMLIT_SERVER_ALLOWED_HOSTS"
HOST_NAME = re.compile(r"\*?[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
WORKER_ADDRESS = re.compile(r"https?://[A-Za-z0-9._\[\]:-]{1,253}/?")
DEVICE_NAME = re.compile(r"cpu|mps|(cuda|xpu)(:[0-9]{1,3})?")
HAS_WORKER = os.name == "posix"
"""Whether the worker runs on this system."""
PACKAGES = ("streamlit", "uvicorn", "starlette", "httpx", "pandas", "plotly", "fastapi")
"""Those of the extra `app` without which the server or its pages cannot start."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to serve on")] = PORT,
    address: Annotated[
        str,
        typer.Option(
            help="address to listen on; 0.0.0.0 lets other computers in, without a log-in"
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="name under which a browser elsewhere may open the app; repeatable"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="model that pages show first: embedded, folder or hub id")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="task that pages show first: a name or your own .toml")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="folder of the tasks' files; default $HEADLAB_DATA")
    ] = None,
    worker: Annotated[
        str | None, typer.Option(help="address of a worker that runs already; default: its own")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="device of the app's own worker: cpu, cuda, cuda:1, ...")
    ] = None,
    cache: CacheRoot = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="open the app in this computer's browser")
    ] = False,
) -> None:
    """Serve the dashboard in a browser.

    It shows the demo's results at once, works without a network, and starts a worker that holds the
    model. Ctrl-C ends both.
    """
    require_packages()
    worker_elsewhere = worker or os.environ.get("HEADLAB_WORKER")
    if not worker_elsewhere:
        require_worker_system()
    if worker_elsewhere and device:
        raise HeadlabError(
            "--device names the device of the app's own worker, and --worker or $HEADLAB_WORKER "
            "another worker, which has its device already; leave one of them out",
            code="app.worker_has_device",
        )
    for name in allow_host or ():
        require_form("--allow-host", name, HOST_NAME, "a name or number without scheme and port")
    if worker is not None:
        require_form("--worker", worker, WORKER_ADDRESS, "an address like http://host:8700")
    if device is not None:
        require_form("--device", device, DEVICE_NAME, "cpu, cuda, cuda:1 or mps")
    require_free_port(address, port)
    cache_root = open_store(cache).root.absolute()
    os.environ[CACHE_VARIABLE] = str(cache_root)  # tasks are looked up where they are saved
    settings: dict[str, str] = {}
    if model is not None:
        settings[APP_MODEL_VARIABLE] = known_model(model)
    if data is not None:
        settings["HEADLAB_DATA"] = str(known_folder(data))
    if task is not None:
        settings |= settings_of_task(task, data)
    if worker is not None:
        settings["HEADLAB_WORKER"] = worker
    if device is not None:
        settings[APP_DEVICE_VARIABLE] = device
    if not worker_elsewhere:
        require_writable(cache_root)
    for sentence in exposure_sentences(address, port, allow_host or ()):
        print(f"headlab: note: {sentence}", file=sys.stderr)
    os.environ.update(settings)
    start_server(streamlit_arguments(address, port, allow_host or (), open_browser))


def start_server(arguments: Sequence[str]) -> None:
    """Become Streamlit's server: this process is replaced, so that a signal reaches it alone.

    Args:
        arguments: Of `python`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *arguments])


def streamlit_arguments(
    address: str, port: int, allowed_hosts: Sequence[str], open_browser: bool
) -> list[str]:
    """The arguments of `python` that serve the app.

    Args:
        address: To listen on.
        port: To serve on.
        allowed_hosts: Names under which it may be opened, besides this computer's own.
        open_browser: Whether Streamlit opens a browser.
    """
    # -P: what lies in the working folder is no module, as for the command `headlab` itself.
    arguments = ["-P", "-m", "streamlit", "run", str(ENTRY)]
    arguments += [f"--server.address={address}", f"--server.port={port}"]
    if open_browser:
        arguments += ["--server.headless=false", "--server.showEmailPrompt=false"]
    hosts = [*LOCAL_NAMES, *allowed_hosts]
    if not _is_unspecified(address):
        hosts.append(address)
    hosts = list(dict.fromkeys(hosts))
    if len(hosts) > len(LOCAL_NAMES):
        arguments += [f"--server.allowedHosts={host}" for host in hosts]
    return arguments


def require_form(flag: str, value: str, form: re.Pattern[str], fitting: str) -> None:
    """Raise HeadlabError for the value of a flag that does not have its form.

    Args:
        flag: The flag.
        value: What was given.
        form: Of the values that fit.
        fitting: These in words.
    """
    if form.fullmatch(value) is None:
        raise HeadlabError(
            f"{flag} takes {fitting}, and was given {value!r:.200}", code="app.option_malformed"
        )


def require_packages() -> None:
    """Raise HeadlabError if packages of the dashboard are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise HeadlabError(
            f"the dashboard needs packages that are not installed ({', '.join(missing)}); run: "
            "pip install 'headlab[app]'",
            code="package.app_missing",
        )


def require_worker_system() -> None:
    """Raise HeadlabError where the worker does not run."""
    if not HAS_WORKER:
        raise HeadlabError(
            "the dashboard's worker runs on Linux and macOS; on Windows run headlab app in WSL, or "
            "in Docker (see the Dockerfile)",
            code="app.no_worker_here",
        )


def require_free_port(address: str, port: int) -> None:
    """Raise HeadlabError if the app cannot listen on this address and port.

    Args:
        address: A name or a number.
        port: From 1 to 65535.
    """
    try:
        ((family, _, _, _, place), *_) = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # the latter for a name that cannot be one
        raise _unknown_address(address) from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except PermissionError as error:
            raise HeadlabError(
                f"port {port} is kept for the system; choose one above 1023, for example --port "
                f"{PORT}",
                code="app.port_reserved",
            ) from error
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise _unknown_address(address) from error
            other_port = PORT if port != PORT else PORT + 1
            raise HeadlabError(
                f"port {port} of {address} cannot be used ({error.strerror}); stop the program "
                f"that uses it, or choose another: --port {other_port}",
                code="app.port_taken",
            ) from error


def _unknown_address(address: str) -> HeadlabError:
    return HeadlabError(
        f"{address!r:.200} is no address of this computer; use 127.0.0.1 for this computer alone, "
        "0.0.0.0 for all its addresses",
        code="app.address_unknown",
    )


def require_writable(root: Path) -> None:
    """Make the folder of one's own results if it is missing; the worker keeps its jobs there.

    Args:
        root: The folder.

    Raises:
        HeadlabError: It cannot be made or written.
    """
    probe = root / f".writable-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable_error(root, error, CHOOSE_CACHE) from error


def known_folder(folder: Path) -> Path:
    """The absolute path of a folder of data. Raises HeadlabError if there is none."""
    if not is_folder(folder):
        raise HeadlabError(
            f"there is no folder {folder}; --data names the folder that holds the tasks' files",
            code="data.folder_missing",
        )
    return folder.absolute()


def known_model(name: str) -> str:
    """A model's name as pages know it: that of a folder as an absolute path.

    Raises:
        HeadlabError: It is neither embedded nor a folder nor formed like a hub id.
    """
    from headlab.models import EMBEDDED

    is_hub_id = HUB_ID.fullmatch(name) is not None and not is_folder(Path(name))
    if name in EMBEDDED or is_hub_id:
        return name
    if is_folder(Path(name)):
        return str(Path(name).absolute())
    raise HeadlabError(
        f"there is no model {name!r}; --model takes {', '.join(EMBEDDED)}, a folder, or a hub id "
        "like owner/name",
        code="model.unknown",
    )


def settings_of_task(name: str, data: Path | None) -> dict[str, str]:
    """The variables by which the app knows a task and shows it first.

    Args:
        name: Of the task, or the path of its declaration.
        data: Folder of the tasks' files.

    Raises:
        HeadlabError: There is no such task, or its declaration is refused.
    """
    from headlab.tasks import registry, task_names
    from headlab.tasks.resolve import task

    if name in task_names():  # its files need not be here: the page says where to get them
        return {APP_TASK_VARIABLE: name}
    declared_name = task(name, data=data).name  # raises, naming the tasks that there are
    declaration = str(Path(name).absolute())
    if os.pathsep in declaration:
        raise HeadlabError(
            f"{declaration!r:.300} holds a {os.pathsep!r}, which separates declarations in "
            f"{registry.TASKS_VARIABLE}; give the file another path",
            code="app.declaration_path",
        )
    others = [
        path
        for path in os.environ.get(registry.TASKS_VARIABLE, "").split(os.pathsep)
        if path.strip() and Path(path.strip()).absolute() != Path(declaration)
    ]
    return {
        APP_TASK_VARIABLE: declared_name,
        registry.TASKS_VARIABLE: os.pathsep.join((declaration, *others)),  # the first one counts
    }


def exposure_sentences(address: str, port: int, allowed_hosts: Sequence[str]) -> list[str]:
    """What somebody should know who lets other computers in.

    Args:
        address: That the app listens on.
        port: That it serves on.
        allowed_hosts: Names under which it may be opened.
    """
    if _is_loopback(address):
        return []
    sentences = [
        f"whoever reaches port {port} of this computer can see all results, start and delete jobs, "
        "and have any folder of this computer and any model of the hub loaded; there is no log-in. "
        "docs/security.md says how to put one in front."
    ]
    if _is_unspecified(address) and not allowed_hosts and not os.environ.get(HOSTS_VARIABLE):
        sentences.append(
            "the app answers to the name localhost only; --allow-host NAME adds the name or number "
            "by which other computers reach this one."
        )
    return sentences


def _is_loopback(address: str) -> bool:
    """Whether an address is reached from this computer alone."""
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_unspecified(address: str) -> bool:
    """Whether an address stands for all of this computer's."""
    try:
        return ip_address(address).is_unspecified
    except ValueError:
        return False
