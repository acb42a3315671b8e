"""Runs the suite's contests: sets one thread, takes turns, computes medians, writes results."""

import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

RESULTS = Path(__file__).parents[1] / "results" / "suite"
_LIMITS = ("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "CT2_FORCE_CPU_ISA")
_PACKAGES = (
    *("tensorflow", "keras", "keras-hub", "onnxruntime", "openvino", "ctranslate2"),
    *("transformers", "torch"),
)
# Instruction set -> the flag of a processor that has it, and the suffix of its tables' names, the
# widest first. ONEDNN_MAX_CPU_ISA lets a processor stand in for one with less.
INSTRUCTION_SETS = {
    "AMX": ("amx_tile", "_amx"),
    "AVX-512": ("avx512f", ""),
    "AVX2": ("avx2", "_avx2"),
}
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def take_turns(
    jobs: Mapping[str, Callable[[], Any]], *, seconds: float = 5.0, least: int = 5
) -> dict[str, dict[str, float]]:
    """Runs the jobs in turn and returns the CPU milliseconds of each.

    Args:
        jobs: name -> function to time.
        seconds: how long all jobs together take turns.
        least: minimum number of turns, however long they take.

    Returns:
        Name -> median, first and third quartile, number of turns.
    """
    for job in jobs.values():
        for _ in range(2):
            job()
    times: dict[str, list[float]] = {name: [] for name in jobs}
    end, turns = time.perf_counter() + seconds, 0
    while turns < least or time.perf_counter() < end:
        for name, job in jobs.items():
            start = time.process_time()
            job()
            times[name].append((time.process_time() - start) * 1e3)
        turns += 1
    return {name: summary(found) for name, found in times.items()}


def summary(times: list[float]) -> dict[str, float]:
    first, median, third = statistics.quantiles(times, n=4)
    return {"median": median, "first_quartile": first, "third_quartile": third, "turns": len(times)}


def line(title: str, found: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a row of text: each contestant's median and quartiles, and ours over the best peer's.

    Contestants whose names begin with "ours" are this package's.
    """
    cells = [
        f"{name} {times['median']:.1f} ms ({times['first_quartile']:.1f} to "
        f"{times['third_quartile']:.1f})"
        for name, times in found.items()
    ]
    best = best_peer(found)
    ratios = [
        f"{name} / best {found[name]['median'] / best:.2f}" for name in found if is_ours(name)
    ]
    return f"{title}: {', '.join(cells)}; {', '.join(ratios)}"


def _line(title: str, found: Mapping[str, Mapping[str, float]]) -> str:
    """Returns `line` for times, and other figures unchanged."""
    is_timed = all("median" in each for each in found.values())
    return line(title, found) if is_timed else f"{title}: {json.dumps(found)}"


def is_ours(name: str) -> bool:
    return name.startswith("ours")


def best_peer(found: Mapping[str, Mapping[str, float]]) -> float:
    """Returns the shortest median among the peers."""
    return min(times["median"] for name, times in found.items() if not is_ours(name))


def loading_of(file: Path, load: Callable[[Path], Callable[[], Any]]) -> dict[str, float]:
    """Measures the cost of a model until its first answer; call it in a separate process.

    Args:
        file: the model's file or folder.
        load: loads it and returns a function that makes it answer once.

    Returns:
        Megabytes of the files, CPU milliseconds to load, and megabytes by which the process has
        grown after the answer.
    """
    files = [each for each in file.rglob("*") if each.is_file()] if file.is_dir() else [file]
    before, start = _resident(), time.process_time()
    answer = load(file)
    spent = time.process_time() - start
    answer()
    return {
        "file": sum(each.stat().st_size for each in files) / 1e6,
        "load": spent * 1e3,
        "memory": _resident() - before,
    }


def _resident() -> float:
    """Returns the megabytes of memory of this process."""
    return (
        int(Path("/proc/self/statm").read_text("utf-8").split()[1])
        * os.sysconf("SC_PAGESIZE")
        / 1e6
    )


def package_folder(package: str, install: str) -> Path:
    """Returns an installed package's data folder; exits with the install command if missing."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: {install}")
    return Path(found.submodule_search_locations[0])


def machine() -> dict[str, Any]:
    """Returns the processor, versions and commit, to record with the figures."""
    info = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    fields = dict(part.split(":", 1) for part in info.split("\n\n")[0].splitlines() if ":" in part)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "processor": fields.get("model name", "unknown"),
        "instruction_set": instruction_set(fields.get("flags", "").split()),
        "kernels": kernels(),
        "flags": [flag for flag in _FLAGS if flag in fields.get("flags", "").split()],
        "threads": int(os.environ["TF_NUM_INTRAOP_THREADS"]),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": commit.stdout.strip(),
        "day": time.strftime("%Y-%m-%d"),
    }


def instruction_set(flags: Collection[str]) -> str:
    """Returns the instruction set of the processor, or the one that stands in for it."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").replace("AVX512", "AVX-512")
    for name, (flag, _) in INSTRUCTION_SETS.items():
        if flag in flags and (not limit or name in limit):
            return name
    return limit or "unknown"


def kernels() -> str:
    """Returns what TensorFlow computes products with in this process."""
    from keras_transformers.saved_model.forms.panels import computes_with_onednn

    return "oneDNN" if computes_with_onednn() else "Eigen"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def write(
    name: str,
    command: str,
    rows: Mapping[str, Mapping[str, Mapping[str, float]]],
    *,
    memory: Mapping[str, float | None] | None = None,
    loading: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Writes a table as results/suite/NAME.json and NAME.txt, and prints what ran.

    With another instruction set than AVX-512 the files are NAME_avx2.json, for instance.

    Args:
        name: the table's name.
        command: the command that measures it.
        rows: row -> contestant -> result of `take_turns`.
        memory: contestant -> megabytes, if it was measured.
        loading: contestant -> result of `loading_of`, if it was measured.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    table: dict[str, Any] = {"command": command, "machine": machine(), "rows": rows}
    name += INSTRUCTION_SETS.get(table["machine"]["instruction_set"], ("", ""))[1]
    limits = " ".join(f"{key}={os.environ[key]}" for key in _LIMITS if key in os.environ)
    table["command"] = f"{limits} {command}".strip()
    if loading is not None:
        table["loading"] = loading
    if memory is not None:
        table["memory"] = {each: found for each, found in memory.items() if found is not None}
    (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    header = [f"$ {table['command']}", json.dumps(table["machine"])]
    text = [*header, *(_line(title, found) for title, found in rows.items())]
    text += [f"{each}: {found:.0f} MB" for each, found in table.get("memory", {}).items()]
    text += [f"{each}: {found}" for each, found in table.get("loading", {}).items()]
    (RESULTS / f"{name}.txt").write_text("\n".join(text) + "\n", "utf-8")
    print(f"{name}: {table['machine']['instruction_set']}, {table['machine']['kernels']}")
