"""Tags: whom a used pod may serve again."""

import hashlib
import hmac
import json

from emberpool.pool.model.ids import Tag


def caller_tag(pool_key: bytes, namespace: str, tenant: str, caller: str, reuse_key: str) -> Tag:
    """Keyed hash of (namespace, tenant, caller, reuse key), 32 hex digits.

    Keyed, so that nobody without the pool key can make another caller's tag; JSON, so that no two lists of names
    collide.
    """
    text = json.dumps([namespace, tenant, caller, reuse_key], ensure_ascii=True)
    return Tag(hmac.new(pool_key, text.encode("ascii"), hashlib.sha256).hexdigest()[:32])
