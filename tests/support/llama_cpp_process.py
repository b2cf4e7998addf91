"""llama.cpp in a process that cannot import headlab: what it makes of a file, its texts and prompts.

    python llama_cpp_process.py MODEL.gguf REQUEST.json ANSWER.json

A request has `texts`, whose tokens are asked for, and `prompts` of token ids, each of which is
continued by `count` tokens, the likeliest one each time. The cache is in float32 and flash attention
is off, so that only the order of sums differs from other software.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

sys.modules["headlab"] = None  # type: ignore[assignment] # an import of it fails

import xllamacpp  # noqa: E402 - after headlab is out of reach


def main(model: str, request_file: str, answer_file: str) -> None:
    """Serve the model and write down what the request asks for."""
    request = json.loads(Path(request_file).read_text("utf-8"))
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = request["context"], 1, False
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(parameters)  # it ends when nothing refers to it
    address = server.listening_address
    tokens = [
        asked(address, "tokenize", content=text, add_special=True)["tokens"]
        for text in request["texts"]
    ]
    continuations = [
        asked(
            address,
            "completion",
            prompt=prompt,
            n_predict=request["count"],
            temperature=0,
            cache_prompt=request["keeps_cache"],
            return_tokens=True,
        )["tokens"]
        for prompt in request["prompts"]
    ]
    answer = {"tokens": tokens, "continuations": continuations}
    Path(answer_file).write_text(json.dumps(answer), "utf-8")


def asked(address: str, what: str, **fields: Any) -> Any:
    """The server's answer to a request."""
    request = urllib.request.Request(
        f"{address}/{what}", json.dumps(fields).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


if __name__ == "__main__":
    main(*sys.argv[1:])
