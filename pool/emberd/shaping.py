"""What can change in a pod that nobody has: a standby pod gets its full share, an idle one another image."""

import json
import time
from typing import Any, Dict

from emberpool.pool.emberd.config import Config
from emberpool.pool.emberd.keeper import Keeper
from emberpool.pool.emberd.ledger import Ledger
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.room import RoomError
from emberpool.pool.emberd.watchdog import Watchdog


class Shaping:
    """No lease opens while a change is under way: the ledger is held for that long, some ten milliseconds."""

    def __init__(self, config: Config, ledger: Ledger, keeper: Keeper, watchdog: Watchdog) -> None:
        self._config, self._ledger, self._keeper, self._watchdog = config, ledger, keeper, watchdog
        self.standby = config.standby_mb > 0
        """Whether it holds a tiny share only, and serves nobody."""

    @property
    def image(self) -> str:
        """Name of the image that jobs see."""
        return self._keeper.shape.image

    def demand_share(self) -> None:
        """Raises Refused if the pod stands by."""
        if self.standby:
            raise Refused(409, "standing_by", "the pod holds a tiny share only: promote it first")

    def promote(self) -> Dict[str, Any]:
        """Take the full share. Idempotent."""
        began = time.monotonic()
        with self._ledger.lock:
            if self.standby:
                memory_mb = self._config.room.limits.memory_mb
                self._reshape(self._keeper.shape.image, memory_mb)
                self._watchdog.limit_to(memory_mb)
                self.standby = False
        return {"standby": False, "duration_ms": _since(began)}

    def swap(self, epoch: int, image: Any) -> Dict[str, Any]:
        """Let the next lease find another image. Idempotent per epoch."""
        if not isinstance(image, str) or not image:
            raise bad_request("image", "must be a name")
        began = time.monotonic()
        with self._ledger.lock:
            if self._ledger.demand_clean(epoch):
                self._reshape(image, self._keeper.shape.memory_mb)
                self._ledger.stay_clean(epoch)
            elif image != self.image:
                raise Refused(409, "stale_epoch", f"at this epoch the image is {self.image!r}")
        return {"image": image, "duration_ms": _since(began)}

    def _reshape(self, image: str, memory_mb: int) -> None:
        shape = self._keeper.shape._replace(memory_mb=memory_mb)
        if image != shape.image:
            root = self._config.images.get(image)
            if root is None:
                raise Refused(409, "no_image", f"this pod was started without image {image!r}")
            shape = shape._replace(image=image, root=root)
        if shape == self._keeper.shape:
            return
        try:
            self._keeper.reshape(shape)
        except (RoomError, OSError) as error:
            raise Refused(409, "no_room", f"no room can be made of {json.dumps(image)}: {error}") from error


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)
