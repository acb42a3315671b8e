"""The commands that show, check and publish exports: parse, call, print."""

import argparse
import json
from typing import Any

_PATH = "a version folder, or the folder of versions, of which the newest is taken"
_BASE = "the model's folder of versions, TF Serving's model_base_path"
_CONFIG = "TF Serving's model config file, which keeps labels (models.config beside BASE_PATH)"


def add_parsers(commands: Any) -> None:
    """Adds them to what `argparse.ArgumentParser.add_subparsers` returned."""
    show = commands.add_parser("show", help="what an export is: model, signatures, origin")
    show.add_argument("path", help=_PATH)
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(run=_show)

    check = commands.add_parser("check", help="whether TF Serving takes an export")
    check.add_argument("path", help=_PATH)
    check.add_argument("--max-batch-size", type=int, default=8, help="rows tried at most (8)")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=_check)

    publish = commands.add_parser("publish", help="put an export where TF Serving looks for it")
    publish.add_argument("export", help=_PATH)
    publish.add_argument("base_path", help=f"{_BASE}; BASE_PATH/7 asks for that version")
    publish.add_argument("--label", help="that the version gets, such as stable or canary")
    publish.add_argument("--config", help=_CONFIG)
    publish.add_argument("--server-path", help="BASE_PATH as the server sees it, in a container")
    publish.add_argument("--keep", type=int, help="then remove all but so many newest versions")
    publish.add_argument(
        "--warm-up",
        type=int,
        nargs="+",
        metavar="ROWS",
        help="add warm-up requests with batches of so many rows",
    )
    publish.set_defaults(run=_publish)

    rollback = commands.add_parser("rollback", help="serve the version before again")
    rollback.add_argument("base_path", help=_BASE)
    rollback.add_argument("--label", help="withdraw the version that has it; else the newest one")
    rollback.add_argument("--config", help=_CONFIG)
    rollback.set_defaults(run=_rollback)

    warm_up = commands.add_parser("warm-up", help="add warm-up requests to an export")
    warm_up.add_argument("path", help=_PATH)
    warm_up.add_argument("--batch-sizes", type=int, nargs="+", default=[1], help="rows (1)")
    warm_up.set_defaults(run=_warm_up)

    serving = commands.add_parser("serving-config", help="write TF Serving's configuration files")
    serving.add_argument("output", help="the folder to write them into")
    serving.add_argument("base_paths", nargs="+", help=f"{_BASE}; one or more")
    serving.add_argument("--server-root", help="the folder of the BASE_PATHs as the server sees it")
    serving.add_argument(
        "--batch-sizes", type=int, nargs="+", help="batch requests, padded to these numbers of rows"
    )
    serving.add_argument("--batch-timeout-micros", type=int, default=2000, help="wait (2000)")
    serving.add_argument("--num-batch-threads", type=int, default=2, help="batches at a time (2)")
    serving.add_argument("--monitoring", action="store_true", help="Prometheus' metrics")
    serving.set_defaults(run=_serving_config)


def _show(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model import description

    found = description.describe(parsed.path)
    print(json.dumps(found, indent=1) if parsed.json else "\n".join(description.lines(found)))
    return 0


def _check(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model.audit import audit

    found = audit(parsed.path, max_batch_size=parsed.max_batch_size)
    print(json.dumps(found.as_json(), indent=1) if parsed.json else "\n".join(found.lines()))
    return 0 if found.passed else 1


def _publish(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model import publishing

    version = publishing.publish(
        parsed.export,
        parsed.base_path,
        label=parsed.label,
        config=parsed.config,
        server_path=parsed.server_path,
        warm_up=parsed.warm_up or (),
    )
    print(f"{version}: published")
    if parsed.keep is not None:
        for removed in publishing.prune(version.parent, keep=parsed.keep, config=parsed.config):
            print(f"{removed}: removed")
    return 0


def _rollback(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model.publishing import rollback

    withdrawn, served = rollback(parsed.base_path, label=parsed.label, config=parsed.config)
    print(f"{withdrawn}: withdrawn; {served} serves in its place")
    return 0


def _warm_up(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model.warm_up import add_warm_up

    file, count = add_warm_up(parsed.path, batch_sizes=parsed.batch_sizes)
    print(f"{file}: {count} requests")
    return 0


def _serving_config(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model.serving_config import write_serving_config

    for file, flag in write_serving_config(
        parsed.base_paths,
        parsed.output,
        server_root=parsed.server_root,
        batch_sizes=parsed.batch_sizes or (),
        batch_timeout_micros=parsed.batch_timeout_micros,
        num_batch_threads=parsed.num_batch_threads,
        monitoring=parsed.monitoring,
    ):
        print(f"{file}: tensorflow_model_server {flag}")
    return 0
