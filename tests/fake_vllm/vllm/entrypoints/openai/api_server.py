"""A stand-in for vLLM's server, started as vLLM is where tests/fake_vllm stands in PYTHONPATH.

It takes the requests that the trainer sends, with vLLM's errors, and answers with tokens that follow from the seed.
What happened is written to the file FAKE_VLLM_LOG, a JSON line each. Where FAKE_VLLM_DIES_AT is a number, it dies at
the answer with that number, once; with FAKE_VLLM_STAYS_AWAY it can then not be started again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LOGPROB = -0.5


LOG = Path(os.environ.get("FAKE_VLLM_LOG", os.devnull))


def note(event: str, **fields: Any) -> None:
    with LOG.open("a") as log:
        log.write(json.dumps({"event": event, **fields}) + "\n")


def noted(event: str) -> int:
    """How often something happened, also before a restart."""
    return LOG.read_text().count(f'"event": "{event}"') if LOG.exists() else 0


def tensors(path: Path) -> list[str]:
    """The names of the tensors in a file of safetensors: its header is JSON behind eight bytes with its length."""
    content = path.read_bytes()
    return [*json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])]


class Refusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Model:
    """What the server has loaded, and how many requests are under way."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.name, self.has_lora = arguments.served_model_name, arguments.enable_lora
        config = json.loads((Path(arguments.model) / "config.json").read_text())
        assert config["architectures"], "vLLM takes it for a model that completes nothing"
        self.vocabulary = config["vocab_size"]
        self.adapters: dict[str, str] = {}
        self.active = 0
        self.lock = threading.Lock()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] != self.name and body["model"] not in self.adapters:
            raise Refusal(404, f"The model `{body['model']}` does not exist.")
        prompt = body["prompt"]
        if not all(isinstance(token, int) and 0 <= token < self.vocabulary for token in prompt):
            raise Refusal(400, "the prompt is no list of token ids")
        with self.lock:
            self.active += 1
            if noted("answer") + self.active == int(os.environ.get("FAKE_VLLM_DIES_AT", "0")) and not noted("death"):
                note("death")
                os._exit(1)
        rng = random.Random(json.dumps([body["seed"], prompt]))
        ids = [rng.randrange(self.vocabulary) for _ in range(rng.randint(0, body["max_tokens"] - 1))]
        ids = [token for token in ids if token not in body["stop_token_ids"]] + [body["stop_token_ids"][0]]
        with self.lock:
            self.active -= 1
            note("answer", model=body["model"], prompt=prompt, ids=ids, salt=body.get("cache_salt"))
        assert body["logprobs"] == 0 and body["return_token_ids"]
        choice = {
            "index": 0,
            "text": "",
            "logprobs": {"token_logprobs": [LOGPROB] * len(ids)},
            "finish_reason": "stop",
            "prompt_token_ids": prompt,
            "token_ids": ids,
        }
        return {"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": [choice]}

    def load(self, body: dict[str, Any]) -> None:
        name, folder = body["lora_name"], Path(body["lora_path"])
        if not self.has_lora:
            raise Refusal(404, "Not Found")
        if name in self.adapters:
            raise Refusal(400, f"The lora adapter '{name}' has already been loaded.")
        if not (folder / "adapter_model.safetensors").exists() or not (folder / "adapter_config.json").exists():
            raise Refusal(404, f"No adapter found for {folder}")
        self.adapters[name] = str(folder)
        note("load", name=name)

    def unload(self, body: dict[str, Any]) -> None:
        if self.adapters.pop(body["lora_name"], None) is None:
            raise Refusal(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        note("unload", name=body["lora_name"])

    def call(self, body: dict[str, Any]) -> None:
        folder = Path(body["kwargs"]["weights_path"])
        if body["method"] != "reload_weights" or not (folder / "model.safetensors").exists():
            raise Refusal(500, f"there are no weights in {folder}")
        if self.active:
            raise Refusal(500, "weights are replaced while requests are under way")
        note("reload", folder=folder.name, tensors=tensors(folder / "model.safetensors"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def do_GET(self) -> None:
        names = [self.model.name, *self.model.adapters]
        cards = [{"id": name, "parent": None if name == self.model.name else self.model.name} for name in names]
        self.reply(200, {"object": "list", "data": cards} if self.path == "/v1/models" else {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        routes = {
            "/v1/completions": self.model.complete,
            "/v1/load_lora_adapter": self.model.load,
            "/v1/unload_lora_adapter": self.model.unload,
            "/collective_rpc": self.model.call,
        }
        try:
            self.reply(200, routes[self.path](body))
        except Refusal as refusal:
            self.reply(refusal.status, {"error": {"message": str(refusal)}})

    def reply(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--host", "--model", "--served-model-name", "--dtype", "--logprobs-mode"):
        parser.add_argument(name)
    parser.add_argument("--port", type=int)
    parser.add_argument("--enable-lora", action="store_true")
    arguments, _ = parser.parse_known_args()
    if noted("death") and "FAKE_VLLM_STAYS_AWAY" in os.environ:
        raise RuntimeError("there is no memory left")
    assert arguments.logprobs_mode == "processed_logprobs"
    Handler.model = Model(arguments)
    server = ThreadingHTTPServer((arguments.host, arguments.port), Handler)
    note("start", pid=os.getpid(), model=arguments.model)
    server.serve_forever()


if __name__ == "__main__":
    main()
