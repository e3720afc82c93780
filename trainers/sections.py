"""The sections of a training configuration, as frozen records.

The comment above each field gives its meaning, unit, range and source; the reference page is made from these comments.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from marl_gem.specs import ScenarioSpec

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveFloat = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the configuration; an unknown name in it is an error."""


class TrainingScenario(Section, frozen=True):
    """A scenario that is trained on."""

    # The scenario: an id such as "game:KuhnPoker-v0", `package.module:Class` or `path/to/file.py:Class`.
    id: str
    # Options for `make`, by name.
    options: dict[str, Any] = {}
    # Options that differ in the episodes that measure the policies, such as tasks that are not trained on.
    test_options: dict[str, Any] = {}
    # Options of every episode's reset, by name. Where the policies are measured each task has its turn, as without.
    reset: dict[str, Any] = {}
    # Wrappers around the env, the innermost first, as in "time_limit=20"; see `marl_gem.wrappers`. Those that change
    # rewards alone, such as "reward_scale=10,agents=player_1,offset=50", are left out where the policies are measured.
    wrappers: tuple[str, ...] = ()
    # Tools that all agents get, as in "calculator" or "search:corpus=notes.jsonl"; see `marl_gem.tools`.
    tools: tuple[str, ...] = ()
    # The share of each update's episodes that are of this scenario, in proportion to the other weights.
    weight: PositiveFloat = 1.0
    # Who holds each seat of this scenario, where that differs from the run's `seats`.
    seats: dict[str, str] = {}

    @property
    def spec(self) -> ScenarioSpec:
        """The scenario as it is trained on."""
        return ScenarioSpec.parse(self.id, self.options, self.wrappers, self.tools)

    @property
    def test_spec(self) -> ScenarioSpec:
        """The scenario as the policies are measured on it: without wrappers that change nothing but rewards."""
        spec = self.spec.with_options(self.test_options)
        kept = tuple(wrapper for wrapper in spec.wrappers if wrapper.changes != {"rewards"})
        return msgspec.structs.replace(spec, wrappers=kept)


class PolicyConfig(Section, frozen=True):
    """The model, what it is shown and how its responses are sampled. Where several policies learn, each has its own."""

    # What to start from: the folder of a transformers model with its tokenizer, or another run: "runs/x", "runs/x@120"
    # (its checkpoint after 120 updates), "runs/x:user" (one policy of several). What a run has learned needs no warm
    # start. Empty: a tiny model with random weights.
    start_from: str = ""
    # Of a tiny model: the size of the hidden states, a multiple of `heads`.
    width: Positive = 64
    # Of a tiny model: the number of layers.
    layers: Positive = 2
    # Of a tiny model: the number of attention heads.
    heads: Positive = 4
    # Of a tiny model: the greatest number of tokens it reads, prompt and response together.
    context: Positive = 512
    # Of a tiny model's tokenizer: what a token holds at most, a line ("lines") or a word with what stands before it.
    tokens: Literal["lines", "words"] = "lines"
    # The rank of the adapters (LoRA) that learn in place of the model itself; 0 trains all weights. With adapters all
    # policies share one model, and `start_from` names it.
    lora_rank: Count = 0
    # An adapter's output is scaled by lora_alpha / lora_rank; 0 stands for twice the rank.
    lora_alpha: Count = 0
    # The names of the layers that are adapted, such as "q_proj"; empty for all linear layers but the head.
    lora_targets: tuple[str, ...] = ()
    # Variables of the chat template, such as { enable_thinking = false }.
    chat_template_kwargs: dict[str, Any] = {}
    # Whether later prompts show what the model thought before it spoke. Then every prompt extends the one before, and a
    # long conversation is trained as one row.
    keep_reasoning: bool = False
    # How an agent's history becomes the next prompt: the name of a view, see `marl_gem.views`.
    view: str = "bare"
    # The longest response, in tokens.
    max_tokens: Positive = 8
    # How responses are sampled together: "static", where a batch ends with its longest response, or "continuous", where
    # responses join it between two tokens and leave when they end. "auto" is static on a CPU, and continuous elsewhere.
    batching: Literal["auto", "static", "continuous"] = "auto"
    # The greatest number of responses that are sampled together.
    max_batch: Positive = 1024
    # The temperature that responses are sampled at, above 0. Trained log-probabilities are those at this temperature.
    temperature: PositiveFloat = 1.0


class ImitationConfig(Section, frozen=True):
    """The warm start: a fresh model learns to answer at all, from demonstrations."""

    # Who is imitated in each seat, as in a command line's --seat: scripted:NAME, MODEL@URL, ...; by default random.
    seats: dict[str, str] = {}
    # How many episodes are demonstrated.
    episodes: Positive = 1000
    # How many optimizer steps each policy takes; 0 for a model that needs no warm start.
    steps: Count = 300
    # How many turns a step learns from, about.
    batch: Positive = 128
    # The learning rate of the first step; it falls along a line to a tenth of it.
    learning_rate: PositiveFloat = 2e-3


class AlgorithmConfig(Section, frozen=True):
    """How advantages and the loss are computed."""

    # The algorithm: "rebn", "rloo", one that was registered, or `package.module:Class`.
    name: str = "rebn"
    # The algorithm's own options, see `Options` in its file.
    options: dict[str, Any] = {}


class TrainingConfig(Section, frozen=True):
    """The loop: updates, each on fresh episodes."""

    # How many updates there are.
    updates: Count = 100
    # How many episodes are played for each update, over all scenarios.
    episodes: Positive = 256
    # Where the episodes of a group start, for algorithms that compare them: all from the same seed, or ("fork") from a
    # state in the middle of an episode, before a turn that is drawn; what came before is not trained.
    group_start: Literal["seed", "fork"] = "seed"
    # How many updates the weights that play are behind those that learn. 0 takes turns: play, then learn. With n above
    # 0 the episodes of update k are played with the weights after update k - n, while updates are computed. Tokens are
    # then weighed by how much likelier they are now: by the algorithm, or by `algorithms.base.truncated`.
    staleness: Count = 0
    # The learning rate at the beginning of each phase.
    learning_rate: PositiveFloat = 1e-3
    # How it falls in each phase: to a tenth of it along a "cosine" or a line ("linear"), or not at all ("constant").
    learning_rate_schedule: Literal["cosine", "linear", "constant"] = "cosine"
    # In so many updates at the beginning of each phase the learning rate is lower: it grows along a line.
    warmup_updates: Count = 0
    # How much of the steps before goes on in each step, from 0 to below 1: Adam's beta_1. Where what is best depends on
    # what others learn, as in games whose good play mixes moves, momentum turns round in circles; 0 does not.
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    # The discount from one turn of an agent to its next, from 0 to 1.
    gamma: Share = 1.0
    # The weight of the divergence from the reference, the policy as it was when the phase began, in nats a sampled
    # token; it changes along a line from `kl` to `kl_final` in each phase. With both 0 there is no reference.
    kl: Weight = 0.2
    # The weight at the end of each phase.
    kl_final: Weight = 0.05
    # The reference also becomes the policy as it is every so many updates of a phase (R-NaD: Perolat et al., arXiv
    # 2206.15378): then the pull steadies learning without holding it near where the phase began. 0: never.
    reference_every: Count = 0
    # How the divergence is computed at a sampled token: "exact" over the vocabulary, or from the token's own
    # log-probabilities, see `marl_gem.trainers.backends.readout.Estimator`.
    kl_estimator: Literal["exact", "k1", "k2", "k3"] = "exact"
    # Whether the divergence is a part of the loss, or paid as a reward to the turn (with k1, whatever `kl_estimator`
    # says). As a loss it leaves out how an early token changes what later tokens diverge by; as a reward it does not.
    kl_in: Literal["loss", "reward"] = "loss"
    # In the loss: whether the divergence is summed over each turn's tokens and averaged over turns, or averaged over
    # tokens, which suits long responses.
    kl_average: Literal["turn", "token"] = "turn"
    # The weight of the mean entropy of the sampled tokens' distributions, in nats, which the loss is to raise.
    entropy: Weight = 0.0
    # Answers that were cut at policy.max_tokens: trained like others, or masked, so that nothing is learned from them.
    cut_answers: Literal["train", "mask"] = "train"
    # What is taken from the reward of a turn whose answer was cut.
    cut_penalty: Weight = 0.0
    # The learning rate of a critic, for algorithms that have one.
    critic_learning_rate: PositiveFloat = 1e-3
    # The greatest norm of an update's gradient; a longer one is scaled down to it.
    max_grad_norm: PositiveFloat = 1.0
    # The greatest number of tokens, padding included, in one forward and backward pass. It changes the memory that an
    # update takes, and its gradient only by rounding.
    micro_batch_tokens: Positive = 16_384
    # How gradients are computed: "float32", or "bfloat16" where that loses little (torch's autocast) with float32
    # weights and optimizer.
    precision: Literal["float32", "bfloat16"] = "float32"
    # Whether only the inputs of layers are kept for the gradient, and the rest is computed again: less memory, a third
    # more time.
    activation_checkpointing: bool = False
    # Whether rows lie one after the other instead of being padded to the same length; their positions keep them apart.
    packing: bool = False
    # So many episodes start from the same state; 0 for as many as the algorithms compare, as a rule 1.
    group_size: Count = 0
    # What the policies are rewarded with in place of the scenario's rewards, over an episode: empty for these,
    # "curriculum=0.5", or `package.module:function`; see `marl_gem.trainers.rewards`.
    reward: str = ""
    # The policies learn by turns, each for so many updates, in the order of the seats; 0 for all at once.
    alternate_every: Count = 0
    # The share of episodes in which one seat learns and earlier versions of the policies hold the other learning seats.
    opponent_pool_fraction: Share = 0.25
    # A version of each policy goes into its pool every so many of its updates.
    snapshot_every: Positive = 10
    # The greatest number of versions in a pool. When it is full, every second one goes, so that it spans the whole run.
    pool_size: Positive = 8
    # A checkpoint is written every so many updates.
    save_every: Positive = 10
    # Every so many-th of these checkpoints is kept beside the newest two: 1 keeps all, 0 none. RUN@120 names the one
    # after 120 updates.
    keep_every: Count = 0
    # How many of each update's episodes are written to episodes.jsonl.
    keep_episodes: Count = 8


class LeagueConfig(Section, frozen=True):
    """Whom a policy meets in the share of episodes in which one seat learns (`training.opponent_pool_fraction`)."""

    # How often opponents are drawn: once for each update ("update") or for each episode ("episode"; for each group of
    # episodes, where the algorithm compares these).
    draw: Literal["update", "episode"] = "update"
    # The weight of earlier versions, each as likely as the others.
    past: Weight = 1.0
    # The weight of earlier versions that are the likelier the less the policy wins against them.
    prioritized: Weight = 0.0
    # How strongly: an earlier version's share is (1 - win rate)^power.
    power: Weight = 2.0
    # The weight of the newest version, which does not learn in such an episode.
    latest: Weight = 0.0
    # Policies that never learn, as in a command line's --seat, and their weights: { "random" = 0.5 }.
    fixed: dict[str, Weight] = {}


class VLLMConfig(Section, frozen=True):
    """The vLLM server that answers while episodes are played, see `sampler`."""

    # The Python interpreter that has vLLM, which often has an environment of its own; empty for the one that trains.
    python: str = ""
    # Further arguments of the server, such as "--tensor-parallel-size=2"; they count last.
    arguments: tuple[str, ...] = ()
    # The GPUs that the server sees, as in CUDA_VISIBLE_DEVICES: "1" or "2,3"; empty for those that the trainer sees.
    gpus: str = ""
    # The share of a GPU's memory that the server takes.
    gpu_memory: Share = 0.4
    # The greatest number of tokens, prompt and response together, that the server takes; 0 for what the model takes.
    context: Count = 0
    # How many seconds the server may take to start; for a server at a URL, how long it may be away.
    patience: PositiveFloat = 600.0
    # For a server at a URL: the environment variable that holds its API key.
    api_key_env: str = ""


class EvaluationConfig(Section, frozen=True):
    """How the policies are measured."""

    # In self-play, whom the policy meets in each seat, as in a command line's --seat: random, scripted:NAME,
    # MODEL@URL, ... The run's score is the one against the first. Where no legal actions are listed, random play is
    # left out.
    opponents: tuple[str, ...] = ("random",)
    # Whom the policies meet beside one another, before and after training: for a seat the policies that hold it in the
    # place of its own, as in a command line's --seat: { user = ["scripted:expert", "runs/other", "runs/this@40"] }.
    partners: dict[str, tuple[str, ...]] = {}
    # How many episodes of each seating are played before and after training, and at the end of a phase.
    final_episodes: Positive = 400
    # How many episodes of each seating are played for a point of the curve.
    probe_episodes: Positive = 100
    # A point of the curve is measured every so many updates.
    probe_every: Positive = 10


class PhaseConfig(Section, frozen=True):
    """A change of who holds which seat."""

    # The update from which on it holds, from 1 up.
    start: Positive
    # Who holds these seats from then on; seats that are not named stay as they were.
    seats: dict[str, str] = {}
    # The policies that learn in this phase, of those that hold a seat; the others play as they are. Empty for all.
    learning: tuple[str, ...] = ()


MACHINE_FIELDS = (
    "device",
    "threads",
    "wait",
    "trackers",
    "training.micro_batch_tokens",
    "training.activation_checkpointing",
    "training.packing",
)
"""What says how and where a run computes, and not what: a run that goes on may have other values, after it ran out of
memory or on another machine. Its numbers are then the same but for rounding."""


class TrainConfig(Section, frozen=True):
    """One run."""

    # What is trained on. A file may write `scenario = "ID"` (with `options`, `test_options`, `reset`, `wrappers` and
    # `tools`), a table `[scenario]`, or several tables `[[scenarios]]`.
    scenarios: tuple[TrainingScenario, ...]
    # The seed that every random choice of the run follows from.
    seed: Count = 0
    # Where the models are: "cpu", "cuda", "cuda:1", "mps"; "auto" is a GPU if there is one.
    device: str = "auto"
    # Who answers while episodes are played: "in_process", the model that is trained; "vllm", a vLLM server that the run
    # starts and stops; or the URL of a vLLM server, which must be able to read the run's folder.
    sampler: str = "in_process"
    # How many CPU threads torch may use; one is best for tiny models, 0 lets torch choose.
    threads: Count = 1
    # Seconds that the server of a model that does not learn is waited for while it cannot be reached, where the model's
    # text does not say (`wait=SECONDS`).
    wait: Weight = 60.0
    # Who holds each seat. A name in small letters is a policy that learns; anything else is a policy as in a command
    # line's --seat (random, scripted:NAME, MODEL@URL, hf:FOLDER, runs/x@120, ...) and does not learn. Empty: one
    # policy holds all seats.
    seats: dict[str, str] = {}
    # The policies that learn before the first of `phases`, of those that hold a seat; the others play as they are.
    # Empty for all.
    learning: tuple[str, ...] = ()
    # When seats change hands, or other policies learn, in order.
    phases: tuple[PhaseConfig, ...] = ()
    # Where metrics are sent besides the run's folder; a resumed run may have others.
    trackers: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    policy: PolicyConfig = PolicyConfig()
    imitation: ImitationConfig = ImitationConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    training: TrainingConfig = TrainingConfig()
    league: LeagueConfig = LeagueConfig()
    vllm: VLLMConfig = VLLMConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    # What differs for one policy, by its name: any field of `policy`, the fields of `training` that
    # `marl_gem.trainers.policy_tables` lists (learning_rate, kl, kl_final, gamma, entropy, reward, ...), and
    # `algorithm`, a name or { name = ..., options = {...} }.
    policies: dict[str, dict[str, Any]] = {}

    @property
    def is_self_play(self) -> bool:
        """Whether one policy holds all seats of all scenarios, because no seats are named."""
        return not self.seats and not any(scenario.seats for scenario in self.scenarios)

    @property
    def title(self) -> str:
        """The scenarios' ids."""
        return " + ".join(scenario.id for scenario in self.scenarios)
