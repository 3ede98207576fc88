"""One broker in the foreground: when it hands over what it leads, and when it need not."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher import one_broker
from tidelog.launcher.foreground import Stop


class Broker:
    """Stands for a runtime that starts and fails when told."""

    last: Broker

    def __init__(self, *arguments: object, **ports: object) -> None:
        Broker.last = self
        self.may_start = asyncio.Event()
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.handed_over: bool | None = None

    async def start(self) -> None:
        await self.may_start.wait()

    async def failed(self) -> str:
        return await self.failure

    async def stop(self, *, hand_over: bool) -> None:
        self.handed_over = hand_over


@pytest.fixture(autouse=True)
def _brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_broker, "Runtime", Broker)


CONFIG = BrokerConfig.from_mapping({"broker.id": 1, "zookeeper.connect": "nowhere:2181"})


def test_a_broker_that_goes_alone_hands_over() -> None:
    """SIGTERM for this process: the others take what it leads."""

    async def main() -> bool | None:
        stop = Stop()
        running = asyncio.ensure_future(one_broker.serve(CONFIG, stop, lambda runtime: stop.ask()))
        await asyncio.sleep(0)
        Broker.last.may_start.set()
        await running
        return Broker.last.handed_over

    assert asyncio.run(main()) is True


def test_a_broker_that_goes_with_all_others_does_not() -> None:
    """The end of the parent's pipe: nobody is there to take anything."""

    async def main() -> bool | None:
        stop = Stop()
        running = asyncio.ensure_future(one_broker.serve(CONFIG, stop, lambda _: stop.ask(whole_cluster=True)))
        await asyncio.sleep(0)
        Broker.last.may_start.set()
        await running
        return Broker.last.handed_over

    assert asyncio.run(main()) is False


def test_a_broker_that_is_stopped_before_it_is_ready_has_nothing_to_hand_over() -> None:
    """It ends without a word, and never says that it is ready."""

    async def main() -> bool | None:
        stop = Stop()
        stop.ask()
        await one_broker.serve(CONFIG, stop, lambda runtime: pytest.fail("it is not ready"))
        return Broker.last.handed_over

    assert asyncio.run(main()) is False


def test_a_broker_that_fails_says_why() -> None:
    """And has nothing to give."""

    async def main() -> None:
        running = asyncio.ensure_future(
            one_broker.serve(CONFIG, Stop(), lambda _: Broker.last.failure.set_result("every log directory has failed"))
        )
        await asyncio.sleep(0)
        Broker.last.may_start.set()
        await running

    with pytest.raises(BrokerFailed, match="every log directory has failed"):
        asyncio.run(main())
    assert Broker.last.handed_over is False
