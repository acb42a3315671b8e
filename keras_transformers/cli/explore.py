"""Defines the command that opens the explorer: `explore`."""

import logging
import signal
import sys
import threading
import webbrowser
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional

from keras_transformers.cli.arguments import Command, argument
from keras_transformers.ranges import Range


@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    """Open a local page that shows what models read, attend to and answer.

    Examples:
        keras-transformers explore all-MiniLM-L6-v2
        keras-transformers explore saved_models/translate_de_en runs/translation/weights
        keras-transformers explore sst2-model --port 9000 --no-browser
    """

    paths: Annotated[Positional[tuple[str, ...]], argument("PATH ...", "weights or exports")]
    host: str = "127.0.0.1"  # address to listen on
    port: Annotated[int, Range(at_least=0, at_most=65535)] = 8600  # 0 picks a free port
    no_browser: bool = False  # only print the address

    def run(self) -> int:
        """Serves the page until SIGINT or SIGTERM."""
        from keras_transformers.explorer import explorer_server, open_subjects
        from keras_transformers.serving.server.hosts import is_loopback

        if not self.paths:
            raise ValueError("pass at least one folder of weights, or an export")
        logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
        server = explorer_server(open_subjects(self.paths), host=self.host, port=self.port)
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        if not is_loopback(self.host):
            print(f"other machines can reach {self.host}: there is no authentication", flush=True)
        with server:
            host = f"[{self.host}]" if ":" in self.host else self.host
            address = f"http://{host}:{server.rest_port}/"
            print(f"{address} (press Ctrl-C to stop)", flush=True)
            if not self.no_browser:
                webbrowser.open(address)
            stopped.wait()
        return 0
