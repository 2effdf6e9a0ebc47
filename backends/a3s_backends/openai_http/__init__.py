"""Models behind chat completions over HTTP: the protocol that OpenAI's servers, and many others, speak. Extra `openai`.

`client` is the door. `policy` is what a host may set, `address` and `key` are whom it talks to and as whom. A request
goes through `encoding`, `calls` (limits, retries) and `connections` (httpx, and nothing else of it); an answer through
`sse` (when streamed), `decoding` and `assembly`. `failures` is what each status and each broken connection means.
httpx is imported when a client is opened.
"""

from a3s_backends.openai_http.client import OpenAiHttpModelClient, open_openai_http
from a3s_backends.openai_http.failures import OpenAiHttpClosed
from a3s_backends.openai_http.key import api_key_from_environment
from a3s_backends.openai_http.policy import OpenAiHttpPolicy

__all__ = [
    "OpenAiHttpClosed",
    "OpenAiHttpModelClient",
    "OpenAiHttpPolicy",
    "api_key_from_environment",
    "open_openai_http",
]
