"""Decides which texts of a model are read and written next, so that requests share it fairly.

Texts are written together, one token of each in a turn. Between two turns, texts join and leave:

- One that has ended, whose client has left or whose time is up, leaves; its place is free in the
  next turn.
- Waiting texts are admitted while there is room, first one of the request that has the fewest texts
  in progress, and among those the oldest request. So a request of many texts does not hold up one
  of few.
- Prompts of similar length are read together. A turn reads only as many tokens as `_MOST_READ`, of
  one group of prompts after the other, so that a long prompt delays the texts that are being
  written, and shorter prompts, by no more than that.
- If the keys and values take too much memory, the text that joined last waits again. Its tokens so
  far are then read like a prompt, so the text stays the same.

nano-vllm's scheduler (github.com/GeeeekExplorer/nano-vllm) is the model.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from keras_transformers.serving.protocol.errors import Code, RequestError, as_request_error
from keras_transformers.serving.server.steps import Rows, Steps, Text

_MOST_READ = 512  # tokens of prompts in a turn


@dataclass(eq=False)
class Request:
    """Texts that a client waits for.

    Attributes:
        texts: the texts.
        deadline: when they are due, by time.monotonic.
        on_news: called after each token, if the client reads the text as it comes.
        done: done when all texts have ended, or one has failed.
        is_abandoned: whether nobody waits for them any more.
        waiting: the texts that are not in progress, in their order.
        num_active: how many are.
    """

    texts: Sequence[Text]
    deadline: float
    on_news: Callable[[], None] = lambda: None
    done: "Future[None]" = field(default_factory=Future)
    is_abandoned: bool = False
    waiting: deque[Text] = field(init=False)
    num_active: int = 0

    def __post_init__(self) -> None:
        self.waiting = deque(self.texts)

    def abandon(self) -> None:
        """Gives the texts up: they leave before the next step."""
        self.is_abandoned = True


class Decoding:
    """The texts of one model.

    Args:
        steps: the model's.
        most_rows: how many texts may be in progress.
        most_bytes: how much memory their keys and values may take; a text alone may take more.
        on_step: called before each step with the number of texts that get a token.
    """

    def __init__(
        self,
        steps: Steps,
        *,
        most_rows: int,
        most_bytes: float,
        on_step: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._steps = steps
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._on_step = on_step
        self._requests: dict[Request, None] = {}  # the oldest first
        self._owners: dict[Text, Request] = {}  # of the texts in progress
        self._reading: deque[Rows] = deque()
        self._writing = steps.rows([])

    def add(self, request: Request) -> None:
        """Lets the texts of a request wait."""
        if request.texts:
            self._requests[request] = None
        else:
            request.done.set_result(None)

    @property
    def is_idle(self) -> bool:
        """Whether there are no texts."""
        return not self._requests

    def turn(self) -> None:
        """Does the work between two steps, and takes one."""
        with self._failing([*self._requests]):
            self._leave()
            self._admit()
            self._read()
            self._write()

    def _leave(self) -> None:
        now = time.monotonic()
        for request in list(self._requests):
            if request.is_abandoned:
                self._fail(request, RequestError(Code.CANCELLED, "the client has left"))
            elif request.deadline <= now:
                self._fail(request, RequestError(Code.DEADLINE_EXCEEDED, "the time is up"))

    def _admit(self) -> None:
        admitted: list[Text] = []
        while waiting := [request for request in self._requests if request.waiting]:
            request = min(waiting, key=lambda request: request.num_active)
            text = request.waiting[0]
            with self._failing([request]):
                if text.prompt is None:
                    self._steps.begin(text)
                if not self._has_room_for(text, admitted):
                    break
                self._owners[request.waiting.popleft()] = request
                request.num_active += 1
                admitted.append(text)
                self._note([text])  # it may be one of no tokens
        admitted = [text for text in admitted if text in self._owners]
        admitted.sort(key=lambda text: text.num_read)
        for _, group in itertools.groupby(admitted, lambda text: text.num_read.bit_length()):
            self._reading.append(self._steps.rows(list(group)))

    def _has_room_for(self, text: Text, admitted: Sequence[Text]) -> bool:
        if not self._owners:
            return True
        widths = [rows.width for rows in (*self._reading, self._writing)]
        width = 1 + max(*widths, *(other.num_read for other in (*admitted, text)))
        return len(self._owners) < self._most_rows and self._fits(len(self._owners) + 1, width)

    def _fits(self, num_rows: int, width: int) -> bool:
        return num_rows * width * self._steps.bytes_per_token <= self._most_bytes

    def _read(self) -> None:
        left = _MOST_READ
        while self._reading and left > 0:
            rows = self._reading.popleft()
            rows.keep(self._owners)
            if not rows.texts:
                continue
            with self._failing([self._owners[text] for text in rows.texts]):
                left -= self._steps.read(rows, left)
                if rows.unread.shape[1]:
                    self._reading.append(rows)
                else:
                    self._writing.join(rows)

    def _write(self) -> None:
        rows = self._writing
        rows.keep(self._owners)
        while len(rows.texts) > 1 and not self._fits(len(rows.texts), rows.width + 1):
            *others, last = rows.texts
            request = self._owners.pop(last)
            request.waiting.appendleft(last)
            request.num_active -= 1
            rows.keep(others)
        if rows.texts:
            self._on_step(len(rows.texts))
            with self._failing([self._owners[text] for text in rows.texts]):
                self._steps.write(rows)
                self._note(rows.texts)

    def _note(self, texts: Sequence[Text]) -> None:
        """Tells who waits for texts how far they are; those that have ended leave."""
        for text in texts:
            request = self._owners[text]
            if text.progress.ended:
                del self._owners[text]
                request.num_active -= 1
                if not request.num_active and not request.waiting:
                    del self._requests[request]
                    request.done.set_result(None)
            request.on_news()

    @contextlib.contextmanager
    def _failing(self, requests: Sequence[Request]) -> Iterator[None]:
        """Fails requests with the block's error."""
        try:
            yield
        except Exception as error:  # whatever the runtime raises, other requests go on
            for request in dict.fromkeys(requests):
                self._fail(request, as_request_error(error))

    def _fail(self, request: Request, error: RequestError) -> None:
        if request in self._requests:
            del self._requests[request]
            for text in request.texts:
                self._owners.pop(text, None)
            request.done.set_exception(error)
            request.on_news()
