"""How a program ends when it gets SIGTERM or other workers are gone, in separate programs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformers.runs.preemption import PREEMPTED_STATUS

ROOT = Path(__file__).parents[2]
BEGIN = """
import logging, signal
from keras_transformers.runs import preemption
from keras_transformers.runs.preemption import Preempted, TerminationNotice
logging.basicConfig(format="%(message)s")

class UnavailableError(Exception):
    '''As TensorFlow's is called.'''

def terminate():
    signal.raise_signal(signal.SIGTERM)

"""


LISTEN = """
notice = TerminationNotice()
notice.listen()
"""


def start(code):
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def run(code):
    """Returns a program's exit status and output."""
    process = start(code)
    output, _ = process.communicate()
    return process.returncode, output


def test_outside_of_training_termination_ends_the_program_at_once():
    status, output = run(
        "preemption.leave_on_termination()\n"
        "try:\n"
        "    print('begun')\n"
        "    terminate()\n"
        "finally:\n"
        "    print('never')\n"
    )
    assert status == PREEMPTED_STATUS
    assert sorted(output.splitlines()) == ["SIGTERM: there is nothing to save", "begun"]


def test_a_handler_of_somebody_else_is_left_to_them():
    status, output = run(
        "signal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        "preemption.leave_on_termination()\n"
        "terminate()\n"
    )
    assert (status, output) == (0, "mine\n")


def test_while_training_termination_waits():
    code = LISTEN + "terminate()\nprint('saving', notice.came)\nnotice.obey()\n"
    assert run(code) == (PREEMPTED_STATUS, "saving True\n")


def test_the_second_one_does_not():
    code = LISTEN + "terminate()\nterminate()\nprint('never')\n"
    assert run("preemption.leave_on_termination()\n" + code)[0] == PREEMPTED_STATUS
    assert run(code) == (-signal.SIGTERM, "")


def test_a_notice_that_nobody_heard_is_passed_on():
    """The signal came after the last epoch."""
    code = LISTEN + "terminate()\nnotice.stop()\n"
    assert run("preemption.leave_on_termination()\n" + code)[0] == PREEMPTED_STATUS
    assert run(code) == (-signal.SIGTERM, "")


ANOTHER = "preemption.leave_on_termination()\n"  # called at the start of each training


@pytest.mark.parametrize("code", ["terminate()\n" + ANOTHER, ANOTHER + "terminate()\n"])
def test_a_training_that_failed_takes_no_notice_from_the_next_one(code):
    """As in a grid: no one would read a notice that the first training got."""
    found = run(ANOTHER + LISTEN + code + "print('never')\n")
    assert found == (PREEMPTED_STATUS, "SIGTERM: there is nothing to save\n")


def test_a_program_that_obeys_is_not_killed_by_signals_that_come_late():
    """All workers may get SIGTERM, and another may have passed it on to this one before."""
    code = "try:\n    notice.obey()\nfinally:\n    print('obeying', flush=True)\n"
    process = start(LISTEN + code)
    assert process.stdout.readline() == "obeying\n"
    while process.poll() is None:
        process.terminate()
    process.communicate()
    assert process.returncode == PREEMPTED_STATUS


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("UnavailableError('Socket closed')", PREEMPTED_STATUS),
        ("RuntimeError('Collective ops is aborted by: it timed out')", PREEMPTED_STATUS),
        ("RuntimeError('of our own')", 1),
    ],
)
def test_the_loss_of_another_worker_asks_for_another_try(error, status):
    found, output = run(f"preemption.leave_with_the_others()\nraise {error}\n")
    assert found == status
    assert f"{error.split('(')[0]}: " in output, "the traceback"
    assert ("another worker is gone" in output) == (status == PREEMPTED_STATUS)
