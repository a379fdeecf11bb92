"""Whether the namespace has emberpool's search attributes: setting one that it lacks fails a workflow's task."""

import logging

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from emberpool.activities.names import SEARCH_ATTRIBUTES

log = logging.getLogger(__name__)

KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD


async def are_registered(client: Client) -> bool:
    """True if all of them are there, as keywords. If not, or if the server does not say, a warning tells what to do."""
    try:
        request = ListSearchAttributesRequest(namespace=client.namespace)
        answer = await client.operator_service.list_search_attributes(request)
    except RPCError as error:
        log.warning("search attributes stay unset: the server does not say which are registered: %s", error)
        return False
    missing = [name for name in SEARCH_ATTRIBUTES if answer.custom_attributes.get(name) != KEYWORD]
    if missing:
        options = " ".join(f"--name {name} --type Keyword" for name in missing)
        log.warning(
            "search attributes stay unset, since the namespace lacks some; remedy: temporal operator search-attribute "
            "create --namespace %s %s",
            client.namespace,
            options,
        )
    return not missing
