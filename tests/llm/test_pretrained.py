"""Folders with models that are not what they seem: none of their code runs, and nothing wrong is loaded."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from marl_gem.errors import CheckpointError, LLMError  # noqa: E402
from marl_gem.llm.pretrained import check_pretrained, load_pretrained, not_finite  # noqa: E402
from marl_gem.llm.transformers import load  # noqa: E402
from tests.llm.folders import change_json, change_weights, sound_model, with_code  # noqa: E402

ROOT = Path(__file__).parents[2]
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer_config.json"
HUGE = 10**12


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_model(tmp_path_factory.mktemp("models") / "sound")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def test_a_sound_model_is_loaded(sound: Path) -> None:
    model, tokenizer = load_pretrained(sound)
    assert model.dtype == torch.float32
    assert tokenizer.chat_template


# Code


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


READERS = (check_pretrained, load_pretrained, load)


@pytest.fixture
def yes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stdin that says yes to every question."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 1000))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


@pytest.mark.parametrize("read", READERS)
def test_no_code_of_a_folder_runs_whatever_stdin_says(
    sound: Path, tmp_path: Path, yes: None, read: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `trust_remote_code=False` transformers asks on stdin whether to run it."""
    mark = tmp_path / "mark"
    for tokenizer in (True, False):
        hostile = with_code(sound, tmp_path / f"code{tokenizer}", mark, model=True, tokenizer=tokenizer)
        with pytest.raises(CheckpointError, match=r"needs Python code of its own \(auto_map\), which is never run"):
            read(hostile)
    (hostile / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(sound)}))
    with pytest.raises(CheckpointError, match="holds an adapter"):
        read(hostile)
    read(with_code(sound, tmp_path / "known", mark, model=False, tokenizer=True))  # transformers has a class for it
    assert not mark.exists()
    assert "[y/N]" not in str(capsys.readouterr())


def test_pickled_weights_are_not_read(folder: Path, tmp_path: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    for read in READERS:
        with pytest.raises(
            CheckpointError, match=r"no weights as safetensors: .*; pytorch_model.bin is pickled, and unpickling"
        ):
            read(folder)
    assert not (tmp_path / "mark").exists()


def test_nothing_goes_around_this_module() -> None:
    calls = re.compile(
        r"from_pretrained|torch\.load\(|np\.load\(|numpy\.load\(|trust_remote_code|\bunpickle|yaml\.load"
    )
    files = [
        path for name in ("marl_gem", "trainers", "scenarios", "selectors") for path in (ROOT / name).rglob("*.py")
    ]
    found = {
        path.resolve().relative_to(ROOT).as_posix()
        for path in files
        if any(calls.search(line) and "allow_pickle=False" not in line for line in path.read_text("utf-8").splitlines())
    }
    assert found == {"marl_gem/llm/pretrained.py"}


def test_an_implementation_that_would_be_fetched_is_refused(folder: Path) -> None:
    change_json(folder / CONFIG, attn_implementation="somebody/kernels:attention")
    with pytest.raises(
        CheckpointError, match=r"attn_implementation = 'somebody/kernels:attention', code that would be fetched"
    ):
        load_pretrained(folder)


# Weights


def cut(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def lie_in_header(folder: Path) -> None:
    """A header that is longer than the file."""
    (folder / WEIGHTS).write_bytes((2**60).to_bytes(8, "little") + b"{}")


def shard(folder: Path, file: str) -> None:
    """An index that names one more file."""
    (folder / WEIGHTS).unlink()
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"transformer.wte.weight": file}}))


def make_folder(folder: Path) -> None:
    """A folder in place of the file."""
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def nan(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors["transformer.ln_f.weight"].fill_(float("nan")))


def infinite(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors["transformer.wte.weight"].view(-1)[-1:].fill_(float("-inf")))


SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "holds no weights as safetensors"),
    "a tensor is missing": (
        lambda f: change_weights(f, lambda tensors: tensors.pop("transformer.h.0.mlp.c_fc.weight")),
        r"lacks the weights transformer.h.0.mlp.c_fc.weight\. Copy the model again",
    ),
    "one too many": (
        lambda f: change_weights(f, lambda tensors: tensors.update({"transformer.h.1.ln_1.bias": torch.zeros(8)})),
        "holds weights that the model in config.json does not have: transformer.h.1.ln_1.bias",
    ),
    "another shape": (
        lambda f: change_weights(f, lambda tensors: tensors.update({"transformer.ln_f.bias": torch.zeros(9)})),
        r"holds weights of another shape than config.json says: transformer.ln_f.bias \(9,\), not \(8,\)",
    ),
    "another size": (lambda f: change_json(f / CONFIG, n_embd=16), "another shape"),
    "a layer less": (lambda f: change_json(f / CONFIG, n_layer=0), "does not have: transformer.h.0"),
    "a layer more": (lambda f: change_json(f / CONFIG, n_layer=2), "lacks the weights transformer.h.1"),
    "not a number": (nan, "transformer.ln_f.weight holds numbers that are not finite, so the model cannot answer"),
    "infinite": (infinite, "transformer.wte.weight holds numbers that are not finite"),
    "cut short": (cut, "model.safetensors is cut short or damaged"),
    "empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "cut short or damaged"),
    "a false header": (lie_in_header, "cut short or damaged"),
    "a folder": (make_folder, "model.safetensors is missing"),
    "a shard elsewhere": (lambda f: shard(f, "../other/model.safetensors"), "which is no safetensors file in this"),
    "an absolute shard": (lambda f: shard(f, "/etc/model.safetensors"), "which is no safetensors file in this"),
    "a shard that is gone": (
        lambda f: shard(f, "model-2.safetensors"),
        r"model-2.safetensors is missing, but .* names",
    ),
    "an index of numbers": (lambda f: shard(f, 5), "weight_map gives no file for each tensor"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", SPOILED)
def test_weights_that_are_not_the_models_are_refused(folder: Path, kind: str) -> None:
    spoil, complaint = SPOILED[kind]
    spoil(folder)
    with pytest.raises(CheckpointError, match=complaint):
        load_pretrained(folder)


# Configurations


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in (CONFIG, TOKENIZER) for content in ("[]", "5", '"gpt2"', "{", "", "[" * 10**5)),
        (CONFIG, '{"a":' * 100 + "1" + "}" * 100),
        ("generation_config.json", "[1]"),
        ("added_tokens.json", "[1]"),
    ],
)
def test_a_description_that_is_no_json_object_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=rf"{name} is damaged: .*Copy the model again"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"n_layer": HUGE}, "n_layer = 1e.12, but the weights' files hold 16 tensors"),
        ({"n_embd": HUGE}, "n_embd = 1e.12"),
        ({"vocab_size": HUGE}, "vocab_size = 1e.12"),
        ({"num_labels": HUGE}, "num_labels = 1e.12"),
        ({"n_layer": 100}, "asks for .* numbers, but the weights' files hold"),
        ({"n_embd": 1 << 20}, "asks for .* numbers"),
        ({"n_positions": HUGE}, "asks for .* numbers"),
        ({"n_layer": -1}, "holds no model|does not have"),
        ({"n_head": 0}, "holds no model"),
        ({"n_head": 3}, "holds no model"),
        ({"n_embd": "wide"}, "holds no model"),
        ({"n_layer": None}, "holds no model"),
        ({"model_type": "unheard-of"}, "holds no model"),
        ({"model_type": 5}, "holds no model"),
        ({"model_type": ["gpt2"]}, "holds no model"),
        ({"model_type": ...}, "holds no model"),
        ({"model_type": "bert"}, "asks for .* numbers"),
        ({"dtype": "float99"}, "holds no model"),
        ({"activation_function": "none_such"}, "holds no model"),
    ],
    ids=str,
)
def test_a_configuration_of_other_weights_is_refused_before_any_memory_is_taken(
    folder: Path, change: dict[str, Any], complaint: str
) -> None:
    change_json(folder / CONFIG, **change)
    with memory_limit(2 << 30), pytest.raises(CheckpointError, match=complaint):
        load_pretrained(folder)


class memory_limit:
    """At most so many bytes more of address space than the process has now."""

    def __init__(self, more: int) -> None:
        self.more = more

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + self.more, self.before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.before)


# Tokenizers and folders


def test_a_tokenizer_of_a_larger_model_is_refused(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["zz"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="gives tokens up to 5000, but the model has embeddings for 265 tokens"):
        load_pretrained(folder)


def test_what_is_loaded_and_saved_again_is_the_same(folder: Path, tmp_path: Path) -> None:
    for turn in ("once", "twice"):
        model, tokenizer = load_pretrained(folder)
        folder = tmp_path / turn
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    files = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    assert (
        b"local_files_only" not in files["tokenizer_config.json"] and b"is_local" not in files["tokenizer_config.json"]
    )


@pytest.mark.parametrize("value", [{"": None}, "qwen@http://127.0.0.1:9/v1"])
def test_a_greatest_length_that_is_no_number_is_refused(folder: Path, value: object) -> None:
    content = json.loads((folder / "tokenizer_config.json").read_text()) | {"model_max_length": value}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"says model_max_length = .* which is no number"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tokenizer.json", "no tokenizer that transformers can load"),
        ("chat_template.jinja", "needs a chat template and an end-of-sequence token"),
        ("config.json", "no config.json, but chat_template.jinja"),
    ],
)
def test_a_file_that_is_missing_is_named(folder: Path, name: str, complaint: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=complaint):
        check_pretrained(folder)


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no model: it is empty"):
        load_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="there is no folder"):
        load_pretrained(tmp_path / "none")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: Path) -> None:
    for name in (WEIGHTS, CONFIG):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(CheckpointError, match=f"{name} is (missing|damaged)"):
            load_pretrained(folder)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.mkdir('/tmp/mark') }}",
        "{% include '/etc/passwd' %}",
        "{{ 1 // 0 }}",
        "{{ range(10 ** 12) | list }}",
        "{{ nothing.at.all }}",
        "no messages",
    ],
)
def test_a_chat_template_reaches_nothing_and_its_faults_are_the_models(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    llm = load(folder, device="cpu")
    with pytest.raises(LLMError, match=r"the chat template of model refuses messages"):
        llm.encode([{"role": "user", "content": "a"}])


def test_which_tensor_is_not_finite() -> None:
    tensors = {"a": torch.ones(3), "empty": torch.ones(0), "whole": torch.tensor([1, 2]), "half": torch.ones(2).half()}
    assert not_finite(tensors) is None
    assert not_finite({**tensors, "b": torch.tensor([1.0, float("nan")])}) == "b"
    assert not_finite({**tensors, "c": torch.tensor([[float("inf")]], dtype=torch.bfloat16)}) == "c"
