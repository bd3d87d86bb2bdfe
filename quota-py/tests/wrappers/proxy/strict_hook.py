"""A hook that comes after that of the quota, and refuses what says so. The proxy loads a file once for each callback in it."""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger


class Strict(CustomLogger):
    """Refuses what says so, before it leaves or when it is there."""

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any) -> None:
        if "forbidden" in str(data.get("messages")):
            raise HTTPException(403, {"error": "forbidden"})

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        if "unheard" in str(data.get("messages")):
            raise HTTPException(403, {"error": "unheard"})


strict = Strict()
