"""Starting from a pretrained model, and seating what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

from marl_gem import registry
from marl_gem.errors import ConfigError
from marl_gem.policies import LLMPolicy, PolicyPerSeat
from marl_gem.rollout import Job, collect
from marl_gem.specs import PolicySpec, load_policy, training_options
from marl_gem.trainers import checkpoint
from marl_gem.trainers.imitation import warm_up
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.start import start
from tests.trainers.support import DESK, changed, desk, marl_gem, warmed_up, weights, work

pytestmark = pytest.mark.slow


class TestPretrained:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A model that drops out in training, whose chat template tells tools."""
        sampler: Any = start(desk())[0].learners["assistant"].sampler
        llm = sampler.llm
        model = GPT2LMHeadModel(llm.model.config)
        model.config.resid_pdrop = model.config.attn_pdrop = model.config.embd_pdrop = 0.5
        model.save_pretrained(tmp_path / "model")
        llm.tokenizer.chat_template = "{% for tool in tools or [] %}<tool {{ tool.function.name }}>{% endfor %}" + (
            llm.tokenizer.chat_template
        )
        llm.tokenizer.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    def test_all_policies_start_from_it_and_are_told_their_tools(self, folder: Path) -> None:
        run: Any = start(desk("phases=[]", "seats.user=user", f"policy.start_from={folder}", "imitation.steps=0"))[0]
        user, assistant = (run.learners[name].sampler.llm for name in ("user", "assistant"))
        assert all(
            torch.equal(value, assistant.model.state_dict()[name]) for name, value in user.model.state_dict().items()
        )
        _, episodes = run.update()
        prompts = {
            turn.agent: user.tokenizer.decode(turn.response.prompt_ids) for one in episodes for turn in one.turns
        }
        assert prompts["assistant"].startswith("<tool look_up><tool cancel><tool redirect>")
        assert "<tool " not in prompts["user"]

    def test_a_model_with_dropout_learns_what_it_sampled_and_the_same_every_time(self, folder: Path) -> None:
        def learned() -> tuple[dict[str, torch.Tensor], float]:
            run, _ = warmed_up(desk("phases=[]", f"policy.start_from={folder}", "imitation.steps=3"))
            metrics, _ = run.update()
            return weights(run), metrics["logprob_diff"]

        (first, logprob_diff), (second, _) = learned(), learned()
        assert logprob_diff == pytest.approx(0, abs=1e-5)
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_half_precision_weights_are_trained_in_full(self, folder: Path) -> None:
        GPT2LMHeadModel.from_pretrained(folder).to(torch.bfloat16).save_pretrained(folder)
        config = desk("phases=[]", f"policy.start_from={folder}", "imitation.learning_rate=1e-6")
        run, demonstrations = start(config)
        before = weights(run)
        assert {value.dtype for value in before.values()} == {torch.float32}
        next(warm_up(config, run.phases, run.learners, demonstrations))
        assert changed(run, before) == {"assistant"}

    def test_a_tokenizer_without_a_chat_template_is_told_first(self, folder: Path, tmp_path: Path) -> None:
        (folder / "chat_template.jinja").unlink()
        with pytest.raises(ConfigError, match="needs a chat template"):
            TrainingRun.start(tmp_path / "run", desk(f"policy.start_from={folder}"))
        assert not (tmp_path / "run").exists()


class TestSeatsAfterwards:
    def test_a_run_sits_each_of_its_policies_where_it_learned(self, finished_desk: Path) -> None:
        pair = load_policy(str(finished_desk), DESK)
        assert isinstance(pair, PolicyPerSeat) and pair.name == "pair@5"
        user, assistant = pair.policies["user"], pair.policies["assistant"]
        assert isinstance(user, LLMPolicy) and isinstance(assistant, LLMPolicy)
        assert (user.name, assistant.name) == ("pair/user@3", "pair/assistant@5")
        (episode,) = collect(lambda: registry.make(DESK), [Job(3, pair)])
        assert episode.models["user"] == "pair/user@3"
        trained = checkpoint.load(finished_desk)
        both = {seat: trained.learners[seat].sampler.policy for seat in ("user", "assistant")}
        played = [
            [[turn.response.text for turn in episode.turns] for episode in collect(trained.specs[0].make, jobs)]
            for jobs in ([Job(seed, seating) for seed in range(6)] for seating in (pair, both))
        ]
        assert played[0] == played[1]

    def test_sampling_may_be_set_for_all_of_them(self, finished_desk: Path) -> None:
        cold = load_policy(f"{finished_desk},temperature=0,max_tokens=3", DESK)
        assert isinstance(cold, PolicyPerSeat)
        assert {(own.sampling.temperature, own.sampling.max_tokens) for own in cold.policies.values()} == {(0.0, 3)}  # type: ignore[attr-defined]

    def test_the_options_of_training_come_along(self, finished_desk: Path) -> None:
        assert training_options([PolicySpec.parse(str(finished_desk))], DESK) == {"split": "train"}

    def test_a_seat_that_was_not_trained_is_told(self, tmp_path: Path) -> None:
        work(TrainingRun.start(tmp_path / "half", desk("phases=[]", "training.updates=1")))
        (episode,) = collect(lambda: registry.make(DESK), [Job(0, load_policy(str(tmp_path / "half"), DESK))])
        assert episode.error is not None and episode.error.origin == "agent"
        assert "has no policy for 'user', only for assistant" in episode.error.message

    @pytest.mark.long
    def test_the_command_line_shows_both_and_lets_them_be_watched(self, tmp_path: Path) -> None:
        def run(*arguments: str) -> str:
            done = marl_gem(*arguments, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            return " ".join(done.stdout.split())

        tiny = [
            "imitation.steps=2",
            "imitation.episodes=20",
            "training.updates=2",
            "training.episodes=4",
            "policy.width=16",
        ]
        tiny += ["policy.heads=2", "evaluation.final_episodes=4", "phases=[{start = 1, seats = {user = 'user'}}]"]
        shown = run("train", "desk", "--name", "pair", *(word for value in tiny for word in ("--set", value)))
        assert "end of phase" in shown and "user=scripted:expert" in shown and "assistant=assistant" in shown
        assert "marl-gem play tau:desk-v0 --seat user=runs/pair --seat assistant=runs/pair" in shown
        watched = run("play", DESK, "--seat", "user=runs/pair", "--seat", "assistant=runs/pair")
        assert "after" in watched
