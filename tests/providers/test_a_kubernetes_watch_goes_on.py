"""The one watch of a pool: resumed where it broke off, listed anew when that is too old, blinded by nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from fixtures.faulty_api import FaultyApi, faulty_api
from fixtures.kubernetes_json import pod_json, running
from fixtures.waiting import wait_until

from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.pool.providers.kubernetes import access
from emberpool.pool.providers.kubernetes.access import KubernetesApi
from emberpool.pool.providers.kubernetes.view import PodView
from emberpool.pool.providers.kubernetes.watch import AGAIN_S, RESYNC_S, PodWatch

GONE = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old resource version"}}


class Watched:
    """A watch on a faulty API, and what it told."""

    def __init__(self, fake: FaultyApi, api: KubernetesApi, resync_s: float = RESYNC_S) -> None:
        self.fake = fake
        self.heard: list[tuple[str, bool]] = []
        self.watch = PodWatch(api, "a=b", self._heard, resync_s)

    def _heard(self, name: PodName, pod: PodView | None) -> None:
        self.heard.append((name, pod is not None))

    async def hears(self, name: str, there: bool = True) -> None:
        """Wait for news of a pod."""
        await until(lambda: (name, there) in self.heard)


async def until(true: Callable[[], bool]) -> None:
    """Poll something that is no coroutine."""

    async def check() -> bool:
        return true()

    await wait_until(check, 10)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    """One that has listed the pod `old`."""
    async with faulty_api(tmp_path) as (fake, api):
        fake.pods = [running("old", "uid-old")]
        one = Watched(fake, api)
        await one.watch.started()
        yield one
        await one.watch.aclose()


async def test_a_list_comes_first_and_changes_follow(watched: Watched) -> None:
    """What was there is told, then what comes and goes."""
    assert watched.heard == [("old", True)]
    watched.fake.say(watched.fake.event("ADDED", running("new")), watched.fake.event("DELETED", running("old")))
    await watched.hears("new")
    await watched.hears("old", there=False)
    assert list(watched.watch.pods) == ["new"]


async def test_a_watch_that_breaks_off_is_resumed(watched: Watched) -> None:
    """From the last version that was heard of, a bookmark's too; nothing is listed again."""
    fake = watched.fake
    bookmark = fake.event("BOOKMARK", {"metadata": {}})
    fake.say(fake.event("ADDED", running("new")), bookmark | {"object": {"metadata": {"resourceVersion": "77"}}}, None)
    await until(lambda: len(fake.watched_from) == 2)
    assert (fake.watched_from, fake.lists) == (["1", "77"], 1)
    fake.say(fake.event("ADDED", running("later")))
    await watched.hears("later")


async def test_a_version_that_is_too_old_means_a_new_list(watched: Watched) -> None:
    """410: whatever was missed meanwhile is found by the list, births and ends alike."""
    fake = watched.fake
    fake.pods, fake.version = [running("new")], 50
    fake.say(GONE, None)
    await watched.hears("new")
    await watched.hears("old", there=False)
    await until(lambda: fake.watched_from[-1] == "50")
    assert fake.lists == 2


async def test_a_server_to_which_every_version_is_too_old_is_not_pressed(watched: Watched) -> None:
    """The first 410 costs a list at once, those that follow a pause each, twice as long every time; and what happens
    once it is well again is heard."""
    fake, began = watched.fake, time.monotonic()
    for _ in range(4):
        fake.say(GONE, None)
    await until(lambda: fake.lists == 5)
    assert time.monotonic() - began > (1 + 2 + 4) * AGAIN_S
    assert watched.watch.trouble == ""
    fake.say(fake.event("ADDED", running("new")))
    await watched.hears("new")
    assert fake.lists == 5


async def test_a_watch_that_says_nothing_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a bookmark, for longer than a server is silent, as on a connection whose other end is gone: what
    happened meanwhile is told by the next watch, from the last version that was heard of, without a list or trouble."""
    monkeypatch.setattr(access, "SILENT_WATCH_S", 0.5)
    async with faulty_api(tmp_path) as (fake, api):
        one = Watched(fake, api)
        await one.watch.started()
        fake.say(fake.event("ADDED", running("new")))
        await one.hears("new")
        await until(lambda: len(fake.watched_from) >= 2)
        fake.say(fake.event("ADDED", running("missed")))
        await one.hears("missed")
        assert set(fake.watched_from[1:]) == {"2"}
        assert (fake.lists, one.watch.trouble) == (1, "")
        await one.watch.aclose()


async def test_trouble_of_the_server_is_waited_out(watched: Watched) -> None:
    """Status 500 on every try costs a pause each, and what was known stays known."""
    fake = watched.fake
    fake.refuse = 2
    fake.say(None)
    await until(lambda: fake.refuse == 0)
    assert list(watched.watch.pods) == ["old"]
    fake.say(fake.event("ADDED", running("new")))
    await watched.hears("new")
    assert fake.lists == 1


async def test_a_watch_that_is_open_again_is_no_trouble(watched: Watched) -> None:
    """Also while nothing happens to the pods: an operator need not wait for the next bookmark, a minute later."""
    watched.fake.refuse = 2
    watched.fake.say(None)
    await until(lambda: watched.watch.trouble != "")
    await until(lambda: watched.watch.trouble == "")


async def test_text_is_read_whole_wherever_it_is_cut(watched: Watched) -> None:
    """kubernetes-client/python#2087: a long event of three-byte characters, cut at every odd place, is one event."""
    fake = watched.fake
    pod = running("wide")
    pod["status"]["message"] = "€" * 60_000
    data = json.dumps(fake.event("ADDED", pod), ensure_ascii=False).encode() + b"\n"
    for start in range(0, len(data), 1021):
        fake.say(data[start : start + 1021])
    await watched.hears("wide")
    assert watched.watch.pods[PodName("wide")].detail == "€" * 60_000


async def test_a_pod_that_cannot_be_read_hides_no_other(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """An object of another shape than any known is passed over, with a line in the log."""
    fake = watched.fake
    broken = pod_json("broken")
    del broken["spec"]
    fake.say(fake.event("ADDED", broken), fake.event("ADDED", running("new")))
    await watched.hears("new")
    assert "broken" in caplog.text


async def test_an_api_that_is_away_is_said_so(tmp_path: Path) -> None:
    """Whoever needs the list hears why there is none; the watch goes on trying."""
    async with faulty_api(tmp_path) as (fake, api):
        fake.refuse = 1
        one = Watched(fake, api)
        with pytest.raises(PoolUnavailable, match="etcd is away"):
            await one.watch.started()
        fake.pods = [running("late")]
        await one.hears("late")
        await one.watch.started()
        await one.watch.aclose()


async def test_a_resync_finds_what_the_watch_never_told(tmp_path: Path) -> None:
    """The periodic list, here at every end of a watch."""
    async with faulty_api(tmp_path) as (fake, api):
        one = Watched(fake, api, resync_s=0.0)
        await one.watch.started()
        fake.pods = [running("missed")]
        fake.say(None)
        await one.hears("missed")
        await one.watch.aclose()


async def test_who_is_cancelled_ends(watched: Watched) -> None:
    """Also where what was waited for is there at that moment: python/cpython#86296, a worker that could not be stopped
    while pods failed."""
    waiting = asyncio.create_task(watched.watch.started())
    await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert waiting.done()
