"""A queue of SQS, standard or FIFO.

A message may stand for several equal ones of as many tables (`weight`), so that a month of 10,000
tables is few events. Of a FIFO queue's group one batch at a time is in flight.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulation.scale.limits import IN_FLIGHT_FIFO, IN_FLIGHT_STANDARD
from simulation.scale.rules import QueueRule
from simulation.scale.timeline import Timeline
from sleeper.jobs.queue import QueueCounts


@dataclass(slots=True, eq=False)
class Message:
    """A message. `group` is that of a FIFO queue, and 0 in a standard one."""

    content: Any
    group: int
    weight: int
    sent: float
    receives: int = 0


@dataclass(slots=True)
class _Group:
    waiting: deque[Message] = field(default_factory=deque)
    in_flight: int = 0


class Queue:
    """A queue. It calls `on_message` whenever a message can be received."""

    def __init__(self, rule: QueueRule, timeline: Timeline) -> None:
        self.rule = rule
        self.on_message: Callable[[], object] = lambda: None
        self.sent = self.deleted = self.dead = 0
        self.in_flight_most = 0
        self._timeline = timeline
        self._groups: dict[int, _Group] = {}
        # Groups with a message that can be received, in order.
        self._ready: dict[int, _Group] = {}
        self._visible = self._in_flight = 0
        self._in_flight_max = IN_FLIGHT_FIFO if rule.fifo else IN_FLIGHT_STANDARD

    def send(self, content: Any, group: int = 0, weight: int = 1) -> None:
        """Sends a message."""
        self.sent += weight
        self._groups.setdefault(group, _Group())
        self._show(Message(content, group, weight, self._timeline.now))

    def receive(self, weight_max: int) -> list[Message]:
        """Returns messages up to the weight, or one that is heavier; none if none is visible."""
        messages: list[Message] = []
        weight = 0
        while self._ready:
            group_id, group = next(iter(self._ready.items()))
            while group.waiting:
                message = group.waiting[0]
                if messages and weight + message.weight > weight_max:
                    break
                if self._in_flight + message.weight > self._in_flight_max:
                    return messages
                self._hold(group, message)
                messages.append(message)
                weight += message.weight
            if (self.rule.fifo and group.in_flight) or not group.waiting:
                del self._ready[group_id]
            if weight >= weight_max or group.waiting:
                break
        return messages

    def delete(self, message: Message) -> None:
        """Deletes a received message."""
        self.deleted += message.weight
        self._let_go(message)

    def release(self, message: Message, delay_seconds: float = 0.0) -> None:
        """Returns a received message, or makes it a dead letter after its last receive."""
        if message.receives >= self.rule.receives_max:
            self.dead += message.weight
            self._let_go(message)
        elif delay_seconds:
            # It is in flight meanwhile, and blocks the group of a FIFO queue.
            self._timeline.after(delay_seconds, lambda: self._return(message))
        else:
            self._return(message)

    def counts(self) -> QueueCounts:
        """Returns the counts as the product reads them."""
        return QueueCounts(self._visible, self._in_flight, 0, self.dead)

    def age_seconds(self) -> float:
        """Returns the age of the oldest message that waits."""
        heads = [group.waiting[0].sent for group in self._groups.values() if group.waiting]
        return self._timeline.now - min(heads) if heads else 0.0

    def _show(self, message: Message, first: bool = False) -> None:
        group = self._groups[message.group]
        if first:
            group.waiting.appendleft(message)
        else:
            group.waiting.append(message)
        self._visible += message.weight
        self._offer(message.group, group)
        self.on_message()

    def _offer(self, group_id: int, group: _Group) -> None:
        if group.waiting and not (self.rule.fifo and group.in_flight):
            self._ready.setdefault(group_id, group)

    def _hold(self, group: _Group, message: Message) -> None:
        group.waiting.popleft()
        message.receives += 1
        group.in_flight += 1
        self._visible -= message.weight
        self._in_flight += message.weight
        self.in_flight_most = max(self.in_flight_most, self._in_flight)

    def _let_go(self, message: Message) -> None:
        group = self._groups[message.group]
        group.in_flight -= 1
        self._in_flight -= message.weight
        self._offer(message.group, group)
        if group.waiting:
            self.on_message()

    def _return(self, message: Message) -> None:
        self._groups[message.group].in_flight -= 1
        self._in_flight -= message.weight
        self._show(message, first=True)
